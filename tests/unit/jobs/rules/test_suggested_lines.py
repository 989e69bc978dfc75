# SPDX-License-Identifier: Apache-2.0
"""The lines that rules suggest follow from what the job did; expected figures are worked out by hand."""

from __future__ import annotations

import pytest

from slurmscope.jobs.record import StepRecord
from slurmscope.jobs.summary import JobSummary, NodeSummary
from tests.fakes.job_summaries import GIB, all_findings, make_summary, with_gpus, with_nodes


def needed(peak_bytes: float, *, of: float = 8 * GIB) -> JobSummary:
    return make_summary(memory={"working_peak_bytes": peak_bytes, "requested_bytes": of})


def took(run_seconds: float, *, of: int) -> JobSummary:
    return make_summary(record={"time_limit_seconds": of}, run_seconds=run_seconds)


def on_nodes(*peaks: float, requested_bytes: float) -> JobSummary:
    nodes = tuple(NodeSummary(node=f"n{index}", working_peak_bytes=peak) for index, peak in enumerate(peaks))
    memory = {"working_peak_bytes": sum(peaks), "requested_bytes": requested_bytes}
    return make_summary(record={"node_count": len(peaks)}, memory=memory, nodes=nodes)


TASKS = (StepRecord(name="0", state="COMPLETED", tasks=4),)
MIXED = (StepRecord(name="0", state="COMPLETED", tasks=2), StepRecord(name="extern", state="COMPLETED", tasks=9))


@pytest.mark.parametrize(
    ("rule", "summary", "expected"),
    [
        ("cpu_idle", make_summary(busy=0.5, cpu={"peak_cores": 2.1}), "#SBATCH --cpus-per-task=2"),
        ("cpu_idle", make_summary(busy=0.5, cpu={"peak_cores": 2.5}), "#SBATCH --cpus-per-task=3"),
        ("cpu_idle", make_summary(busy=0.5, cpu={"peak_cores": 4.0}), ""),
        ("cpu_idle", make_summary(busy=0.5, cpu={"peak_cores": None}), ""),
        ("cpu_idle", make_summary(busy=0.5, record={"node_count": 2}), ""),
        (
            "cpu_idle",
            make_summary(busy=0.5, record={"steps": TASKS, "submit_line": "sbatch --mem=8G x"}),
            "",
        ),
        ("cpu_idle", make_summary(busy=0.5, record={"steps": MIXED}), ""),
        ("serial_code", make_summary(busy=0.25), "#SBATCH --cpus-per-task=1"),
        (
            "serial_code",
            make_summary(busy=0.25, record={"steps": TASKS, "submit_line": "sbatch --mem=8G x"}),
            "",
        ),
        # 0.8 GiB x 1.2 = 983 MiB, up to the next quarter of a GiB.
        ("memory_over_requested", needed(0.8 * GIB), "#SBATCH --mem=1G"),
        # 1.2 GiB = 1229 MiB, up to 1280.
        ("memory_over_requested", needed(GIB), "#SBATCH --mem=1280M"),
        # At least 512 MiB.
        ("memory_over_requested", needed(1.0), "#SBATCH --mem=512M"),
        # 20 GiB x 1.2 = 24 GiB; 30 x 1.2 = 36 GiB exactly on a step of 4; 400 x 1.2 = 480; 600 x 1.2 = 720, up to 768.
        ("memory_over_requested", needed(20 * GIB, of=90 * GIB), "#SBATCH --mem=24G"),
        ("memory_over_requested", needed(30 * GIB, of=90 * GIB), "#SBATCH --mem=36G"),
        ("memory_over_requested", needed(399 * GIB, of=900 * GIB), "#SBATCH --mem=480G"),
        ("memory_over_requested", needed(600 * GIB, of=2000 * GIB), "#SBATCH --mem=768G"),
        # 1280 MiB for 4 cores are 320 MiB for each.
        (
            "memory_over_requested",
            make_summary(record={"submit_line": "sbatch --mem-per-cpu=2G x"}, memory={"working_peak_bytes": GIB}),
            "#SBATCH --mem-per-cpu=320M",
        ),
        # The neediest of two nodes had 3 GiB: 3.6, up to 3.75 GiB.
        ("memory_over_requested", on_nodes(GIB, 3 * GIB, requested_bytes=16 * GIB), "#SBATCH --mem=3840M"),
        # One node alone needs more than half of everything: nothing to save there.
        ("memory_over_requested", on_nodes(0.0, 7 * GIB, requested_bytes=16 * GIB), ""),
        ("memory_near_limit", on_nodes(8 * GIB, requested_bytes=8 * GIB), "#SBATCH --mem=10G"),
        ("oom_kill", make_summary(record={"state": "OUT_OF_MEMORY"}), "#SBATCH --mem=16G"),
        ("oom_kill", make_summary(record={"state": "OUT_OF_MEMORY"}, memory={"requested_bytes": None}), ""),
        # 2 h x 1.5 = 3 h; 20 min x 1.5 = 30 min; 40 h x 1.5 = 60 h, in steps of 6 h.
        ("time_over_requested", took(7200.0, of=86400), "#SBATCH --time=03:00:00"),
        ("time_over_requested", took(1200.0, of=86400), "#SBATCH --time=00:30:00"),
        ("time_over_requested", took(144000.0, of=864000), "#SBATCH --time=2-12:00:00"),
        ("timed_out", make_summary(record={"state": "TIMEOUT"}), "#SBATCH --time=04:30:00"),
        ("timed_out", make_summary(record={"state": "TIMEOUT", "time_limit_seconds": None}), ""),
        ("timed_out", make_summary(record={"state": "TIMEOUT"}, cpu={"idle_tail_seconds": 720.0}), ""),
        ("gpu_held_without_process", with_gpus(4, held_idle=3), ""),
        ("gpu_held_without_process", with_gpus(2, held_idle=2), ""),
        ("node_imbalance", with_nodes(4.0, 0.0, 0.1, 4.0), "#SBATCH --nodes=2"),
        ("node_imbalance", with_nodes(4.0, 1.0), ""),
        ("too_many_nodes", make_summary(record={"node_count": 8, "cpus": 40, "submit_line": "sbatch job.sh"}), ""),
        (
            "too_many_nodes",
            make_summary(record={"node_count": 8, "cpus": 40, "submit_line": "sbatch -N8 -n40 job.sh"}),
            # 8 GiB in all.
            "#SBATCH --nodes=3 --mem=2731M",
        ),
        (
            "too_many_nodes",
            make_summary(
                record={
                    "node_count": 8,
                    "cpus": 16,
                    "submit_line": "sbatch --nodes=8 --ntasks-per-node=2 --mem=4G x.sh",
                },
                memory={"requested_bytes": 32 * GIB, "working_peak_bytes": 20 * GIB},
            ),
            # 16 tasks and 32 GiB, on one node instead of eight.
            "#SBATCH --nodes=1 --ntasks-per-node=16 --mem=32G",
        ),
        (
            "too_many_threads",
            make_summary(program_threads={"a": 99.0}),
            "export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}",
        ),
        ("too_many_threads", make_summary(program_threads={"a": 99.0}, record={"steps": TASKS}), ""),
    ],
)
def test_suggestion_is_computed_from_what_the_job_did(rule: str, summary: JobSummary, expected: str) -> None:
    assert [expected] == [finding.suggestion for finding in all_findings(summary) if finding.rule == rule]
