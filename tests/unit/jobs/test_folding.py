# SPDX-License-Identifier: Apache-2.0
"""One cause, one finding: what follows from another finding is folded under it, and has no advice of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.jobs.findings import fold, judge
from slurmscope.jobs.rule import Finding, Severity, Subject
from slurmscope.jobs.summary import JobSummary, NodeSummary
from tests.fakes.job_summaries import GIB, make_summary, with_cores, with_gpus, with_io, with_nodes


def tree(summary: JobSummary) -> dict[str, list[str]]:
    """Return the rules of the findings, with those that follow from each."""
    return {finding.rule: [other.rule for other in finding.consequences] for finding in judge(summary)}


def on_nodes(*parts: tuple[float, float]) -> JobSummary:
    """Make a job with 4 cores and 8 GiB on each node: so many busy cores, and so many bytes."""
    names = [f"n{index}" for index in range(len(parts))]
    summary = with_nodes(*(cores for cores, _ in parts), busy=sum(cores for cores, _ in parts) / (4 * len(parts)))
    nodes = tuple(
        NodeSummary(node=name, cpus=4.0, mean_cores=cores, working_peak_bytes=peak, limit_bytes=8 * GIB)
        for name, (cores, peak) in zip(names, parts, strict=True)
    )
    memory = replace(
        summary.memory, requested_bytes=8 * GIB * len(parts), working_peak_bytes=sum(peak for _, peak in parts)
    )
    return replace(summary, nodes=nodes, memory=memory, node_cpus=4.0, node_memory_bytes=8 * GIB)


PER_CORE = {"cpus": 16, "submit_line": "sbatch -c16 --mem-per-cpu=4G x"}


def per_core(needed_bytes: float) -> dict[str, float]:
    """Return the memory of a job with 4 GiB for each of 16 cores."""
    return {"requested_bytes": 64 * GIB, "working_peak_bytes": needed_bytes}


@pytest.mark.parametrize(
    ("summary", "expected"),
    [
        # The second node did nothing: of 16 GiB 6 GiB were used, and 4 of 8 cores.
        (on_nodes((4.0, 6 * GIB), (0.0, 0.0)), {"node_imbalance": ["memory_over_requested", "cpu_idle"]}),
        # The node that worked needed 1 of its 8 GiB: this would remain with one node.
        (on_nodes((4.0, GIB), (0.0, 0.0)), {"memory_over_requested": [], "node_imbalance": ["cpu_idle"]}),
        # The node that worked had 2 of its 4 cores busy.
        (on_nodes((2.0, 6 * GIB), (0.0, 0.0)), {"node_imbalance": ["memory_over_requested"], "cpu_idle": []}),
        # Two nodes of 4 cores would do for 8 cores on 4 nodes of which three are idle.
        (
            replace(on_nodes((4.0, 6 * GIB), *[(0.0, 0.0)] * 3), node_cpus=16.0, node_memory_bytes=32 * GIB),
            {"node_imbalance": ["memory_over_requested", "too_many_nodes", "cpu_idle"]},
        ),
        # One core worked: the others were idle, did less than a fair share.
        (
            with_cores(7000.0, 0.0, 0.0, 0.0, busy=0.25),
            {"serial_code": ["cpu_idle", "core_imbalance"]},
        ),
        # Two of four cores worked all the time: the other two were not needed.
        (with_cores(7200.0, 7200.0, 0.0, 0.0, busy=0.5), {"cpu_idle": ["core_imbalance"]}),
        # All were busy at times, two of them for half of it: divide the work better.
        (
            with_cores(7200.0, 7200.0, 3000.0, 3000.0, busy=0.71, cpu={"peak_cores": 4.0, "mean_cores": 2.84}),
            {"core_imbalance": ["cpu_idle"], "cpu_uneven_over_time": []},
        ),
        (
            with_cores(7200.0, 7200.0, 4300.0, 4300.0, busy=0.79, cpu={"peak_cores": 4.0, "mean_cores": 3.16}),
            {"core_imbalance": ["cpu_idle"]},
        ),
        # Four cores at times and none at others.
        (make_summary(busy=0.5, cpu={"peak_cores": 4.0}), {"cpu_uneven_over_time": ["cpu_idle"]}),
        # Two of four cores at times: even without pauses, two would be enough.
        (make_summary(busy=0.3, cpu={"peak_cores": 2.0}), {"cpu_idle": [], "cpu_uneven_over_time": []}),
        # Busy for an hour, then idle for an hour.
        (
            make_summary(busy=0.5, cpu={"peak_cores": 4.0, "idle_tail_seconds": 3600.0}),
            {"stopped_early": ["cpu_idle", "cpu_uneven_over_time"]},
        ),
        # Two of four cores for an hour, then idle: fewer cores would have done too.
        (
            make_summary(busy=0.25, cpu={"peak_cores": 2.0, "idle_tail_seconds": 3600.0}),
            {"stopped_early": ["cpu_uneven_over_time"], "cpu_idle": []},
        ),
        # A job that hangs reaches its time limit.
        (
            make_summary(record={"state": "TIMEOUT"}, cpu={"idle_tail_seconds": 3600.0}),
            {"stopped_early": ["timed_out"]},
        ),
        (make_summary(record={"state": "TIMEOUT"}), {"timed_out": []}),
        (
            make_summary(record={"state": "NODE_FAIL"}, cpu={"idle_tail_seconds": 3600.0}),
            {"node_failed": ["stopped_early"]},
        ),
        # 4 GiB for each of 16 cores, of which 2 worked and needed 6 GiB: with 2 cores it would have had 8 GiB.
        (
            make_summary(record=PER_CORE, busy=2 / 16, memory=per_core(6 * GIB)),
            {"cpu_idle": ["memory_over_requested"]},
        ),
        # It needed 2 GiB.
        (
            make_summary(record=PER_CORE, busy=2 / 16, memory=per_core(2 * GIB)),
            {"memory_over_requested": [], "cpu_idle": []},
        ),
        # The used GPU of two was busy; then at a tenth.
        (with_gpus(4, held_idle=3, mean_utilization=0.24), {"gpu_held_without_process": ["gpu_low"]}),
        (with_gpus(2, held_idle=1, mean_utilization=0.05), {"gpu_held_without_process": [], "gpu_low": []}),
        (with_gpus(2, held_idle=2, mean_utilization=0.0), {"gpu_held_without_process": ["gpu_low"]}),
        (with_gpus(4, held_idle=1, mean_utilization=0.0), {"gpu_idle": ["gpu_held_without_process"]}),
        # Said in the sentence of the finding itself.
        (make_summary(record={"state": "OUT_OF_MEMORY"}, memory={"growth_ratio": 3.0}), {"oom_kill": []}),
        (
            with_io(peak_open_files=5000.0, read_bytes=GIB, write_bytes=0.0, metadata_operations=1e6),
            {"small_files": ["metadata_storm"]},
        ),
    ],
)  # fmt: skip
def test_what_follows_from_a_finding_is_folded_under_it(summary: JobSummary, expected: dict[str, list[str]]) -> None:
    assert expected == tree(summary)


def test_consequence_has_no_advice_of_its_own() -> None:
    (finding,) = judge(on_nodes((4.0, 6 * GIB), (0.0, 0.0)))

    assert "#SBATCH --nodes=1" == finding.suggestion
    assert [("", "")] * 2 == [(other.advice, other.suggestion) for other in finding.consequences]


def test_growth_is_a_sentence_of_the_finding_about_exhausted_memory() -> None:
    node = NodeSummary(node="n1", working_peak_bytes=7.8 * GIB, limit_bytes=8 * GIB)
    near = make_summary(memory={"growth_ratio": 2.0, "working_peak_bytes": 7.8 * GIB}, nodes=(node,))
    killed = make_summary(record={"state": "OUT_OF_MEMORY"}, memory={"growth_ratio": 2.0})

    assert ["memory_near_limit"] == [finding.rule for finding in judge(near)]
    for summary in (near, killed):
        assert "Its memory grew until the end, to 2 times that of the middle" in judge(summary)[0].explanation
    flat = replace(killed, memory=replace(killed.memory, growth_ratio=1.29))
    assert "grew" not in judge(flat)[0].explanation


def test_time_out_of_a_job_that_hung_is_critical() -> None:
    (finding,) = judge(make_summary(record={"state": "TIMEOUT"}, cpu={"idle_tail_seconds": 720.0}))

    assert ("stopped_early", Severity.CRITICAL) == (finding.rule, finding.severity)


@pytest.mark.parametrize(
    ("summary", "is_fewer", "is_waiting"),
    [
        # One core at 24 % cannot be fewer.
        (make_summary(busy=0.24, record={"cpus": 1}, cpu={"peak_cores": 1.0}), False, True),
        # All four are busy at times.
        (make_summary(busy=0.79, cpu={"peak_cores": 4.0}), False, True),
        (make_summary(busy=0.5, cpu={"peak_cores": 2.0}), True, True),
        # Without a measured peak, and on several nodes, it is not known how many would do.
        (make_summary(busy=0.5, cpu={"peak_cores": None}), True, True),
    ],
)
def test_advice_about_idle_cores_can_be_followed(summary: JobSummary, is_fewer: bool, is_waiting: bool) -> None:
    (finding,) = (each for each in judge(summary) if each.rule == "cpu_idle")

    assert is_fewer == ("Request as many cores" in finding.advice)
    assert is_waiting == ("waits for" in finding.advice)
    assert not is_waiting or is_fewer or not finding.suggestion


def test_few_cores_less_are_not_suggested() -> None:
    # 13 of 16 cores at once: less than a fifth could be saved.
    record = {"cpus": 16, "submit_line": "sbatch -c16 --mem=8G x"}
    at_13 = judge(make_summary(record=record, busy=0.7, cpu={"peak_cores": 13.0}))[0]
    at_12 = judge(make_summary(record=record, busy=0.7, cpu={"peak_cores": 12.0}))[0]

    assert ("", "#SBATCH --cpus-per-task=12") == (at_13.suggestion, at_12.suggestion)


def test_uneven_memory_of_nodes_has_its_own_advice() -> None:
    # 24 of 32 GiB on one node, 1 GiB on the other: --mem=29G would make no difference.
    nodes = tuple(
        NodeSummary(node=name, cpus=4.0, mean_cores=4.0, working_peak_bytes=peak, limit_bytes=32 * GIB)
        for name, peak in (("n0", 24 * GIB), ("n1", GIB))
    )
    memory = {"requested_bytes": 64 * GIB, "working_peak_bytes": 25 * GIB}
    summary = make_summary(record={"node_count": 2, "cpus": 8, "nodes": ("n0", "n1")}, nodes=nodes, memory=memory)

    (finding,) = (each for each in judge(summary) if each.rule == "memory_over_requested")
    assert "" == finding.suggestion
    assert "Divide the data more evenly" in finding.advice


def test_lines_for_nodes_and_for_memory_per_node_do_not_contradict() -> None:
    # 8 nodes with 2 tasks and 4 GiB each, of which 1 GiB was needed: on one node the tasks need all of 8 GiB.
    record = {"node_count": 8, "cpus": 16, "submit_line": "sbatch --nodes=8 --ntasks-per-node=2 --mem=4G x.sh"}
    summary = make_summary(record=record, memory={"requested_bytes": 32 * GIB, "working_peak_bytes": 8 * GIB})

    lines = {finding.rule: finding.suggestion for finding in judge(summary)}
    assert {"memory_over_requested": "#SBATCH --mem=1280M", "too_many_nodes": ""} == lines


def make_finding(rule: str, severity: Severity) -> Finding:
    return Finding(rule=rule, severity=severity, subject=Subject.CPU, title=rule, explanation="x.", advice="Do it.")


def test_chain_of_causes_ends_at_the_first() -> None:
    found = [make_finding("c", Severity.CRITICAL), make_finding("b", Severity.INFO), make_finding("a", Severity.INFO)]

    (finding,) = fold(found, {"c": "b", "b": "a"})

    assert ("a", ["c", "b"]) == (finding.rule, [other.rule for other in finding.consequences])
    # The cause of a warning is a warning; whether it is critical, its own rule says.
    assert Severity.WARNING == finding.severity
