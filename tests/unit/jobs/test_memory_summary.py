# SPDX-License-Identifier: Apache-2.0
"""Slurm's MaxRSS stands for a job only where no two of its tasks ran side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from slurmscope.jobs.findings import judge
from slurmscope.jobs.record import MAX_STEPS, StepRecord
from slurmscope.jobs.series import Measured, Series
from slurmscope.jobs.summarize import summarize
from slurmscope.jobs.summary import MemorySummary
from tests.fakes.reports import GIB, START, make_record

MIB = float(1 << 20)
BATCH = StepRecord(name="batch", state="COMPLETED", start_seconds=START, end_seconds=START + 7200, tasks=1)


def step(number: int, start: int | None, end: int | None) -> StepRecord:
    start_seconds, end_seconds = (None if moment is None else START + moment for moment in (start, end))
    return StepRecord(
        name=str(number), state="COMPLETED", start_seconds=start_seconds, end_seconds=end_seconds, tasks=1,
        max_rss_bytes=3 * GIB,
    )  # fmt: skip


def memory_of(*steps: StepRecord, node_count: int = 1) -> MemorySummary:
    record = make_record(steps=(BATCH, *steps), node_count=node_count, memory_bytes=64 * GIB)
    return summarize(record, Measured(), now_seconds=START + 7200.0).memory


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((), True),
        ((step(0, 0, 7200),), True),
        ((step(0, 0, 100), step(1, 100, 200)), True),
        ((step(1, 100, 200), step(0, 0, 100)), True),
        ((step(0, 0, 101), step(1, 100, 200)), False),
        ((step(0, 0, 100), step(1, 0, 100)), False),
        # One that runs has no end yet; one without times may have run at any time.
        ((step(0, 0, None), step(1, 100, 200)), False),
        ((step(0, None, None), step(1, 100, 200)), False),
        ((step(0, None, None),), True),
        ((replace(step(0, 0, 100), tasks=None),), True),
        ((replace(step(0, 0, 100), tasks=2),), False),
        # Parts of a heterogeneous step run side by side.
        ((replace(step(0, 0, 100), name="0+0"), replace(step(0, 0, 100), name="0+1")), False),
    ],
)
def test_max_rss_stands_for_steps_that_ran_in_turn(steps: tuple[StepRecord, ...], expected: bool) -> None:
    assert expected is memory_of(*steps).slurm_peak_is_whole


def test_max_rss_of_a_job_on_two_nodes_is_of_one_of_them() -> None:
    assert not memory_of(step(0, 0, 100), node_count=2).slurm_peak_is_whole


def test_max_rss_does_not_stand_for_a_job_of_which_steps_may_be_left_out() -> None:
    in_turn = [step(number, number, number + 1) for number in range(MAX_STEPS)]

    assert memory_of(*in_turn[:-2]).slurm_peak_is_whole
    assert not memory_of(*in_turn[:-1]).slurm_peak_is_whole


def test_memory_of_one_of_sixteen_steps_is_not_suggested() -> None:
    # 16 x 3 GiB are 48 of 64 GiB.
    side_by_side = tuple(step(number, 10, 7190) for number in range(16))
    record = make_record(cpus=16, steps=(BATCH, *side_by_side), memory_bytes=64 * GIB, cpu_seconds=16 * 7000.0)
    summary = summarize(record, Measured(), now_seconds=START + 7200.0)

    assert "memory_over_requested" not in {finding.rule for finding in judge(summary)}
    assert summary.memory.best_peak_bytes is None


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (MemorySummary(working_peak_bytes=2.0, slurm_peak_bytes=50.0, charged_peak_bytes=51.0), 50.0),
        (MemorySummary(working_peak_bytes=2.0, slurm_peak_bytes=50.0, slurm_peak_is_whole=False), 50.0),
        (MemorySummary(working_peak_bytes=2.0, slurm_peak_bytes=1.0), 2.0),
        (MemorySummary(slurm_peak_bytes=1.0, charged_peak_bytes=51.0), 1.0),
        (MemorySummary(slurm_peak_bytes=1.0, slurm_peak_is_whole=False, charged_peak_bytes=51.0), 51.0),
        # Of an OOM-killed job the highest of all.
        (MemorySummary(slurm_peak_bytes=60.0, charged_peak_bytes=51.0, oom_kills=1), 60.0),
        (MemorySummary(working_peak_bytes=70.0, charged_peak_bytes=51.0, oom_kills=1), 70.0),
        (MemorySummary(working_peak_bytes=2.0, charged_peak_bytes=51.0, is_out_of_memory=True), 51.0),
        (MemorySummary(), None),
    ],
)
def test_need_is_no_less_than_what_slurm_saw_in_use(memory: MemorySummary, expected: float | None) -> None:
    assert expected == memory.best_peak_bytes


def peaks(state: str = "COMPLETED", record: dict[str, Any] | None = None, **metrics: float) -> MemorySummary:
    """Summarize a job of two hours on one node with these constant curves and totals."""
    times = tuple(float(START + moment) for moment in range(0, 7201, 60))
    curves = {
        name: (Series(("n1",), times, tuple([value] * len(times))),)
        for name, value in metrics.items()
        if name in {"memory_anon", "memory_shared", "memory_rss"}
    }
    totals: dict[str, dict[tuple[str, ...], float]] = {
        name: {("n1",): value} for name, value in metrics.items() if name not in curves
    }
    made = make_record(state=state, memory_bytes=64 * GIB, **(record or {}))
    return summarize(made, Measured(curves=curves, totals=totals), now_seconds=START + 7200.0).memory


def test_node_without_memory_controller_has_the_memory_of_its_processes() -> None:
    memory = peaks(memory_rss=3.0 * GIB)

    assert 3 * GIB == memory.working_peak_bytes
    assert memory.coverage.is_good


def test_memory_controller_is_preferred_to_processes() -> None:
    assert 2 * GIB == peaks(memory_rss=3.0 * GIB, memory_anon=1.5 * GIB, memory_shared=0.5 * GIB).working_peak_bytes


@pytest.mark.parametrize(("state", "kills"), [("OUT_OF_MEMORY", 0.0), ("OUT_OF_MEMORY", 1.0), ("FAILED", 1.0)])
def test_oom_killed_job_has_the_peak_of_the_kernel(state: str, kills: float) -> None:
    # Of the file cache in the last sample, nothing was left to reclaim.
    memory = peaks(state, memory_anon=0.1 * GIB, memory_peak=64.0 * GIB, memory_file=60.0 * GIB, oom_kills=kills)

    assert (64 * GIB, 1.0) == (memory.best_peak_bytes, memory.ratio)


def test_job_that_was_oom_killed_after_the_last_reading_needed_its_limit() -> None:
    # 30 GiB at the last reading; what came then took it to the limit, which is a bit below the request here.
    late: dict[str, Any] = {"memory_anon": 30.0 * GIB, "memory_peak": 30.0 * GIB, "memory_peak_final": 0.0}

    assert 64 * GIB == peaks("OUT_OF_MEMORY", **late).best_peak_bytes
    assert 63 * GIB == peaks("OUT_OF_MEMORY", **late, memory_limit=63.0 * GIB).best_peak_bytes
    for state, final in (("FAILED", 0.0), ("OUT_OF_MEMORY", 1.0)):
        assert 30 * GIB == peaks(state, **(late | {"memory_peak_final": final})).best_peak_bytes


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        # The limit that was reached may be that of the step.
        ({"steps": (replace(BATCH, name="0", request="--mem=32G"),)}, 30 * GIB),
        ({"steps": (replace(BATCH, name="0", request="--nodes=1 --mem-per-cpu=4G"),)}, 30 * GIB),
        # Before Slurm 21.08, what steps request is not known.
        ({"submit_line": ""}, 30 * GIB),
        # Of two nodes, one reached it.
        ({"nodes": ("n1", "n2"), "node_count": 2}, None),
    ],
)
def test_limit_counts_only_where_the_job_must_have_reached_it(record: dict[str, Any], expected: float | None) -> None:
    late: dict[str, Any] = {"memory_anon": 30.0 * GIB, "memory_peak": 30.0 * GIB, "memory_peak_final": 0.0}
    assert expected == peaks("OUT_OF_MEMORY", record, **late).best_peak_bytes


def test_job_that_was_not_killed_does_not_need_its_file_cache() -> None:
    memory = peaks(memory_anon=2.0 * GIB, memory_peak=64.0 * GIB, memory_file=62.0 * GIB, oom_kills=0.0)
    assert (2 * GIB, 2 * GIB, True) == (memory.best_peak_bytes, memory.working_peak_bytes, memory.is_bounded)


def test_peak_that_the_file_cache_does_not_explain_was_needed() -> None:
    # 1,000 MiB that were touched between two samples; shared memory is no cache, whatever the kernel counts it as.
    assert 1006 * MIB == peaks(memory_anon=3.0 * MIB, memory_peak=1006.0 * MIB, memory_file=2.0 * MIB).best_peak_bytes
    shared = peaks(memory_anon=1.0 * GIB, memory_shared=5.0 * GIB, memory_file=5.0 * GIB, memory_peak=9.0 * GIB)
    assert 9 * GIB == shared.best_peak_bytes
    # Memory of the kernel for the job: 40 MiB above what the samples explain.
    kernel = peaks(memory_anon=1024.0 * MIB, memory_peak=1564.0 * MIB, memory_file=500.0 * MIB)
    assert 1064 * MIB == kernel.best_peak_bytes
    assert 1064 * MIB == peaks(memory_anon=1024.0 * MIB, memory_peak=1064.0 * MIB).best_peak_bytes
    # Up to 64 MiB.
    most = peaks(memory_anon=1024.0 * MIB, memory_peak=1188.0 * MIB, memory_file=100.0 * MIB)
    assert 1088 * MIB == most.best_peak_bytes


def test_samples_alone_are_no_bound_on_the_need() -> None:
    assert not peaks(memory_anon=2.0 * GIB).is_bounded


@pytest.mark.parametrize(
    ("state", "final", "expected"), [("COMPLETED", 1.0, True), ("COMPLETED", 0.0, False), ("RUNNING", 0.0, True)]
)
def test_peak_that_was_not_read_at_the_end_is_no_bound_on_the_need(state: str, final: float, expected: bool) -> None:
    memory = peaks(state, memory_anon=2.0 * GIB, memory_peak=2.0 * GIB, memory_peak_final=final)
    assert (expected, 2 * GIB) == (memory.is_bounded, memory.best_peak_bytes)


def test_report_has_one_needed_memory() -> None:
    # Samples saw 249 MiB, Slurm 291, the kernel 504.
    steps = (StepRecord(name="batch", state="COMPLETED", max_rss_bytes=291 * int(MIB)),)
    record = make_record(memory_bytes=64 * GIB, steps=steps)
    times = tuple(float(START + moment) for moment in range(0, 7201, 60))
    curve = Series(("n1",), times, tuple([249.0 * MIB] * len(times)))
    for kernel, expected in ((504.0, 504), (260.0, 291)):
        measured = Measured(curves={"memory_anon": (curve,)}, totals={"memory_peak": {("n1",): kernel * MIB}})
        summary = summarize(record, measured, now_seconds=START + 7200.0)
        assert expected * MIB == summary.memory.best_peak_bytes == summary.nodes[0].working_peak_bytes


def test_two_nodes_needed_together_what_one_task_used() -> None:
    # Samples saw 249 MiB on each node, Slurm a task of 600 MiB.
    steps = (StepRecord(name="0", state="COMPLETED", tasks=2, max_rss_bytes=600 * int(MIB)),)
    record = make_record(nodes=("n1", "n2"), node_count=2, memory_bytes=64 * GIB, steps=steps)
    times = tuple(float(START + moment) for moment in range(0, 7201, 60))
    curves = tuple(Series((node,), times, (249.0 * MIB,) * len(times)) for node in record.nodes)
    summary = summarize(record, Measured(curves={"memory_anon": curves}), now_seconds=START + 7200.0)

    assert 600 * MIB == summary.memory.best_peak_bytes == summary.memory.working_peak_bytes
    assert [249 * MIB] * 2 == [node.working_peak_bytes for node in summary.nodes]


@pytest.mark.parametrize("nodes", [("n1",), ("n1", "n2")])
def test_node_that_needed_nothing_did_not_need_a_byte(nodes: tuple[str, ...]) -> None:
    times = tuple(float(START + moment) for moment in range(0, 7201, 60))
    curves = tuple(
        Series((node,), times, (amount,) * len(times)) for node, amount in zip(nodes, (0.0, MIB), strict=False)
    )
    record = make_record(nodes=nodes, node_count=len(nodes), steps=())
    summary = summarize(record, Measured(curves={"memory_anon": curves}), now_seconds=START + 7200.0)

    assert [0.0, MIB][: len(nodes)] == [node.working_peak_bytes for node in summary.nodes]


def killed(values: Sequence[float], **record: Any) -> MemorySummary:
    """Summarize a job of three hours at most that was killed after two, with a point every ten minutes."""
    times = tuple(float(START + 600 * index) for index in range(len(values)))
    known: dict[str, Any] = {"state": "OUT_OF_MEMORY", "memory_bytes": 64 * GIB, "time_limit_seconds": 3 * 3600}
    made = make_record(**(known | record))
    curve = Series(("n1",), times, tuple(values))
    measured = Measured(curves={"memory_anon": (curve,)}, totals={"memory_peak": {("n1",): max(values, default=0.0)}})
    return summarize(made, measured, now_seconds=START + 7200.0).memory


def test_growing_memory_is_continued_to_the_time_limit() -> None:
    # 1 GiB more every 10 minutes, 13 GiB at the end; of 3 hours the job ran 2, so 6 GiB more.
    grown = [float(1 + n) * GIB for n in range(13)]
    assert 19 * GIB == pytest.approx(killed(grown).expected_bytes)
    # Two hours are a tenth of 20: 18 hours of 6 GiB more.
    assert 121 * GIB == pytest.approx(killed(grown, time_limit_seconds=20 * 3600).expected_bytes)


def test_memory_of_the_node_that_was_fullest_at_the_end_is_continued() -> None:
    # 13 GiB at the end, 1 GiB more every 10 minutes, and an hour left; the other node always needed 12.5 GiB.
    times = tuple(float(START + 600 * index) for index in range(13))
    curves = (
        Series(("n1",), times, tuple(float(1 + n) * GIB for n in range(13))),
        Series(("n2",), times, (12.5 * GIB,) * 13),
    )
    record = make_record(
        state="OUT_OF_MEMORY", nodes=("n1", "n2"), node_count=2, memory_bytes=64 * GIB, time_limit_seconds=3 * 3600
    )
    summary = summarize(record, Measured(curves={"memory_anon": curves}), now_seconds=START + 7200.0)

    assert 19 * GIB == pytest.approx(summary.memory.expected_bytes)


@pytest.mark.parametrize(
    "values",
    [
        [GIB] * 13,
        [float(1 + n) * GIB for n in range(9)],
        # Noise of a tenth, which rises a little.
        [(10 + 0.9 * (n % 2) + 0.02 * n) * GIB for n in range(13)],
        # One jump at the end.
        [*[GIB] * 12, 8 * GIB],
        # Steady, but by a twentieth only.
        [(10 + 0.04 * n) * GIB for n in range(13)],
    ],
)
def test_memory_without_steady_growth_is_not_continued(values: list[float]) -> None:
    assert killed(values).expected_bytes is None


@pytest.mark.parametrize(
    "record",
    [
        {"time_limit_seconds": None},
        {"time_limit_seconds": 7200},
        {"state": "COMPLETED"},
        # Two hours of a day and more say little about the rest.
        {"time_limit_seconds": 21 * 3600},
    ],
)
def test_memory_is_continued_only_up_to_a_near_time_limit(record: dict[str, Any]) -> None:
    assert killed([float(1 + n) * GIB for n in range(13)], **record).expected_bytes is None
