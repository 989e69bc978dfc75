# SPDX-License-Identifier: Apache-2.0
"""Slow and silent parts of a job are found by curves worked out by hand, at the edges of every threshold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from slurmscope.jobs.processes import SilentPart, SlowPart
from slurmscope.jobs.rule import Finding, Severity
from slurmscope.jobs.series import Measured, Series
from slurmscope.jobs.summary import JobSummary
from tests.fakes.job_summaries import all_findings, make_summary
from tests.fakes.measured import curve, measure_nodes, summed, with_curves, with_totals
from tests.fakes.reports import START, make_record

Curve = float | Callable[[float], float]


def lost(
    waits: dict[str, Curve], cores: dict[str, Curve] | None = None, limits: dict[str, Curve] | None = None
) -> JobSummary:
    """Sum up a job of two hours whose threads waited for so many cores on each node while four were busy.

    For so many of them a CPU limit held them back.
    """
    cores = cores or {}
    measured = with_curves(
        measure_nodes(dict.fromkeys(waits, 4.0)),
        cpu=tuple(curve((node,), cores.get(node, 4.0)) for node in waits),
        cpu_queue=tuple(curve((node,), wait) for node, wait in waits.items()),
        cpu_throttled=tuple(curve((node,), held) for node, held in (limits or {}).items()),
    )
    return summed(make_record(nodes=tuple(waits)), measured)


def limited(limits: dict[str, Curve], cores: dict[str, Curve] | None = None) -> JobSummary:
    """Sum up a job that had no core when a CPU limit held it back, and never else."""
    return lost(limits, cores, limits)


def gpus(work: dict[str, float] | None = None, kind: str = "gpu_tensor", /, **busy: Curve) -> JobSummary:
    """Sum up a job of two hours on GPUs of one node that were so busy, and all did the same work, or so much."""
    devices = {name: ("n1", name[1:], "") for name in busy}
    curves = {
        "gpu_busy": tuple(curve(devices[name], ratio) for name, ratio in busy.items()),
        kind: tuple(curve(devices[name], (work or {}).get(name, 0.3)) for name in busy),
    }
    measured = with_totals(measure_nodes({"n1": 4.0}), gpu_jobs=dict.fromkeys(devices.values(), 1.0))
    return summed(make_record(nodes=("n1",)), with_curves(measured, **curves))


def found(summary: JobSummary, rule: str) -> Finding | None:
    return next((finding for finding in all_findings(summary) if finding.rule == rule), None)


def test_node_under_a_quota_is_slow_by_its_factor() -> None:
    # Two cores of work wait for each two that run: half of the time without a core.
    summary = limited({"n1": 0.0, "n2": 4.0, "n3": 0.0})

    assert (SlowPart("n2", "", 0.5, 1.0, START, 7200.0),) == summary.slow_parts
    assert 2.0 == summary.slow_parts[0].factor


def test_one_of_two_nodes_is_slow() -> None:
    assert ["n1"] == [part.node for part in limited({"n1": 4.0, "n2": 0.0}).slow_parts]


@pytest.mark.parametrize(("wait", "is_found"), [(1.0, False), (1.001, True)])
def test_node_is_slow_below_four_fifths_of_the_others(wait: float, is_found: bool) -> None:
    # 4 of 4 + 1 cores are 0.8 of what the others have.
    assert is_found == bool(limited({"n1": wait, "n2": 0.0}).slow_parts)


def test_uneven_work_is_not_slow() -> None:
    uneven: dict[str, Curve] = {"n1": 8.0, "n2": 8.0, "n3": 1.0, "n4": 0.0}
    assert () == limited(dict.fromkeys(uneven, 0.0), uneven).slow_parts


def test_nodes_that_all_wait_are_not_slow() -> None:
    assert () == limited({"n1": 4.0, "n2": 4.0, "n3": 4.2}).slow_parts


@pytest.mark.parametrize(("wait", "is_found"), [(2.9, False), (3.1, True)])
def test_node_must_stand_out_from_the_scatter_of_the_others(wait: float, is_found: bool) -> None:
    # Others: 0.7, 0.8, 0.9 and 1.0 of the time; median 0.85, median deviation 0.1 (0.05 twice, 0.15 twice);
    # 3.5 * 1.4826 * 0.1 = 0.519, so below 0.331: with 4 cores busy from 8.085 waiting on.
    others = {f"n{place}": 4.0 / ratio - 4.0 for place, ratio in enumerate((0.7, 0.8, 0.9, 1.0))}
    scattered: dict[str, Curve] = {**others, "n9": wait + 5.085}
    assert is_found == bool(limited(scattered).slow_parts)


def test_idle_node_is_not_slow_nor_compared() -> None:
    assert () == limited({"n1": 0.1, "n2": 0.0}, {"n1": 0.05}).slow_parts
    assert () == limited({"n1": 1.0, "n2": 0.0}, {"n1": 0.0}).slow_parts
    assert () == limited({"n1": 4.0, "n2": 0.0}, {"n2": 0.0099}).slow_parts


def test_node_that_sleeps_until_the_slow_one_is_ready_is_compared() -> None:
    # Half of what little it wants to run it waits for.
    assert [4.0] == [part.factor for part in limited({"n1": 12.0, "n2": 0.05}, {"n2": 0.05}).slow_parts]


def test_longest_slow_time_counts_and_one_other_point_does_not_end_it() -> None:
    def wait(at: float) -> float:
        return 12.0 if at <= 300 or (600 < at <= 2400 and at != 1200) else 0.0

    (part,) = limited({"n1": wait, "n2": 0.0}).slow_parts

    # Points 630 to 2400, of which each covers the step before it.
    assert (START + 600.0, 1800.0) == (part.since_seconds, part.seconds)
    assert (0.25, 4.0) == (part.own_ratio, part.factor)


def test_two_other_points_end_it() -> None:
    (part,) = limited({"n1": lambda at: 0.0 if at in (1200, 1230) else 4.0, "n2": 0.0}).slow_parts
    assert (START + 1230.0, 5970.0) == (part.since_seconds, part.seconds)


def test_node_that_others_use_is_oversubscribed_and_not_slow() -> None:
    # No limit, or none that is measured: whoever has the cores, the node itself is not slow.
    every: list[dict[str, Curve]] = [{}, {"n1": 0.0, "n2": 0.0, "n3": 0.0}]
    for limits in every:
        summary = lost({"n1": 0.0, "n2": 4.0, "n3": 0.0}, limits=limits)

        assert () == summary.slow_parts
        assert (SlowPart("n2", "", 0.5, 1.0, START, 7200.0),) == summary.oversubscribed_nodes


def test_time_under_a_limit_is_not_oversubscription() -> None:
    # Two of twelve cores that threads waited for were those of others: 4 of 6, and 4 of 14 by the limit.
    summary = lost({"n1": 0.0, "n2": 12.0}, limits={"n1": 0.0, "n2": 10.0})

    assert [4 / 14] == pytest.approx([part.own_ratio for part in summary.slow_parts])
    assert [4 / 6] == pytest.approx([part.own_ratio for part in summary.oversubscribed_nodes])
    # The kernel may count a little more as held back than as waiting.
    assert () == lost({"n1": 0.0, "n2": 11.9}, limits={"n1": 0.0, "n2": 12.0}).oversubscribed_nodes


@pytest.mark.parametrize(("seconds", "is_found"), [(60, False), (90, True)])
def test_fewer_than_three_slow_points_are_chance(seconds: int, is_found: bool) -> None:
    # Points every 30 seconds, each of which covers the step before it.
    summary = limited({"n1": 0.0, "n2": lambda at: 4.0 if 3600 < at <= 3600 + seconds else 0.0})
    assert is_found == bool(summary.slow_parts)


def test_node_without_the_counter_is_not_compared() -> None:
    measured = with_curves(
        measure_nodes({"n1": 4.0, "n2": 4.0}), cpu_queue=(curve(("n1",), 4.0),), cpu_throttled=(curve(("n1",), 4.0),)
    )
    summary = summed(make_record(nodes=("n1", "n2")), measured)
    assert ((), ()) == (summary.slow_parts, summary.oversubscribed_nodes)
    assert () == summed(make_record(nodes=("n1", "n2")), Measured()).slow_parts


def test_gpu_that_waits_for_input_slows_those_that_spin() -> None:
    summary = gpus(g0=0.98, g1=0.45, g2=0.97, g3=0.99)

    (part,) = summary.slow_parts
    assert ("n1", "1") == part[:2]
    assert (0.45, 0.98) == pytest.approx(part[2:4])


@pytest.mark.parametrize("kind", ["gpu_tensor", "gpu_sm"])
@pytest.mark.parametrize(
    ("own", "is_found"),
    [
        (0.42, True),
        # In the middle between all of the work of the others and as much of it as the GPU is busier: 0.75 * 0.4.
        (0.301, True),
        (0.299, False),
        (0.2, False),  # each for itself, as in a sweep of parameters
    ],
)
def test_gpu_is_slow_only_if_it_works_as_much_as_the_others(kind: str, own: float, is_found: bool) -> None:
    summary = gpus({"g0": 0.4, "g1": own, "g2": 0.4}, kind, g0=1.0, g1=0.5, g2=1.0)
    assert is_found == bool(summary.slow_parts)


def test_gpu_without_counters_of_its_work_is_not_called_slow() -> None:
    devices = [("n1", str(number), "") for number in range(3)]
    measured = with_curves(
        with_totals(measure_nodes({"n1": 4.0}), gpu_jobs=dict.fromkeys(devices, 1.0)),
        gpu_busy=tuple(curve(device, 0.45 if device[1] == "1" else 0.98) for device in devices),
    )
    assert () == summed(make_record(nodes=("n1",)), measured).slow_parts
    unused = {"g0": 0.019, "g1": 0.019, "g2": 0.019}
    assert () == gpus(unused, g0=1.0, g1=0.5, g2=1.0).slow_parts


@pytest.mark.parametrize(
    "busy",
    [
        {"g0": 0.89, "g1": 0.45},  # the other one does not wait all the time
        {"g0": 0.98, "g1": 0.019},  # idle
        {"g0": 0.98, "g1": 0.79},
        {"g0": 0.98},
    ],
)
def test_gpu_is_not_slow(busy: dict[str, Curve]) -> None:
    assert () == gpus(**busy).slow_parts


@pytest.mark.parametrize(("below", "is_found"), [(0.0, False), (0.001, True)])
def test_gpu_at_the_edge_of_the_scatter_is_not_slow(below: float, is_found: bool) -> None:
    # The others deviate by a sixteenth, which binary numbers have exactly.
    edge = 0.9375 - 3.5 * 1.4826 * 0.0625
    assert is_found == bool(gpus(g0=edge - below, g1=0.875, g2=0.9375, g3=1.0).slow_parts)


def test_shared_gpu_is_not_compared() -> None:
    measured = with_curves(
        with_totals(measure_nodes({"n1": 4.0}), gpu_jobs={("n1", "0", ""): 1.0, ("n1", "1", ""): 2.0}),
        gpu_busy=(curve(("n1", "0", ""), 1.0), curve(("n1", "1", ""), 0.3)),
    )
    assert () == summed(make_record(nodes=("n1",)), measured).slow_parts


def until(end: float, busy: float = 4.0, after: float = 0.0) -> Callable[[float], float]:
    return lambda at: busy if at <= end else after


def working(**nodes: Curve) -> JobSummary:
    measured = with_curves(
        measure_nodes(dict.fromkeys(nodes, 4.0)), cpu=tuple(curve((node,), cores) for node, cores in nodes.items())
    )
    return summed(make_record(nodes=tuple(nodes)), measured)


def test_node_that_stopped_while_the_others_went_on_is_silent() -> None:
    assert (SilentPart("n2", "", 3600.0),) == working(n1=4.0, n2=until(3600), n3=4.0).silent_parts
    assert (SilentPart("n2", "", 3600.0),) == working(n1=4.0, n2=until(3600, after=0.049)).silent_parts


@pytest.mark.parametrize(
    "nodes",
    [
        {"n1": 4.0, "n2": until(3600, after=0.05)},
        {"n1": 4.0, "n2": 0.0},  # never worked
        {"n1": 4.0, "n2": until(3600, busy=0.19)},
        {"n1": 4.0, "n2": until(3600), "n3": until(3600)},  # most have stopped
        {"n1": until(5000), "n2": until(3600)},  # the job has stopped
        {"n1": until(7200), "n2": 4.0},
        {"n1": 4.0},
    ],
)
def test_node_is_not_silent(nodes: dict[str, Curve]) -> None:
    assert () == working(**nodes).silent_parts


@pytest.mark.parametrize(
    ("pause", "is_found"),
    [
        # Of 120 points after the stop, a fifth is 24.
        ((4000, 4000 + 24 * 30), True),
        ((4000, 4000 + 25 * 30), False),
        ((7200 - 2 * 30, 7200), True),
        ((7200 - 3 * 30, 7200), False),  # the last three points: they do not go on
    ],
)
def test_others_may_pause_for_a_fifth_of_the_time_but_not_at_the_end(pause: tuple[int, int], is_found: bool) -> None:
    def busy(at: float) -> float:
        return 0.0 if pause[0] < at <= pause[1] else 4.0

    assert is_found == bool(working(n1=busy, n2=until(3600)).silent_parts)


def test_node_that_is_not_measured_any_more_is_not_silent() -> None:
    measured = with_curves(
        measure_nodes({"n1": 4.0, "n2": 4.0}),
        cpu=(curve(("n1",), 4.0), curve(("n2",), until(3600), last=7140.0)),
    )
    assert 1 == len(summed(make_record(nodes=("n1", "n2")), measured).silent_parts)
    gone = with_curves(measured, cpu=(curve(("n1",), 4.0, last=7110.0), curve(("n2",), until(3600), last=7110.0)))
    assert () == summed(make_record(nodes=("n1", "n2")), gone).silent_parts


def test_gpu_that_stopped_while_the_others_spin_is_silent() -> None:
    assert (SilentPart("n1", "1", 3600.0),) == gpus(g0=1.0, g1=until(3600, 0.95), g2=1.0).silent_parts
    assert () == gpus(g0=1.0, g1=until(3600, 0.89), g2=1.0).silent_parts
    assert () == gpus(g0=0.8, g1=until(3600, 0.95), g2=0.8).silent_parts


def test_gpus_of_a_silent_node_are_named_with_it() -> None:
    devices = [(node, "0", "") for node in ("n1", "n2")]
    measured = with_curves(
        with_totals(measure_nodes({"n1": 4.0, "n2": 4.0}), gpu_jobs=dict.fromkeys(devices, 1.0)),
        cpu=(curve(("n1",), 4.0), curve(("n2",), until(3600))),
        gpu_busy=(curve(devices[0], 1.0), curve(devices[1], until(3600, 1.0))),
    )
    assert (SilentPart("n2", "", 3600.0),) == summed(make_record(nodes=("n1", "n2")), measured).silent_parts


SLOW = SlowPart("n2", "", 0.5, 1.0, START, 600.0)


def test_slow_node_is_named_with_its_factor() -> None:
    finding = found(make_summary(slow_parts=(SLOW,)), "straggler")

    assert finding is not None
    assert (
        "A CPU limit held n2 back. Processes on n2 had a core for 50 % of the time in which they could run, those on "
        "other nodes for 100 %, for 10 min: the same work took 2.0 times as long there. If the others work in step "
        "with it, all of them waited."
    ) == finding.explanation
    assert (2.0, 600.0, 1.0) == tuple(finding.numbers[name] for name in ("factor", "slow_seconds", "slow_parts"))
    assert Severity.WARNING == finding.severity


def test_slow_gpu_is_named_with_its_factor() -> None:
    finding = found(make_summary(slow_parts=(SLOW._replace(gpu="3"),) * 4), "straggler")

    assert finding is not None
    assert (
        "GPU 3 of n2 was busy for 50 % of the time and the other GPUs for 100 %, for 10 min, and all did the same "
        "work: each step took 2.0 times as long."
    ) in finding.explanation
    assert "1 more of them was slow." in finding.explanation
    assert "data loader" in finding.advice


RUNNING = {"state": "RUNNING", "end_seconds": None}


def test_running_job_waits_now() -> None:
    now = SLOW._replace(since_seconds=START + 6600.0)
    slow, silent = (
        found(make_summary(slow_parts=(now,), silent_parts=(SilentPart("n3", "", 700.0),), record=RUNNING), rule)
        for rule in ("straggler", "part_stopped")
    )
    assert slow is not None
    assert silent is not None
    assert (Severity.CRITICAL, Severity.WARNING) == (slow.severity, silent.severity)
    assert "Node n3 did nothing in the last 11 min 40 s, while the others go on." == silent.explanation


@pytest.mark.parametrize(("ended", "severity"), [(6900.0, Severity.CRITICAL), (6899.0, Severity.WARNING)])
def test_running_job_that_was_slow_hours_ago_is_not_critical(ended: float, severity: Severity) -> None:
    # It has run for two hours; "now" is within the five minutes that are reported.
    part = SLOW._replace(since_seconds=START + ended - 600.0)
    finding = found(make_summary(slow_parts=(part,), record=RUNNING), "straggler")
    assert finding is not None
    assert severity == finding.severity


def test_oversubscribed_node_is_named_as_such() -> None:
    findings = all_findings(make_summary(oversubscribed_nodes=(SLOW,), record=RUNNING))

    (finding,) = [each for each in findings if each.rule in {"straggler", "node_oversubscribed"}]
    assert ("node_oversubscribed", Severity.WARNING) == (finding.rule, finding.severity)
    assert finding.explanation.startswith("Processes on n2 had a core for 50 % of the time in which they could run")
    assert {"factor": 2.0, "slow_seconds": 600.0, "slow_parts": 1.0}.items() <= finding.numbers.items()
    short = make_summary(oversubscribed_nodes=(SLOW._replace(seconds=299.0),))
    assert found(short, "node_oversubscribed") is None


@pytest.mark.parametrize(
    ("part", "is_found"),
    [
        (SLOW._replace(seconds=300.0), True),
        (SLOW._replace(seconds=299.9), False),
        (SLOW._replace(own_ratio=0.8), True),
        (SLOW._replace(own_ratio=0.801), False),
    ],
)
def test_edges_of_a_straggler(part: SlowPart, is_found: bool) -> None:
    assert is_found == (found(make_summary(slow_parts=(part,)), "straggler") is not None)


def left_by(n2_ended: tuple[Series, ...], *, again: float = 0.0) -> JobSummary:
    """Sum up a job of two hours whose second node has no values after an hour, or a while later."""
    measured = with_curves(
        with_totals(measure_nodes({"n1": 4.0, "n2": 4.0}), cpu={("n1",): 28_800.0, ("n2",): 14_400.0 + 4 * again}),
        cpu=(curve(("n1",), 4.0), curve(("n2",), 4.0, last=3600.0 + again)),
        ended=n2_ended,
    )
    return summed(make_record(nodes=("n1", "n2")), measured)


ENDED = curve(("n2",), 1.0, first=3600.0, last=3660.0)


def test_node_whose_last_task_ended_is_silent_until_the_end() -> None:
    summary = left_by((ENDED,))
    finding = found(summary, "part_stopped")

    assert (SilentPart("n2", "", 3600.0),) == summary.silent_parts
    assert finding is not None
    assert "Node n2 did nothing in the last 1 h, while the others worked on." == finding.explanation
    assert summary.coverage.is_good
    # 4 cores on one node all the time, and half of it on the other.
    assert [4.0, 2.0] == pytest.approx([node.mean_cores for node in summary.nodes])


@pytest.mark.parametrize(
    "summary", [left_by(()), left_by((ENDED,), again=600.0), left_by((Series(("n1",), ENDED.times, ENDED.values),))]
)
def test_node_whose_agent_fell_silent_is_not_measured(summary: JobSummary) -> None:
    assert (1.0 > summary.coverage.run_ratio, ()) == (True, summary.silent_parts)
    assert found(summary, "part_stopped") is None


@pytest.mark.parametrize(("seconds", "is_found"), [(600.0, True), (599.9, False)])
def test_edges_of_a_part_that_stopped(seconds: float, is_found: bool) -> None:
    summary = make_summary(silent_parts=(SilentPart("n1", "2", seconds),))
    assert is_found == (found(summary, "part_stopped") is not None)


def test_many_parts_that_stopped_are_counted() -> None:
    finding = found(make_summary(silent_parts=(SilentPart("n1", "2", 600.0),) * 5), "part_stopped")

    assert finding is not None
    assert finding.explanation.startswith("GPU 2 of n1 did nothing in the last 10 min; GPU 2 of n1 did nothing")
    assert finding.explanation.endswith("; and 2 more, while the others worked on.")


@pytest.mark.parametrize("rule", ["straggler", "node_oversubscribed", "part_stopped"])
@pytest.mark.parametrize(
    "changed",
    [
        {"record": {"suspended_seconds": 1}},
        # Accounting counts a suspension only when it is over.
        {"record": {"state": "SUSPENDED", "end_seconds": None}},
        {"coverage": summed(make_record()).coverage},
    ],
)
def test_suspended_or_unmeasured_job_has_no_such_finding(rule: str, changed: dict[str, Any]) -> None:
    parts: dict[str, Any] = {
        "slow_parts": (SLOW,),
        "oversubscribed_nodes": (SLOW,),
        "silent_parts": (SilentPart("n3", "", 700.0),),
    }
    assert found(make_summary(**parts), rule) is not None
    assert found(make_summary(**parts, **changed), rule) is None


def test_queue_and_refaults_are_summed_up() -> None:
    measured = with_totals(
        measure_nodes({"n1": 1.0, "n2": 1.0}),
        cpu_queue={("n1",): 1800.0, ("n2",): 3000.0},
        refaults={("n1", "file"): 7.2e6, ("n2", "file"): 7.2e5, ("n2", "anon"): 7200.0},
    )
    summary = summed(make_record(nodes=("n1", "n2")), measured)

    # 4,800 s of 2 * 7,200 + 4,800 s.
    assert 0.25 == summary.cpu.queue_ratio
    assert {"file": 1000.0, "anon": 1.0} == summary.memory.refaults_per_second
    assert summed(make_record(nodes=("n1", "n2")), measure_nodes({"n1": 1.0, "n2": 1.0})).cpu.queue_ratio is None


@pytest.mark.parametrize(("ratio", "is_found"), [(0.25, True), (0.249, False), (None, False)])
def test_threads_that_waited_are_found(ratio: float | None, is_found: bool) -> None:
    finding = found(make_summary(cpu={"queue_ratio": ratio}), "cpu_queued")
    assert is_found == (finding is not None)
    if finding:
        assert "Threads that could run had no core for 25 % of the time." == finding.explanation


def test_threads_of_an_idle_or_unmeasured_job_do_not_count_as_waiting() -> None:
    assert found(make_summary(busy=0.049, cpu={"queue_ratio": 0.5}), "cpu_queued") is None
    unmeasured = make_summary(cpu={"queue_ratio": 0.5}, coverage=summed(make_record()).coverage)
    assert found(unmeasured, "cpu_queued") is None


@pytest.mark.parametrize(
    ("rates", "severity"),
    [
        ({"anon": 1000.0}, Severity.WARNING),
        ({"anon": 999.9}, None),
        ({"file": 1000.0}, Severity.INFO),
        ({"file": 999.0, "anon": 1.0}, Severity.INFO),
        ({}, None),
    ],
)
def test_memory_that_is_too_small_is_found(rates: dict[str, float], severity: Severity | None) -> None:
    finding = found(make_summary(memory={"refaults_per_second": rates}), "memory_thrashing")

    assert severity == (finding.severity if finding else None)
    if finding:
        assert ("from swap" if "anon" in rates and "file" not in rates else "files again") in finding.explanation


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ({"anon": 2000.0, "file": 7000.0}, "fetched its memory back from swap, 2,000 pages per second"),
        ({"anon": 400.0, "file": 7000.0}, "read files again that the kernel had just dropped, 7,000 pages per second"),
    ],
)
def test_pages_that_are_counted_are_those_that_are_named(rates: dict[str, float], expected: str) -> None:
    finding = found(make_summary(memory={"refaults_per_second": rates}), "memory_thrashing")

    assert finding is not None
    assert expected in finding.explanation
