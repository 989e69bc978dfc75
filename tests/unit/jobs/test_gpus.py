# SPDX-License-Identifier: Apache-2.0
"""Seconds that GPUs counted become shares of the run; a GPU that does not count something leaves it unknown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from slurmscope.core.units import format_energy
from slurmscope.jobs.gpus import sum_work
from slurmscope.jobs.render.tables import make_gpu_table
from slurmscope.jobs.series import Series
from slurmscope.jobs.summary import GpuFault, GpuWork, HeldGpu, JobSummary
from tests.fakes.measured import curve, measure_nodes, summed, with_curves, with_totals
from tests.fakes.reports import START, make_finding, make_record, make_report

FIRST, SECOND = ("n1", "0", ""), ("n1", "1", "")


def summarize(**totals: dict[tuple[str, ...], float]) -> JobSummary:
    """Sum up a job of two hours on two GPUs."""
    measured = with_totals(measure_nodes({"n1": 4.0}), gpu_jobs={FIRST: 1.0, SECOND: 1.0})
    return summed(make_record(), with_totals(measured, **totals))


def test_seconds_are_shares_of_the_run() -> None:
    summary = summarize(
        gpu_busy={FIRST: 7200.0, SECOND: 1800.0},
        gpu_tensor={FIRST: 3600.0, SECOND: 0.0},
        gpu_fp32={(*FIRST, "fp32"): 720.0, (*SECOND, "fp32"): 0.0},
        gpu_energy={FIRST: 3.6e6, SECOND: 1.8e6},
    )

    assert [(1.0, 0.5), (0.25, 0.0)] == [(gpu.work.busy_ratio, gpu.work.tensor_ratio) for gpu in summary.gpu.devices]
    assert GpuWork(busy_ratio=0.625, tensor_ratio=0.25, fp32_ratio=0.05, energy_joules=5.4e6) == summary.gpu.work


def test_what_one_gpu_does_not_count_is_unknown_for_all() -> None:
    works = [GpuWork(busy_ratio=0.5, sm_ratio=0.4), GpuWork(busy_ratio=0.75)]
    assert GpuWork(busy_ratio=0.625) == sum_work(works)
    assert GpuWork() == sum_work([])


def test_shared_gpu_has_the_part_of_the_job() -> None:
    summary = summarize(gpu_jobs={FIRST: 2.0, SECOND: 1.0}, gpu_busy={FIRST: 720.0})
    assert [0.1, None] == [gpu.mean_utilization for gpu in summary.gpu.devices]


def test_table_has_the_columns_that_were_counted() -> None:
    counted = make_gpu_table(make_report(summary=summarize(gpu_sm={FIRST: 720.0}, gpu_energy={FIRST: 4.5e6})))
    older = make_gpu_table(make_report(summary=summarize()))

    assert ("SM", "Energy") == counted.head[-2:]
    assert [("10 %", "1.25 kWh"), ("–", "–")] == [row[-2:] for row in counted.rows]
    assert older.head == counted.head[:-2]


def test_table_says_what_busy_time_alone_is_worth() -> None:
    def note(**totals: dict[tuple[str, ...], float]) -> str:
        return make_gpu_table(make_report(summary=summarize(**totals))).note

    assert note(gpu_busy={FIRST: 720.0}).startswith("These GPUs do not count which of their parts worked")
    assert "" == note(gpu_busy={FIRST: 720.0}, gpu_sm={FIRST: 720.0}) == note()


def test_table_says_why_the_work_was_not_counted() -> None:
    reasons: dict[tuple[str, ...], float] = {
        (*FIRST, "mps"): 1.0,
        (*SECOND, "driver"): 1.0,
        ("n1", "2", "", "<b>"): 1.0,
    }
    counted: dict[tuple[str, ...], float] = {FIRST: 1.0, SECOND: 1.0, ("n1", "2", ""): 1.0}

    def note(**totals: dict[tuple[str, ...], float]) -> str:
        return make_gpu_table(make_report(summary=summarize(gpu_jobs=counted, gpu_uncounted=reasons, **totals))).note

    of_first = "The work on GPU 0 was not counted: MPS does the work of all its clients in one process."
    of_second = "The work on GPU 1 was not counted: the driver counts nothing for this device."
    assert f"{of_second} {of_first}" == note()
    # What began without counters and had them later has numbers.
    assert of_second in note(gpu_busy={FIRST: 60.0})
    assert of_first not in note(gpu_busy={FIRST: 60.0})


def test_table_has_times_at_reduced_clocks_and_errors() -> None:
    throttled: dict[tuple[str, ...], float] = {
        (*FIRST, "thermal"): 65.0,
        (*FIRST, "power_cap"): 600.0,
        (*SECOND, "thermal"): 0.0,
    }
    faults: dict[tuple[str, ...], float] = {(*FIRST, "79"): 1.0}
    made = make_gpu_table(make_report(summary=summarize(gpu_throttled=throttled, gpu_faults=faults)))

    assert "Reduced clocks" == made.head[-1]
    assert ["10 min (power cap), 1 min 5 s (thermal)", "0 s"] == [row[-1] for row in made.rows]
    assert made.note.startswith("GPU 0 of n1 reported Xid 79: The GPU fell off the PCIe bus")


def test_error_that_a_finding_describes_is_not_repeated() -> None:
    faults: dict[tuple[str, ...], float] = {(*FIRST, "79"): 1.0, (*SECOND, "31"): 1.0}
    finding = replace(make_finding("gpu_fault"), explanation="GPU 0 of n1 reported Xid 79: The GPU fell off.")
    made = make_gpu_table(make_report(summary=summarize(gpu_faults=faults), findings=(finding,)))

    assert "Xid 79" not in made.note
    assert "Xid 31" in made.note


@pytest.mark.parametrize(
    ("joules", "text"),
    [(None, "not measured"), (0.0, "0 Wh"), (1800.0, "0.5 Wh"), (3.6e6, "1 kWh"), (9e9, "2,500 kWh")],
)
def test_energy_is_written_as_people_pay_for_it(joules: float | None, text: str) -> None:
    assert text == format_energy(joules)


def test_exporter_of_the_site_fills_in_what_the_agent_does_not_count() -> None:
    summary = summarize(
        gpu_busy={FIRST: 3600.0, SECOND: 3600.0},
        gpu_sm={FIRST: 720.0},
        dcgm_sm_active={FIRST: 0.9, SECOND: 0.3},
        dcgm_dram_active={SECOND: 0.2},
    )
    first, second = (gpu.work for gpu in summary.gpu.devices)

    assert GpuWork(busy_ratio=0.5, sm_ratio=0.1) == first
    assert GpuWork(busy_ratio=0.5, sm_ratio=0.3, dram_ratio=0.2, is_from_dcgm=True) == second
    assert "measured by dcgm-exporter" in make_gpu_table(make_report(summary=summary)).note


def test_gpu_of_a_job_of_a_second_has_its_share() -> None:
    measured = with_totals(measure_nodes({"n1": 4.0}), gpu_jobs={FIRST: 1.0}, gpu_busy={FIRST: 0.25})
    second = summed(make_record(end_seconds=int(START + 1)), measured)
    assert [0.25] == [gpu.work.busy_ratio for gpu in second.gpu.devices]


def test_share_is_never_more_than_the_whole_run() -> None:
    # Counters are read a moment before the start and a moment after the end.
    assert [1.0, 1.0] == [gpu.work.sm_ratio for gpu in summarize(gpu_sm={FIRST: 7203.0, SECOND: 7200.0}).gpu.devices]


# A run of two hours: idle with its context held for 10 minutes, at work for 50, then one thread spins for an hour.
SPINNING = {
    "gpu_busy": lambda at: 0.0 if at <= 600 else 0.98 if at <= 3600 else 0.9999,
    "gpu_sm": lambda at: 0.0 if at <= 600 else 0.89 if at <= 3600 else 0.0076,
    "gpu_power": lambda at: 123.0 if not 600 < at <= 3600 else 690.0,
    "gpu_held_memory": lambda _at: 2e10,
    "gpu_pcie_received": lambda at: 41.0 * (1 << 20) if 600 < at <= 3600 else 1e5,
    "gpu_pcie_transmitted": lambda _at: 0.0,
}


def over_time(changed: dict[str, Callable[[float], float] | None]) -> HeldGpu:
    """Return the only GPU of a job with these curves, as of the spinning one but for the changed."""
    curves: dict[str, tuple[Series, ...]] = {
        name: (curve(FIRST, value),) for name, value in {**SPINNING, **changed}.items() if value is not None
    }
    measured = with_totals(measure_nodes({"n1": 4.0}), gpu_jobs={FIRST: 1.0})
    (gpu,) = summed(make_record(), with_curves(measured, **curves)).gpu.devices
    return gpu


def test_spinning_thread_is_stuck_since_it_spins() -> None:
    gpu = over_time({})
    assert (3600.0, START + 3600.0) == (gpu.stuck_seconds, gpu.stuck_since_seconds)


@pytest.mark.parametrize(
    "changed",
    [
        {"gpu_busy": lambda _at: 0.0001},  # an idle notebook: its context is held, nothing runs
        {"gpu_busy": lambda _at: 0.949},
        {"gpu_sm": lambda _at: 0.02},
        {"gpu_power": lambda at: 123.0 if at <= 600 else 136.0},  # 10 % above an idle context is 135.3
        {"gpu_pcie_transmitted": lambda _at: float(1 << 20)},
        {"gpu_nvlink_received": lambda _at: 1e9},
    ],
)
def test_gpu_that_does_something_is_not_stuck(changed: dict[str, Callable[[float], float]]) -> None:
    gpu = over_time(dict(changed))
    assert (0.0, None) == (gpu.stuck_seconds, gpu.stuck_since_seconds)


@pytest.mark.parametrize(
    "changed",
    [
        {"gpu_power": lambda at: 123.0 if at <= 600 else 135.0},
        {"gpu_power": lambda at: 87.0 if at <= 30 else 123.0},  # the process opened it late
        {"gpu_sm": lambda _at: 0.0199},
        {"gpu_nvlink_received": lambda _at: 0.0},
    ],
)
def test_edges_of_a_stuck_gpu(changed: dict[str, Callable[[float], float]]) -> None:
    assert 3600.0 <= (over_time(dict(changed)).stuck_seconds or 0.0)


@pytest.mark.parametrize("missing", list(SPINNING))
def test_without_a_curve_it_is_unknown_whether_a_gpu_is_stuck(missing: str) -> None:
    assert over_time({missing: None}).stuck_seconds is None


def test_time_without_samples_does_not_count_as_stuck() -> None:
    whole = {name: curve(FIRST, value) for name, value in SPINNING.items()}
    gap = range(160, 200)
    curves = {
        name: (
            Series(
                FIRST,
                tuple(time for place, time in enumerate(series.times) if place not in gap),
                tuple(value for place, value in enumerate(series.values) if place not in gap),
            ),
        )
        for name, series in whole.items()
    }
    measured = with_totals(measure_nodes({"n1": 4.0}), gpu_jobs={FIRST: 1.0})
    (gpu,) = summed(make_record(), with_curves(measured, **curves)).gpu.devices
    # Points 120 to 159 are 1,200 s; after the gap 200 to 239, of which the first reaches back two steps.
    assert 1230.0 == gpu.stuck_seconds


def test_faults_are_listed_by_time_and_nonsense_is_left_out() -> None:
    summary = summarize(
        gpu_faults={(*FIRST, "79"): 1.0, (*SECOND, "31"): 3.0, (*FIRST, "x"): 1.0, (*FIRST, "9" * 6): 1.0},
        gpu_fault_time={(*FIRST, "79"): START + 7400.0, (*SECOND, "31"): 1e20},
    )
    assert (
        GpuFault(node="n1", gpu="0", xid=79, last_seconds=START + 7400.0),
        GpuFault(node="n1", gpu="1", xid=31, count=3),
    ) == summary.gpu.faults


def test_throttled_time_and_traffic_are_those_of_each_gpu() -> None:
    summary = summarize(
        gpu_throttled={(*FIRST, "thermal"): 720.0},
        gpu_pcie_received={FIRST: 5.0, SECOND: 1.0},
        gpu_pcie_transmitted={FIRST: 2.0},
    )
    assert [({"thermal": 720.0}, 7.0), ({}, None)] == [
        (gpu.work.throttled_seconds, gpu.work.pcie_bytes) for gpu in summary.gpu.devices
    ]
    assert {"thermal": 360.0} == summary.gpu.work.throttled_seconds
    assert summary.gpu.work.pcie_bytes is None
