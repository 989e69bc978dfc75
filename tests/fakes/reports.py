# SPDX-License-Identifier: Apache-2.0
"""Make reports of jobs for tests of what stores, renders and serves them."""

from __future__ import annotations

import math
from dataclasses import replace

from slurmscope.core.tres import Gres
from slurmscope.jobs.processes import (
    ProcessSummary,
    ProfileComparison,
    ProfileSummary,
    StepProfile,
    TaskProfile,
    TraceDifference,
    TraceSummary,
)
from slurmscope.jobs.record import JobRecord, StepRecord
from slurmscope.jobs.report import Chart, ChartLine, JobReport
from slurmscope.jobs.rule import Finding, Severity, Subject
from slurmscope.jobs.summary import (
    Coverage,
    CpuSummary,
    GpuSummary,
    HeldGpu,
    IoSummary,
    JobSummary,
    MemorySummary,
    NodeSummary,
    UsedShare,
)

GIB = 1 << 30
START = 1_790_000_000
HOSTILE_NAME = '=cmd|"/c calc"!A1<script>alert(1)</script>\x1b[31m\u202eabc\r\nBcc: x@example.org'


def make_record(job_id: int = 4711, **changed: object) -> JobRecord:
    """Make the record of a job of two hours on one node of four cores and 8 GiB."""
    record = JobRecord(
        cluster="lab",
        job_id=job_id,
        name="relax",
        user="ada",
        uid=1001,
        account="physics",
        partition="batch",
        qos="normal",
        state="COMPLETED",
        submit_seconds=START - 600,
        eligible_seconds=START - 600,
        start_seconds=START,
        end_seconds=START + 7200,
        time_limit_seconds=24 * 3600,
        nodes=("n1",),
        node_count=1,
        cpus=4,
        memory_bytes=8 * GIB,
        exit_code=0,
        exit_signal=0,
        cpu_seconds=14000.0,
        submit_line="sbatch --mem=8G -c4 relax.sh",
        work_dir="/home/ada/relax",
        steps=(StepRecord(name="batch", state="COMPLETED", tasks=1, nodes=1, max_rss_bytes=GIB // 2),),
    )
    return replace(record, **changed)  # type: ignore[arg-type]


def make_report(record: JobRecord | None = None, **changed: object) -> JobReport:
    """Make the report of a job that kept two of its four cores busy and used a tenth of its memory."""
    report = JobReport(
        summary=_make_summary(record or make_record()),
        made_seconds=START + 7300,
        findings=(make_finding(), make_finding("memory_over_requested", Subject.MEMORY, Severity.WARNING)),
        charts=(make_chart(), make_chart("memory", Subject.MEMORY, "bytes", 0.8 * GIB, 8.0 * GIB)),
        missing=("GPU use was not measured: the job had none.",),
    )
    return replace(report, **changed)  # type: ignore[arg-type]


def _make_summary(record: JobRecord) -> JobSummary:
    run_seconds = 7200.0
    covered = Coverage(nodes=1, nodes_measured=1, run_ratio=0.99)
    return JobSummary(
        record=record,
        run_seconds=run_seconds,
        time=UsedShare(requested=record.time_limit_seconds, used=run_seconds),
        cpu=CpuSummary(
            time=UsedShare(requested=(record.cpus or 0) * run_seconds, used=2 * run_seconds, coverage=covered),
            user_seconds=1.9 * run_seconds,
            system_seconds=0.1 * run_seconds,
            mean_cores=2.0,
            peak_cores=2.1,
            cores_used=2,
            idle_tail_seconds=0.0,
        ),
        memory=MemorySummary(
            requested_bytes=8 * GIB,
            limit_bytes=8 * GIB,
            charged_peak_bytes=2 * GIB,
            working_peak_bytes=0.8 * GIB,
            slurm_peak_bytes=0.5 * GIB,
            growth_ratio=1.0,
            is_bounded=True,
            oom_kills=0,
            coverage=covered,
        ),
        io=IoSummary(
            read_bytes=5e9, write_bytes=1e9, reads=50_000, writes=9_000, peak_open_files=40, mean_open_files=30,
            uses_scratch=False, storage_bytes=6e9,
        ),
        nodes=(
            NodeSummary(
                node="n1", cpus=4, cpu_seconds=2 * run_seconds, mean_cores=2.0, working_peak_bytes=0.8 * GIB,
                limit_bytes=8 * GIB, read_bytes=5e9, write_bytes=1e9,
                core_seconds={"0": run_seconds, "1": run_seconds, "2": 0.0, "3": 12.0}, run_ratio=0.99,
            ),
        ),
        program_threads={"relax": 2.0},
        mean_running_threads=2.0,
        coverage=covered,
    )  # fmt: skip


def make_two_node_report(job_id: int = 4740) -> JobReport:
    """Make the report of a job whose second node did nothing."""
    report = make_report(make_record(job_id, nodes=("n1", "n2"), node_count=2, cpus=8))
    busy = report.charts[0]
    idle = replace(busy.lines[0], label="n2", values=tuple(0.0 for _ in busy.times))
    node = report.summary.nodes[0]
    nodes = (node, replace(node, node="n2", mean_cores=0.0, core_seconds={}))
    chart = replace(busy, lines=(replace(busy.lines[0], label="n1"), idle))
    return replace(report, summary=replace(report.summary, nodes=nodes), charts=(chart, *report.charts[1:]))


def make_gpu_report(job_id: int = 4712) -> JobReport:
    """Make the report of a job whose GPUs were idle."""
    report = make_report(make_record(job_id, gres=(Gres(name="gpu", model="h200", count=2),), user="bob"))
    gpu = GpuSummary(
        requested=2, mean_utilization=0.01, peak_memory_bytes=0.0, memory_size_bytes=282.0 * GIB, held_idle=2,
        devices=tuple(
            HeldGpu(
                node="n1", gpu=str(number), uuid=f"GPU-0{number}aa22bb-1111", model="NVIDIA H200", jobs=1,
                mean_utilization=0.02 * number, peak_memory_bytes=0.0, memory_size_bytes=141.0 * GIB,
            )
            for number in range(2)
        ),
        coverage=Coverage(nodes=1, nodes_measured=1, run_ratio=1.0),
    )  # fmt: skip
    return replace(report, summary=replace(report.summary, gpu=gpu))


def make_traced_report(job_id: int = 4713, *, command: str = "solver", user: str = "ada") -> JobReport:
    """Make the report of a job with two traced ranks, and ten more, whose CPU time and memory the agents contradict."""
    report = make_report(make_record(job_id, user=user))
    traces = TraceSummary(
        processes=tuple(
            ProcessSummary(
                node="n1", step="0", rank=rank, pid=f"81{rank}", command=command, cpu_seconds=seconds,
                peak_memory_bytes=GIB / 2, peak_threads=4.0, read_bytes=5e9, write_bytes=None,
            )
            for rank, seconds in (("0", 3600.0), ("1", 1800.0))
        ),
        others=10,
        differences=(
            TraceDifference(quantity="cpu_seconds", traced=7200.0, measured=14_400.0),
            TraceDifference(quantity="memory_bytes", traced=1.2 * GIB, measured=0.8 * GIB),
        ),
    )  # fmt: skip
    chart = make_chart("traced_cpu")
    return replace(report, summary=replace(report.summary, traces=traces), charts=(*report.charts, chart))


def make_profiled_report(job_id: int = 4714, *, sensor: str = "GPU0", user: str = "ada") -> JobReport:
    """Make the report of a job with a profiled batch step, and a step of two tasks on two nodes with everything."""
    report = make_report(make_record(job_id, user=user))
    profile = ProfileSummary(
        steps=(
            StepProfile(step="batch", tasks=1, nodes=("n1",), cpu_seconds=3.0, peak_task_memory_bytes=GIB / 128),
            StepProfile(
                step="0", tasks=2, nodes=("n1", "n2"), cpu_seconds=5400.0, peak_task_memory_bytes=GIB / 2,
                read_bytes=5e9, write_bytes=0.0, mean_gpus=1.5, peak_gpu_memory_bytes=3.0 * GIB,
                mean_power_watts={"node": 412.0, sensor: 250.0}, lustre_read_bytes=7e9, lustre_write_bytes=8e9,
                received_bytes=9e9, sent_bytes=1e10,
            ),
        ),
        other_steps=1,
        tasks=(
            TaskProfile(node="n1", step="batch", task="0", cpu_seconds=3.0, peak_memory_bytes=GIB / 128),
            TaskProfile(
                node="n1", step="0", task="0", cpu_seconds=3600.0, peak_memory_bytes=GIB / 4, read_bytes=5e9,
                mean_gpus=0.75, peak_gpu_memory_bytes=2.0 * GIB,
            ),
            TaskProfile(node="n2", step="0", task="1", cpu_seconds=1800.0, peak_memory_bytes=GIB / 2, write_bytes=0.0),
        ),
        other_tasks=30,
        comparisons=(
            ProfileComparison(quantity="cpu_seconds", sampled=5403.0, measured=10_806.0),
            ProfileComparison(quantity="memory_bytes", sampled=1.5 * GIB, measured=1.0 * GIB),
            ProfileComparison(quantity="read_bytes", sampled=5e9, measured=5e9),
        ),
    )  # fmt: skip
    return replace(report, summary=replace(report.summary, profile=profile))


def make_unmeasured_report(record: JobRecord) -> JobReport:
    """Make the report of a job of which only accounting knows."""
    summary = JobSummary(
        record=record, run_seconds=30.0, time=UsedShare(requested=record.time_limit_seconds, used=30.0)
    )
    return JobReport(summary=summary, made_seconds=START, missing=("No node reported this job.",))


def make_finding(
    rule: str = "cpu_idle",
    subject: Subject = Subject.CPU,
    severity: Severity = Severity.CRITICAL,
    suggestion: str = "#SBATCH --cpus-per-task=2",
) -> Finding:
    """Make a finding with words, a suggestion and numbers."""
    return Finding(
        rule=rule,
        severity=severity,
        subject=subject,
        title=f"Title of {rule}",
        explanation="Only 2 of 4 cores were busy on average.",
        advice="Request as many cores as the program uses.",
        suggestion=suggestion,
        numbers={"mean_cores": 2.0, "cores": 4.0},
    )


def make_chart(
    name: str = "cpu", subject: Subject = Subject.CPU, unit: str = "cores", level: float = 2.0, limit: float = 4.0
) -> Chart:
    """Make a chart of 241 points with a gap in its middle."""
    times = tuple(float(START + 30 * index) for index in range(241))
    values = tuple(
        None if 100 <= index < 110 else level * (1 + 0.05 * math.sin(index / 9)) for index in range(len(times))
    )
    return Chart(
        name=name,
        title=f"Chart of {name}",
        unit=unit,
        subject=subject,
        times=times,
        lines=(ChartLine(label="n1", values=values),),
        reference=limit,
        reference_label="allocated cores",
        help="What is shown here.",
    )
