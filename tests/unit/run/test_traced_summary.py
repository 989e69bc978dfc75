# SPDX-License-Identifier: Apache-2.0
"""A run of a command is summarized as the run of a job on one node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from slurmscope.jobs.charts import make_charts
from slurmscope.jobs.rule import Subject
from slurmscope.jobs.summary import JobSummary
from slurmscope.jobs.traced_run import Allowance, GpuSample, GpuUse, SlurmContext, TracedRun, TreeSample
from slurmscope.run.report import detail_run, has_shared_pages, make_run_report, measure_run, summarize_run
from tests.fakes.traced_runs import GIB, START, make_run, make_sample

IN_A_JOB = SlurmContext(job_id=77, cluster="lab", account="physics", partition="batch")
LIMITED = Allowance(cores=4.0, memory_bytes=4 * GIB, memory_origin="cgroup")


def summary_of(run: TracedRun) -> JobSummary:
    return summarize_run(run, measure_run(run))


def test_cpu_is_compared_with_the_cores_that_it_may_use() -> None:
    cpu = summary_of(make_run()).cpu

    assert (2400.0, 600.0, 0.25) == (cpu.time.requested, cpu.time.used, cpu.time.ratio)
    assert (450.0, 150.0, 1.0) == (cpu.user_seconds, cpu.system_seconds, cpu.mean_cores)
    assert pytest.approx(1.0) == cpu.peak_cores
    assert 0.0 == cpu.idle_tail_seconds


def test_part_of_a_core_is_not_rounded() -> None:
    run = make_run(allowance=Allowance(cores=0.5), wall_seconds=10.0, samples=(make_sample(0, 0), make_sample(10, 5)))

    summary = summary_of(run)

    assert 1.0 == summary.cpu.time.ratio
    assert 1 == summary.record.cpus


def test_run_of_a_single_sample_has_totals_and_no_curves() -> None:
    run = make_run(samples=(make_sample(0.0, 0.5),), wall_seconds=0.0, peak_resident_bytes=None)

    summary = summary_of(run)

    assert {} == measure_run(run).curves
    assert (0.5, None, None) == (summary.cpu.time.used, summary.cpu.mean_cores, summary.cpu.peak_cores)
    assert (None, None) == (summary.memory.working_peak_bytes, summary.nodes[0].working_peak_bytes)


def test_memory_counts_as_requested_only_in_a_job_of_one_task() -> None:
    requested = [
        summary_of(make_run(slurm=slurm, allowance=allowance)).memory.requested_bytes
        for slurm, allowance in (
            (IN_A_JOB, LIMITED),
            (SlurmContext(job_id=77, tasks=2), LIMITED),
            (IN_A_JOB, Allowance(cores=4.0, memory_bytes=4 * GIB, memory_origin="machine")),
            (SlurmContext(), LIMITED),
        )
    ]

    assert [4 * GIB, None, None, None] == requested


def test_sum_above_the_limit_is_no_base_for_findings() -> None:
    run = make_run(peak_resident_bytes=5 * GIB, allowance=LIMITED)

    assert has_shared_pages(run)
    assert not summary_of(run).memory.coverage.is_good
    assert not has_shared_pages(make_run())
    assert not has_shared_pages(make_run(allowance=Allowance(cores=1.0), peak_resident_bytes=5 * GIB))


@pytest.mark.parametrize(("code", "number", "state"), [(0, 0, "COMPLETED"), (2, 0, "FAILED"), (0, 9, "FAILED")])
def test_record_has_how_the_command_ended(code: int, number: int, state: str) -> None:
    record = summary_of(make_run(exit_code=code, exit_signal=number, slurm=IN_A_JOB)).record

    assert (state, code, number) == (record.state, record.exit_code, record.exit_signal)
    assert ("solver", 77, "lab", "physics", "batch") == (
        record.name,
        record.job_id,
        record.cluster,
        record.account,
        record.partition,
    )
    # A sample of half a second before or after is within the run.
    assert (START - 0.5, START + 600.5) == (record.start_seconds, record.end_seconds)


def test_charts_cover_the_run() -> None:
    run = make_run()
    measured = measure_run(run)

    charts = {chart.name: chart for chart in make_charts(summarize_run(run, measured), measured)}

    assert ["cpu", "memory", "read", "write", "cpu_split"] == list(charts)
    assert (4.0, 4.0 * GIB) == (charts["cpu"].reference, charts["memory"].reference)
    assert pytest.approx([1000.0] * 60) == list(charts["read"].lines[0].values)
    assert ["user", "system"] == [line.label for line in charts["cpu_split"].lines]


def test_io_that_was_not_measured_is_absent() -> None:
    run = make_run(samples=tuple(TreeSample(START + time, time, 0.0, 0, 1, 1) for time in (0.0, 600.0)))

    summary = summary_of(run)

    assert (None, None) == (summary.io.read_bytes, summary.io.writes)
    assert "read" not in measure_run(run).curves


def test_details_have_what_a_job_report_lacks() -> None:
    details = detail_run(make_run(processes_left=1, exit_signal=9))

    assert ("/opt/solver", "--input", "a b") == details.command
    assert (4096, 8192, 2, 8) == (
        details.storage_read_bytes,
        details.storage_write_bytes,
        details.peak_processes,
        details.peak_threads,
    )
    assert (1, 9, 4.0, "machine") == (
        details.processes_left,
        details.exit_signal,
        details.cores,
        details.memory_limit_origin,
    )


MATRIX_PRODUCTS = {"busy": 0.998, "sm_active": 0.97, "tensor_active": 0.0, "dram_active": 0.05, "fp32": 0.76}
"""In FP32 on an H200, as shares of time."""
BF16 = {"busy": 0.998, "sm_active": 0.96, "tensor_active": 0.935, "dram_active": 0.18, "fp32": 0.0}


def gpu_run(shares: Mapping[str, float], *, memory: int = GIB, gpus: int = 1, watts: float = 677.0) -> TracedRun:
    """Make a run of ten minutes whose GPUs were sampled every ten seconds."""
    samples = tuple(
        GpuSample(
            START + at,
            tuple(
                GpuUse(
                    gpu=str(number),
                    memory_bytes=memory * (number + 1),
                    memory_size_bytes=140 * GIB,
                    uuid=f"GPU-0123456{number}",
                    model="NVIDIA H200",
                    totals={name: share * at for name, share in shares.items()}
                    | {"energy": watts * at, "pcie_received": 1e6 * at, "pcie_transmitted": 0.0},
                )
                for number in range(gpus)
            ),
        )
        for at in range(10, 610, 10)
    )
    return make_run(gpu_samples=samples, allowance=Allowance(cores=1.0))


def test_gpus_are_summarized_as_those_of_a_job() -> None:
    run = gpu_run(BF16, gpus=2)
    measured = measure_run(run)

    summary = summarize_run(run, measured)

    assert (2, 2, 2) == (summary.gpu.requested, summary.record.gpus, len(summary.gpu.devices))
    assert pytest.approx(0.998) == summary.gpu.mean_utilization
    assert (3.0 * GIB, 280.0 * GIB) == (summary.gpu.peak_memory_bytes, summary.gpu.memory_size_bytes)
    work = summary.gpu.work
    assert pytest.approx((0.96, 0.935, 0.18, 0.0)) == (
        work.sm_ratio, work.tensor_ratio, work.dram_ratio, work.fp32_ratio,
    )  # fmt: skip
    assert pytest.approx((2 * 677.0 * 600, 2 * 1e6 * 600)) == (summary.energy.gpu_joules, work.pcie_bytes)
    assert summary.gpu.coverage.is_good


def test_each_gpu_has_a_line_in_each_chart() -> None:
    run = gpu_run(BF16, gpus=2)
    measured = measure_run(run)

    charts = {chart.name: chart for chart in make_charts(summarize_run(run, measured), measured)}

    assert ["gpu_busy", "gpu_sm", "gpu_tensor", "gpu_held_memory", "gpu_power"] == list(charts)[:5]
    assert ["GPU 0", "GPU 1"] == [line.label for line in charts["gpu_power"].lines]
    assert pytest.approx([677.0] * 60) == list(charts["gpu_power"].lines[0].values)
    assert pytest.approx([0.935] * 60) == list(charts["gpu_tensor"].lines[1].values)


def test_rates_are_those_of_some_seconds() -> None:
    # A counter of energy that the driver updates every other second: 200 W on average.
    samples = tuple(
        GpuSample(START + second, (GpuUse("0", GIB, {"busy": 0.5 * second, "energy": 400.0 * (second // 2)}),))
        for second in range(1, 61)
    )

    (power,) = measure_run(make_run(gpu_samples=samples, wall_seconds=60.0)).curves["gpu_power"]

    assert [START + second for second in range(5, 61, 5)] == list(power.times)
    assert 160.0 <= min(power.values) <= max(power.values) <= 240.0


def test_run_in_single_precision_is_told_which_line_to_change() -> None:
    made = make_run_report(gpu_run(MATRIX_PRODUCTS), made_seconds=0).report

    (finding,) = [finding for finding in made.findings if finding.subject is Subject.GPU]
    assert "gpu_tensor_unused" == finding.rule
    assert 'torch.set_float32_matmul_precision("high")' in finding.advice
    again = make_run_report(gpu_run(BF16), made_seconds=0).report
    assert [] == [finding for finding in again.findings if finding.subject is Subject.GPU]


def test_memory_that_moves_between_gpus_counts_once() -> None:
    samples = tuple(
        GpuSample(START + at, (GpuUse("0", first, {"busy": 1.0}), GpuUse("1", second, {"busy": 3.0})))
        for at, first, second in ((100, 4 * GIB, 0), (300, 0, 3 * GIB))
    )

    gpu = summary_of(make_run(gpu_samples=samples)).gpu

    assert (2, 4.0 * GIB) == (gpu.requested, gpu.peak_memory_bytes)
    # Half of the run was measured: its shares are those of that half.
    assert pytest.approx([1 / 300, 3 / 300]) == [device.mean_utilization for device in gpu.devices]
    assert not gpu.coverage.is_good


def test_gpu_that_others_used_too_has_no_findings() -> None:
    run = gpu_run(MATRIX_PRODUCTS)
    shared = tuple(GpuSample(at, tuple(use._replace(is_shared=True) for use in gpus)) for at, gpus in run.gpu_samples)

    made = make_run_report(replace(run, gpu_samples=shared), made_seconds=0).report

    assert [] == [finding for finding in made.findings if finding.subject is Subject.GPU]


def test_gpus_without_values_are_not_measured() -> None:
    summary = summary_of(make_run(gpu_samples=(GpuSample(START + 10, (GpuUse("0", None, {}),)),)))

    assert (1, None, None) == (summary.gpu.requested, summary.gpu.mean_utilization, summary.gpu.peak_memory_bytes)
    assert summary.energy.gpu_joules is None
    assert not summary.gpu.coverage.is_good
    assert 0 == summary_of(make_run()).gpu.requested
