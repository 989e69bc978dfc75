# SPDX-License-Identifier: Apache-2.0
"""Accounting and measurements become a summary; every expected number is worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from slurmscope.core.tres import Gres
from slurmscope.jobs.record import StepRecord
from slurmscope.jobs.series import Measured, Series
from slurmscope.jobs.summary import Coverage, UsedShare
from tests.fakes.measured import STEP, curve, measure_nodes, summed, with_curves, with_totals
from tests.fakes.reports import GIB, START, make_record

NOW = START + 7200.0
TWO: dict[str, Any] = {"nodes": ("n1", "n2"), "node_count": 2, "cpus": 8, "steps": ()}
GPUS = (Gres(name="gpu", model="h200", count=4),)


def test_finished_job_on_one_node_is_summed_up() -> None:
    summary = summed(make_record(cpu_seconds=14000.0), measure_nodes({"n1": 2.0}))

    good = Coverage(nodes=1, nodes_measured=1, run_ratio=1.0)
    assert 7200.0 == summary.run_seconds
    assert UsedShare(requested=86400, used=7200.0) == summary.time
    assert UsedShare(requested=28800.0, used=14400.0, coverage=good) == summary.cpu.time
    assert 0.5 == summary.cpu.time.ratio
    assert (2.0, 2.0, 0.0) == (summary.cpu.mean_cores, summary.cpu.peak_cores, summary.cpu.idle_tail_seconds)
    assert pytest.approx(12960.0) == summary.cpu.user_seconds
    assert pytest.approx(1440.0) == summary.cpu.system_seconds
    assert pytest.approx(1.1e9) == summary.memory.working_peak_bytes
    assert (8 * GIB, 0.5 * GIB) == (summary.memory.requested_bytes, summary.memory.slurm_peak_bytes)
    assert 1.0 == summary.memory.growth_ratio
    assert good == summary.coverage == summary.memory.coverage


def test_measured_cpu_time_counts_where_all_nodes_were_measured() -> None:
    measured = measure_nodes({"n1": 2.0})

    assert 14400.0 == summed(make_record(cpu_seconds=100.0, state="TIMEOUT"), measured).cpu.time.used
    # A fork storm: Slurm counts processes twice.
    assert 14400.0 == summed(make_record(cpu_seconds=23000.0), measured).cpu.time.used
    assert 14400.0 == summed(make_record(cpu_seconds=14400.0001), measured).cpu.time.used


def test_cpu_time_after_the_last_sample_is_that_of_slurm() -> None:
    # 4 cores for the last minute: up to 240 s more than 14,280 s.
    measured = measure_nodes({"n1": 2.0}, seconds=7140.0)

    assert UsedShare(requested=28800.0, used=14400.0) == summed(make_record(cpu_seconds=14400.0), measured).cpu.time
    assert 14280.0 == summed(make_record(cpu_seconds=14521.0), measured).cpu.time.used


def test_rounding_does_not_drop_a_node_from_what_was_requested() -> None:
    # One of two nodes was measured, and did everything: 14,400 s of 8 cores x 7,200 s.
    measured = measure_nodes({"n1": 2.0})
    for accounted in (14400.0, 14399.9999, 14400.0001):
        time = summed(make_record(**TWO, cpu_seconds=accounted), measured).cpu.time
        assert (57600.0, accounted, None) == (time.requested, time.used, time.coverage)
    # Slurm missed most of it.
    measured = with_totals(measured, cores={("n1",): 4.0})
    assert 28800.0 == summed(make_record(**TWO, cpu_seconds=9.0), measured).cpu.time.requested


def test_running_job_is_summed_up_until_now_by_its_nodes_alone() -> None:
    record = make_record(state="RUNNING", end_seconds=None, cpu_seconds=99999.0)
    summary = summed(record, measure_nodes({"n1": 4.0}, seconds=3600.0), START + 3600.0)

    assert 3600.0 == summary.run_seconds
    assert (14400.0, 14400.0) == (summary.cpu.time.requested, summary.cpu.time.used)


def test_node_that_stopped_reporting_is_compared_with_its_measured_time() -> None:
    record = make_record(state="RUNNING", end_seconds=None)
    summary = summed(record, measure_nodes({"n1": 4.0}, seconds=3600.0))

    assert UsedShare(requested=14400.0, used=14400.0, coverage=summary.coverage) == summary.cpu.time
    assert (4.0, 4.0) == (summary.cpu.mean_cores, summary.nodes[0].mean_cores)
    # 3,600 s and two steps of 30 s, of 7,200 s.
    assert pytest.approx(3660 / 7200) == summary.coverage.run_ratio
    assert not summary.coverage.is_good
    assert summary.cpu.idle_tail_seconds is None


def test_several_nodes_are_added_up() -> None:
    measured = with_totals(
        measure_nodes({"n1": 4.0, "n2": 1.0}),
        cores={("n1",): 6.0, ("n2",): 2.0},
        memory_peak={("n1",): 3e9, ("n2",): 2e9},
        memory_file={("n1",): 2.5e9, ("n2",): 2e9},
        memory_limit={("n1",): 6e9, ("n2",): 2e9},
        read={("n1",): 5.0, ("n2",): 7.0},
        write={("n1",): 1.0, ("n2",): 2.0},
        reads={("n1",): 3.0, ("n2",): 4.0},
        writes={("n1",): 8.0, ("n2",): 9.0},
        mean_open_files={("n1",): 10.0, ("n2",): 20.0},
        program_threads={("n1", "relax"): 6.0, ("n2", "relax"): 2.0, ("n2", "sh"): 1.0},
        oom_kills={("n1",): 0.0, ("n2",): 0.0},
        uses_scratch={("n1",): 0.0, ("n2",): 1.0},
    )
    measured = with_curves(
        measured,
        open_files=(curve(("n1",), 4.0), curve(("n2",), lambda offset: 9.0 if offset == 600.0 else 2.0)),
        running_threads=(curve(("n1",), 3.0), curve(("n2",), 1.0)),
    )
    summary = summed(make_record(**TWO, cpu_seconds=None), measured)

    assert (57600.0, 36000.0) == (summary.cpu.time.requested, summary.cpu.time.used)
    assert (5.0, 5.0) == (summary.cpu.mean_cores, summary.cpu.peak_cores)
    assert pytest.approx(2.2e9) == summary.memory.working_peak_bytes
    assert (5e9, 8e9, 0) == (summary.memory.charged_peak_bytes, summary.memory.limit_bytes, summary.memory.oom_kills)
    assert (12.0, 3.0, 7.0, 17.0) == (
        summary.io.read_bytes, summary.io.write_bytes, summary.io.reads, summary.io.writes
    )  # fmt: skip
    assert (13.0, 30.0, True) == (summary.io.peak_open_files, summary.io.mean_open_files, summary.io.uses_scratch)
    assert {"relax": 8.0, "sh": 1.0} == summary.program_threads
    assert 4.0 == summary.mean_running_threads
    assert [("n1", 6.0, 4.0), ("n2", 2.0, 1.0)] == [(n.node, n.cpus, n.mean_cores) for n in summary.nodes]


def test_measured_part_is_compared_with_the_allocation_on_the_measured_nodes() -> None:
    measured = with_totals(measure_nodes({"n1": 2.0}), read={("n1",): 5.0}, oom_kills={("n1",): 0.0})
    summary = summed(make_record(**TWO, cpu_seconds=None), measured)

    partial = Coverage(nodes=2, nodes_measured=1, run_ratio=1.0)
    assert UsedShare(requested=28800.0, used=14400.0, coverage=partial) == summary.cpu.time
    assert not summary.coverage.is_good
    unknown = (
        summary.cpu.mean_cores, summary.cpu.peak_cores, summary.cpu.idle_tail_seconds, summary.cpu.user_seconds,
        summary.memory.working_peak_bytes, summary.memory.growth_ratio, summary.memory.oom_kills,
        summary.io.read_bytes, summary.io.uses_scratch, summary.memory.best_peak_bytes,
    )  # fmt: skip
    assert {None} == set(unknown)
    assert [5.0, None] == [node.read_bytes for node in summary.nodes]
    assert [1.0, 0.0] == [node.run_ratio for node in summary.nodes]


def test_accounting_speaks_for_the_whole_job_where_a_node_is_silent() -> None:
    measured = measure_nodes({"n1": 2.0})

    assert (
        UsedShare(requested=57600.0, used=20000.0) == summed(make_record(**TWO, cpu_seconds=20000.0), measured).cpu.time
    )
    # Less than the measured node alone did: accounting missed something.
    low = summed(make_record(**TWO, cpu_seconds=9000.0), measured).cpu.time
    assert (28800.0, 14400.0) == (low.requested, low.used)


def test_efficiency_is_not_known_where_it_is_not_known_what_the_measured_nodes_gave() -> None:
    summary = summed(make_record(**(TWO | {"cpus": 7}), cpu_seconds=None), measure_nodes({"n1": 2.0}))

    assert (None, 14400.0) == (summary.cpu.time.requested, summary.cpu.time.used)
    assert summary.cpu.time.ratio is None


def test_cores_that_accounting_does_not_have_come_from_the_node() -> None:
    measured = with_totals(measure_nodes({"n1": 2.0}), cores={("n1",): 3.0})
    summary = summed(make_record(cpus=0, cpu_seconds=None), measured)

    assert [3.0] == [node.cpus for node in summary.nodes]
    assert (21600.0, None) == (summary.cpu.time.requested, summary.cpu.cores_used)


@pytest.mark.parametrize(
    "changed",
    [{"array_job_id": 4000, "array_task_id": 7}, {"het_job_id": 4710, "het_offset": 1}],
)
def test_array_task_and_part_of_a_heterogeneous_job_are_jobs_of_their_own(changed: dict[str, Any]) -> None:
    summary = summed(make_record(**changed), measure_nodes({"n1": 2.0}))

    assert 0.5 == summary.cpu.time.ratio


def test_requeued_run_has_only_what_was_measured_in_its_own_time() -> None:
    second = make_record(start_seconds=START + 3600, end_seconds=START + 7200, cpu_seconds=None, restarts=1)
    both = curve(("n1",), lambda offset: 4.0 if offset < 3600 else 1.0)
    summary = summed(second, Measured(curves={"cpu": (both,)}, totals={"cpu": {("n1",): 3600.0}}))

    assert (3600.0, 1.0, 0.25) == (summary.run_seconds, summary.cpu.peak_cores, summary.cpu.time.ratio)


def test_job_shorter_than_a_sample_has_what_accounting_knows() -> None:
    summary = summed(make_record(end_seconds=START + 5, cpu_seconds=15.0))

    assert 5.0 == summary.run_seconds
    assert UsedShare(requested=20.0, used=15.0) == summary.cpu.time
    assert (3.0, None) == (summary.cpu.mean_cores, summary.cpu.peak_cores)
    assert (0.5 * GIB, 1 / 16) == (summary.memory.best_peak_bytes, summary.memory.ratio)
    assert Coverage(nodes=1, nodes_measured=0, run_ratio=0.0) == summary.coverage


def test_last_numbers_of_a_short_job_count_without_a_curve() -> None:
    summary = summed(make_record(end_seconds=START + 5, cpu_seconds=None), Measured(totals={"cpu": {("",): 10.0}}))

    assert (20.0, 10.0) == (summary.cpu.time.requested, summary.cpu.time.used)
    assert Coverage(nodes=1, nodes_measured=1, run_ratio=0.0) == summary.coverage


def test_nothing_known_is_none_and_not_zero() -> None:
    record = make_record(
        cpu_seconds=0.0, memory_bytes=0, steps=(StepRecord(name="batch", state="FAILED", max_rss_bytes=0),)
    )
    summary = summed(record)

    unknown = (
        summary.cpu.time.used, summary.cpu.mean_cores, summary.memory.requested_bytes, summary.memory.slurm_peak_bytes,
        summary.memory.oom_kills, summary.gpu.mean_utilization, summary.gpu.held_idle, summary.gpu.peak_memory_bytes,
        summary.io.reads, summary.io.peak_open_files, summary.mean_running_threads, summary.nodes[0].mean_cores,
    )  # fmt: skip
    assert {None} == set(unknown)


@pytest.mark.parametrize(
    "changed",
    [
        {"start_seconds": None, "end_seconds": None, "state": "PENDING"},
        {"end_seconds": None, "state": "PENDING"},
        {"end_seconds": START, "state": "CANCELLED"},
        {"end_seconds": START - 9, "state": "CANCELLED"},
    ],
)
def test_job_that_never_started_ran_for_no_time(changed: dict[str, Any]) -> None:
    summary = summed(make_record(**changed), measure_nodes({"n1": 2.0}))

    assert 0.0 == summary.run_seconds
    assert UsedShare() == summary.cpu.time
    assert () == summary.nodes


@pytest.mark.parametrize(("steps", "expected"), [((1, 1), True), ((1, 4), False)])
def test_max_rss_stands_for_the_job_when_there_was_one_task(steps: tuple[int, ...], expected: bool) -> None:
    records = tuple(
        StepRecord(
            name=str(index),
            state="COMPLETED",
            start_seconds=START + index,
            end_seconds=START + index + 1,
            tasks=tasks,
            max_rss_bytes=100 * (index + 1),
        )
        for index, tasks in enumerate(steps)
    )
    memory = summed(make_record(steps=records)).memory

    assert (200.0, expected) == (memory.slurm_peak_bytes, memory.slurm_peak_is_whole)
    assert (200.0 if expected else None) == memory.best_peak_bytes


def test_peaks_of_nodes_are_added_up_though_they_were_not_at_once() -> None:
    anon = (
        curve(("n1",), lambda offset: 5e9 if offset < 3600 else 1e9),
        curve(("n2",), lambda offset: 1e9 if offset < 3600 else 5e9),
    )
    summary = summed(make_record(**TWO), Measured(curves={"memory_anon": anon}))

    assert 10e9 == summary.memory.working_peak_bytes


def test_limit_without_a_bound_is_none() -> None:
    measured = with_totals(measure_nodes({"n1": 1.0}), memory_limit={("n1",): 9223372036854771712.0})

    assert summed(make_record(), measured).memory.limit_bytes is None


def test_cores_that_did_their_share_are_counted() -> None:
    # The kernel tells all eight cores of the node; the job has four. A fair share is (7200 + 7200 + 100) / 4 = 3625 s.
    cores = dict.fromkeys(("4", "5", "6", "7"), 0.0) | {"0": 7200.0, "1": 7200.0, "2": 100.0, "3": 0.0}
    measured = with_totals(measure_nodes({"n1": 2.0}), cpu_core={("n1", core): s for core, s in cores.items()})
    summary = summed(make_record(), measured)

    assert 2 == summary.cpu.cores_used
    assert {"0": 7200.0, "1": 7200.0, "2": 100.0, "3": 0.0} == summary.nodes[0].core_seconds


def test_job_that_is_not_bound_to_its_cores_has_none_of_its_own() -> None:
    measured = with_totals(measure_nodes({"n1": 2.0}), cpu_core={("n1", str(core)): 100.0 for core in range(8)})
    summary = summed(make_record(), measured)

    assert summary.cpu.cores_used is None
    assert {} == summary.nodes[0].core_seconds


def test_job_whose_cores_did_nothing_used_none() -> None:
    measured = with_totals(measure_nodes({"n1": 0.0}), cpu_core={("n1", str(core)): 0.0 for core in range(4)})

    assert 0 == summed(make_record(), measured).cpu.cores_used


def test_gpus_count_by_what_each_node_holds() -> None:
    record = make_record(**TWO, gres=GPUS)
    measured = Measured(
        curves={"gpu": (curve(("n1",), 0.9), curve(("n2",), 0.1))},
        totals={
            "gpu": {("n1",): 0.9, ("n2",): 0.1},
            "gpu_memory": {("n1",): 3e9, ("n2",): 1e9},
            "gpu_held_idle": {
                ("n1", "0", ""): 0.0, ("n1", "1", ""): 0.5, ("n1", "2", ""): 0.1, ("n2", "0", ""): 0.6
            },
        },
    )  # fmt: skip
    gpu = summed(record, measured).gpu

    assert (4, 1, 4e9) == (gpu.requested, gpu.held_idle, gpu.peak_memory_bytes)
    # (3 x 0.9 + 1 x 0.1) / 4
    assert pytest.approx(0.7) == gpu.mean_utilization
    assert Coverage(nodes=2, nodes_measured=2, run_ratio=1.0) == gpu.coverage


def test_one_gpu_on_two_nodes_needs_one_node_to_report() -> None:
    record = make_record(**TWO, gres=(Gres(name="gpu", count=1),))
    measured = Measured(curves={"gpu": (curve(("n2",), 0.4),)}, totals={"gpu": {("n2",): 0.4}})

    assert summed(record, measured).gpu.coverage.is_good


@pytest.mark.parametrize(
    ("told", "expected"),
    [({"n1": 0.0, "n2": 0.0}, False), ({"n1": 0.0}, None), ({"n1": 1.0}, True), ({}, None)],
)
def test_scratch_is_unused_only_when_every_node_says_so(told: dict[str, float], expected: bool | None) -> None:
    measured = Measured(totals={"uses_scratch": {(node,): value for node, value in told.items()}})

    assert expected is summed(make_record(**TWO), measured).io.uses_scratch


def test_broken_points_are_left_out() -> None:
    values = {30.0: math.nan, 60.0: math.inf, 90.0: -1.0, 120.0: 1e30, 7230.0: 99.0}
    points = {offset: values.get(offset, 2.0) for offset in (STEP * n for n in range(1, 242))}
    broken = Series(("n1",), tuple(START + o for o in points), tuple(points.values()))
    measured = Measured(
        curves={"cpu": (broken, Series(("n1", "x"), (START + 1.0,), (9.0,)), Series(("n1",), (), ())), "new": ()},
        totals={"cpu": {("n1",): 14400.0, ("n1", "x"): 1e9}, "reads": {("n1",): math.nan}, "new": {}},
    )
    summary = summed(make_record(), measured)

    assert (2.0, None) == (summary.cpu.peak_cores, summary.io.reads)
    assert 14400.0 == summary.cpu.time.used
    assert summary.coverage.is_good


@pytest.mark.parametrize(("nodes", "expected"), [(("n1", "n2"), 10.0), (("n1",), None)])
def test_bytes_of_file_systems_are_added_up_if_every_node_reported(
    nodes: tuple[str, ...], expected: float | None
) -> None:
    totals: dict[str, dict[tuple[str, ...], float]] = {
        name: {(node,): value for node in nodes} for name, value in (("storage_read", 1.0), ("storage_write", 4.0))
    }

    assert expected == summed(make_record(**TWO), Measured(totals=totals)).io.storage_bytes
    assert (
        summed(make_record(**TWO), Measured(totals={"storage_read": totals["storage_read"]})).io.storage_bytes is None
    )


@pytest.mark.parametrize(("nodes", "expected"), [(("n1", "n2"), 10 * GIB), (("n1",), None)])
def test_shared_memory_is_the_sum_of_the_peaks_of_nodes(nodes: tuple[str, ...], expected: float | None) -> None:
    curves = tuple(curve((node,), 5.0 * GIB) for node in nodes)

    assert expected == summed(make_record(**TWO), Measured(curves={"memory_shared": curves})).memory.shared_peak_bytes
