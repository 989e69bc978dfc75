# SPDX-License-Identifier: Apache-2.0
"""The lines of seff: those that seff 2.1 printed about jobs of Slurm 22.05 in the lab, and some worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurmscope.jobs.record import StepRecord
from slurmscope.jobs.render.compat import render_seff
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.series import Measured
from slurmscope.jobs.summarize import summarize
from slurmscope.jobs.summary import MemorySummary
from tests.fakes.reports import GIB, START, make_record, make_report


def test_job_on_one_node() -> None:
    summary = replace(make_report().summary, memory=MemorySummary(working_peak_bytes=0.8 * GIB))
    report = make_report(summary=summary)
    assert [
        "Job ID: 4711",
        "Cluster: lab",
        "User/Group: ada/staff",
        "State: COMPLETED (exit code 0)",
        "Nodes: 1",
        "Cores per node: 4",
        "CPU Utilized: 04:00:00",
        "CPU Efficiency: 50.00% of 08:00:00 core-walltime",
        "Job Wall-clock time: 02:00:00",
        "Memory Utilized: 819.20 MB",
        "Memory Efficiency: 10.00% of 8.00 GB (8.00 GB/node)",
    ] == render_seff(report, group="staff").splitlines()


def test_task_of_an_array_with_memory_per_core_on_one_core_that_failed() -> None:
    record = make_record(
        array_job_id=4700, array_task_id=3, cpus=1, state="FAILED", exit_code=2, memory_bytes=GIB // 2,
        submit_line="sbatch --mem-per-cpu=512M --array=1-5 relax.sh", end_seconds=START + 2 * 86400 + 3661,
    )  # fmt: skip
    report = JobReport(summary=summarize(record, Measured(), now_seconds=START + 900_000), made_seconds=START)
    assert [
        "Job ID: 4711",
        "Array Job ID: 4700_3",
        "Cluster: lab",
        "User/Group: ada/",
        "State: FAILED (exit code 2)",
        "Cores: 1",
        "CPU Utilized: 03:53:20",
        # 14,000 of 176,461 seconds.
        "CPU Efficiency: 7.93% of 2-01:01:01 core-walltime",
        "Job Wall-clock time: 2-01:01:01",
        "Memory Utilized: 512.00 MB",
        "Memory Efficiency: 100.00% of 512.00 MB (512.00 MB/core)",
    ] == render_seff(report).splitlines()


def test_what_was_not_measured_is_no_zero() -> None:
    record = make_record(cpu_seconds=None, steps=())
    report = JobReport(summary=summarize(record, Measured(), now_seconds=START + 90_000), made_seconds=START)
    lines = render_seff(report).splitlines()
    assert "CPU Utilized: not measured" in lines
    assert "CPU Efficiency: not measured of 08:00:00 core-walltime" in lines
    assert "Memory Utilized: not measured" in lines


def test_pending_job_has_no_efficiency() -> None:
    record = make_record(state="PENDING", start_seconds=None, end_seconds=None, nodes=(), cpu_seconds=None, steps=())
    report = JobReport(summary=summarize(record, Measured(), now_seconds=START), made_seconds=START)
    assert [
        "State: PENDING",
        "Nodes: 1",
        "Cores per node: 4",
        "Efficiency not available for jobs in the PENDING state.",
    ] == (render_seff(report).splitlines()[3:])


KIB, MIB = 1 << 10, 1 << 20
ONE_CORE = {"job_id": 200001, "cpus": 1, "memory_bytes": 200 * MIB, "submit_line": "sbatch -n1 --mem=200M burn.sh"}
# What sacct had of each job, and what seff printed.
PRINTED: dict[str, tuple[dict[str, Any], int | None, str]] = {
    "one core": (
        ONE_CORE | {"end_seconds": START + 36, "cpu_seconds": 4.143},
        64232,
        (
            "Job ID: 200001\nCluster: lab\nUser/Group: labalice/users\nState: COMPLETED (exit code 0)\nCores: 1\n"
            "CPU Utilized: 00:00:04\nCPU Efficiency: 11.11% of 00:00:36 core-walltime\nJob Wall-clock time: 00:00:36\n"
            "Memory Utilized: 62.73 MB\nMemory Efficiency: 31.36% of 200.00 MB (200.00 MB/node)\n"
        ),
    ),
    "task of an array": (
        ONE_CORE
        | {"job_id": 200007, "array_job_id": 200003, "array_task_id": 1}
        | {"end_seconds": START + 37, "cpu_seconds": 4.125},
        64232,
        (
            "Job ID: 200007\nArray Job ID: 200003_1\nCluster: lab\nUser/Group: labalice/users\n"
            "State: COMPLETED (exit code 0)\nCores: 1\nCPU Utilized: 00:00:04\n"
            "CPU Efficiency: 10.81% of 00:00:37 core-walltime\nJob Wall-clock time: 00:00:37\n"
            "Memory Utilized: 62.73 MB\nMemory Efficiency: 31.36% of 200.00 MB (200.00 MB/node)\n"
        ),
    ),
    "failed, with memory per core": (
        {"job_id": 200004, "cpus": 2, "memory_bytes": 200 * MIB, "state": "FAILED", "exit_code": 3}
        | {"submit_line": "sbatch -n1 -c2 --mem-per-cpu=100M burn.sh", "end_seconds": START + 36, "cpu_seconds": 4.123},
        64228,
        (
            "Job ID: 200004\nCluster: lab\nUser/Group: labalice/users\nState: FAILED (exit code 3)\nNodes: 1\n"
            "Cores per node: 2\nCPU Utilized: 00:00:04\nCPU Efficiency: 5.56% of 00:01:12 core-walltime\n"
            "Job Wall-clock time: 00:00:36\nMemory Utilized: 62.72 MB\n"
            "Memory Efficiency: 31.36% of 200.00 MB (100.00 MB/core)\n"
        ),
    ),
    "OOM-killed": (
        ONE_CORE
        | {"job_id": 200008, "memory_bytes": 50 * MIB, "state": "OUT_OF_MEMORY", "exit_signal": 125}
        | {"end_seconds": START + 2, "cpu_seconds": 0.133},
        44464,
        (
            "Job ID: 200008\nCluster: lab\nUser/Group: labalice/users\nState: OUT_OF_MEMORY (exit code 0)\nCores: 1\n"
            "CPU Utilized: 00:00:00\nCPU Efficiency: 0.00% of 00:00:02 core-walltime\nJob Wall-clock time: 00:00:02\n"
            "Memory Utilized: 43.42 MB\nMemory Efficiency: 86.84% of 50.00 MB (50.00 MB/node)\n"
        ),
    ),
    "reached its time limit": (
        {"job_id": 200010, "cpus": 2, "memory_bytes": 100 * MIB, "state": "TIMEOUT", "submit_line": "sbatch --mem=100M"}
        | {"end_seconds": START + 74, "cpu_seconds": 0.001},
        220,
        (
            "Job ID: 200010\nCluster: lab\nUser/Group: labalice/users\nState: TIMEOUT (exit code 0)\nNodes: 1\n"
            "Cores per node: 2\nCPU Utilized: 00:00:00\nCPU Efficiency: 0.00% of 00:02:28 core-walltime\n"
            "Job Wall-clock time: 00:01:14\nMemory Utilized: 220.00 KB\n"
            "Memory Efficiency: 0.21% of 100.00 MB (100.00 MB/node)\n"
        ),
    ),
    "pending": (
        ONE_CORE
        | {"job_id": 200006, "state": "PENDING", "start_seconds": None, "end_seconds": None, "nodes": ()}
        | {"cpu_seconds": None},
        None,
        (
            "Job ID: 200006\nCluster: lab\nUser/Group: labalice/users\nState: PENDING\nCores: 1\n"
            "Efficiency not available for jobs in the PENDING state.\n"
        ),
    ),
}


@pytest.mark.parametrize("kind", PRINTED)
def test_lines_are_those_that_seff_printed_of_the_same_job(kind: str) -> None:
    changed, max_rss_kib, printed = PRINTED[kind]
    steps = () if max_rss_kib is None else (_step(max_rss_kib * KIB),)
    record = make_record(**({"user": "labalice", "steps": steps} | changed))
    report = JobReport(summary=summarize(record, Measured(), now_seconds=START + 900), made_seconds=START)
    assert printed == render_seff(report, group="users")


def _step(max_rss_bytes: int) -> StepRecord:
    return StepRecord(name="0", state="COMPLETED", tasks=1, nodes=1, max_rss_bytes=max_rss_bytes)


def test_multi_node_job_that_no_agent_measured_differs_from_seff_in_memory_only() -> None:
    """The sum of the peaks of tasks, which seff printed as 62.73 MB and 10.45 %, is not what a job needs."""
    step = StepRecord(name="0", state="COMPLETED", tasks=2, nodes=2, max_rss_bytes=64232 * KIB)
    record = make_record(
        job_id=200002, user="labalice", cpus=4, node_count=2, nodes=("lab2n1", "lab2n2"), memory_bytes=600 * MIB,
        end_seconds=START + 36, cpu_seconds=8.092, submit_line="sbatch -N2 -n2 -c2 --mem=300M burn.sh", steps=(step,),
    )  # fmt: skip
    report = JobReport(summary=summarize(record, Measured(), now_seconds=START + 900), made_seconds=START)
    assert [
        "Job ID: 200002",
        "Cluster: lab",
        "User/Group: labalice/users",
        "State: COMPLETED (exit code 0)",
        "Nodes: 2",
        "Cores per node: 2",
        "CPU Utilized: 00:00:08",
        "CPU Efficiency: 5.56% of 00:02:24 core-walltime",
        "Job Wall-clock time: 00:00:36",
        "Memory Utilized: not measured",
        "Memory Efficiency: not measured of 600.00 MB (300.00 MB/node)",
    ] == render_seff(report, group="users").splitlines()
