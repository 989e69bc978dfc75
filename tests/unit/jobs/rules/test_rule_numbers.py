# SPDX-License-Identifier: Apache-2.0
"""The numbers of each finding, and its minimum run time; all figures are worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurmscope.jobs.checkpoints import Checkpoints
from slurmscope.jobs.findings import resolve_thresholds
from slurmscope.jobs.record import StepRecord
from slurmscope.jobs.rule import Finding, requested_cores, step_cores, step_nodes
from slurmscope.jobs.summary import GpuWork, HeldGpu, JobSummary, NodeSummary
from tests.fakes.job_summaries import (
    GIB,
    all_findings,
    covered,
    in_kernel,
    make_summary,
    with_cores,
    with_gpus,
    with_io,
    with_nodes,
)
from tests.fakes.reports import START

THRESHOLDS = resolve_thresholds({})
PER_CORE = {"submit_line": "sbatch --mem-per-cpu=2G x"}


def found(rule: str, summary: JobSummary, thresholds: dict[str, float] | None = None) -> Finding:
    (finding,) = (finding for finding in all_findings(summary, thresholds) if finding.rule == rule)
    return finding


def on_two_nodes(*peaks: float, **changed: Any) -> JobSummary:
    """Make a job on two nodes of four cores, with 16 GiB in all and no limit that is known."""
    nodes = tuple(NodeSummary(node=f"n{i}", working_peak_bytes=peak, cpus=4.0) for i, peak in enumerate(peaks))
    return make_summary(
        record={"node_count": 2, "cpus": 8, **changed},
        memory={"requested_bytes": 16 * GIB, "working_peak_bytes": sum(peaks)},
        nodes=nodes,
        coverage=covered(2),
    )


@pytest.mark.parametrize(
    ("rule", "summary", "numbers", "texts"),
    [
        (
            "cpu_idle",
            make_summary(busy=0.5, cpu={"peak_cores": 2.0}),
            {"busy_ratio": 0.5, "mean_cores": 2.0, "cores": 4.0, "enough_cores": 2.0},
            ["2 of 4 cores", "50 %"],
        ),
        (
            "cpu_uneven_over_time",
            make_summary(busy=0.375, cpu={"peak_cores": 3.0}),
            {"mean_cores": 1.5, "peak_cores": 3.0, "mean_to_peak_ratio": 0.5},
            ["3 cores", "1.5 on average", "50 %"],
        ),
        # 3,400 s of four cores are 850 s each.
        (
            "core_imbalance",
            with_cores(1000.0, 1000.0, 1000.0, 400.0),
            {"cores_behind": 1.0, "least_seconds": 400.0, "mean_seconds": 850.0},
            ["1 of 4 cores", "80 %", "6 min 40 s", "14 min 10 s"],
        ),
        (
            "core_imbalance",
            with_cores(1000.0, 400.0),
            {"cores_behind": 1.0, "least_seconds": 400.0, "mean_seconds": 700.0},
            ["1 of 2 cores"],
        ),
        (
            "serial_code",
            make_summary(busy=0.25),
            {"mean_cores": 1.0, "cores": 4.0, "enough_cores": 1.0},
            ["1 of 4 cores"],
        ),
        (
            "stopped_early",
            make_summary(cpu={"idle_tail_seconds": 1800.0}),
            {"idle_seconds": 1800.0, "idle_ratio": 0.25},
            ["30 min", "25 %", "2 h"],
        ),
        (
            "memory_over_requested",
            make_summary(memory={"working_peak_bytes": 2 * GIB}),
            {"requested_bytes": 8 * GIB, "peak_bytes": 2 * GIB, "used_ratio": 0.25},
            ["8 GiB", "2 GiB", "25 %"],
        ),
        (
            "memory_over_requested",
            make_summary(memory={"working_peak_bytes": None, "slurm_peak_bytes": 2 * GIB}),
            {"requested_bytes": 8 * GIB, "peak_bytes": 2 * GIB, "used_ratio": 0.25},
            ["8 GiB", "at most 2 GiB", "25 %", "samples rarely"],
        ),
        # Half of 16 GiB is 8 GiB for each node; the node nearest to its limit counts.
        (
            "memory_near_limit",
            on_two_nodes(2 * GIB, 7.75 * GIB),
            {"peak_bytes": 7.75 * GIB, "limit_bytes": 8 * GIB, "used_ratio": 0.96875},
            ["On n1", "7.75 GiB", "8 GiB", "97 %"],
        ),
        ("oom_kill", make_summary(memory={"oom_kills": 2}), {"oom_kills": 2.0}, ["2 times", "8 GiB"]),
        (
            "oom_kill",
            make_summary(memory={"oom_kills": None}, record={"state": "OUT_OF_MEMORY"}),
            {},
            ["8 GiB"],
        ),
        ("oom_kill", on_two_nodes(GIB, GIB, state="OUT_OF_MEMORY"), {"oom_kills": 0.0}, ["8 GiB"]),
        (
            "oom_kill",
            make_summary(record={"state": "FAILED", "exit_signal": 9}, memory={"working_peak_bytes": 10 * GIB}),
            {"peak_bytes": 10 * GIB, "requested_bytes": 8 * GIB, "used_ratio": 1.25},
            ["10 GiB of 8 GiB per node (125 %)"],
        ),
        (
            "memory_growing",
            make_summary(memory={"growth_ratio": 1.5}),
            {"growth_ratio": 1.5, "peak_bytes": 6 * GIB},
            ["1.5 times", "6 GiB"],
        ),
        (
            "time_over_requested",
            make_summary(record={"time_limit_seconds": 28800}),
            {"limit_seconds": 28800.0, "run_seconds": 7200.0, "used_ratio": 0.25},
            ["8 h", "2 h", "25 %"],
        ),
        (
            "timed_out",
            make_summary(record={"state": "TIMEOUT"}),
            {"limit_seconds": 10800.0},
            ["3 h"],
        ),
        ("timed_out", make_summary(record={"state": "TIMEOUT", "time_limit_seconds": None}), {}, []),
        ("too_short", make_summary(run_seconds=30.0), {"run_seconds": 30.0}, ["30 s"]),
        ("gpu_idle", with_gpus(mean_utilization=0.01), {"utilization_ratio": 0.01, "gpus": 2.0}, ["2 GPUs", "1.0 %"]),
        ("gpu_held_without_process", with_gpus(4, held_idle=3), {"idle_gpus": 3.0, "gpus": 4.0}, ["3 of 4 GPUs"]),
        (
            "gpu_low",
            with_gpus(mean_utilization=0.2, peak_memory_bytes=3 * GIB),
            {"utilization_ratio": 0.2, "gpus": 2.0, "peak_memory_bytes": 3 * GIB},
            ["2 GPUs", "20 %", "3 GiB"],
        ),
        (
            "gpu_busy_without_work",
            with_gpus(work=GpuWork(busy_ratio=0.99, sm_ratio=0.0076)),
            {"busy_ratio": 0.99, "sm_ratio": 0.0076},
            ["99 %", "0.8 %"],
        ),
        (
            "gpu_tensor_unused",
            with_gpus(work=GpuWork(fp32_ratio=0.76, tensor_ratio=0.01)),
            {"fp32_ratio": 0.76, "tensor_ratio": 0.01},
            ["76 %", "1.0 %"],
        ),
        ("gpu_memory_bound", with_gpus(work=GpuWork(dram_ratio=0.88)), {"dram_ratio": 0.88}, ["88 %"]),
        (
            "kernel_time",
            in_kernel(27.0, 73.0, 240_000),
            {"system_seconds": 73.0, "system_ratio": 0.73, "moved_bytes": 120_000 * 1024.0, "calls": 240_000.0},
            ["1 min 13 s", "73 %", "117 MiB", "240,000 calls"],
        ),
        (
            "scratch_unused",
            with_io(uses_scratch=False, storage_bytes=3 * GIB),
            {"moved_bytes": 3 * GIB},
            ["3 GiB"],
        ),
        # 4 GiB in 2,048 files are 2 MiB each.
        (
            "small_files",
            with_io(peak_open_files=2048.0, read_bytes=GIB, write_bytes=3 * GIB),
            {"open_files": 2048.0, "moved_bytes": 4 * GIB, "bytes_per_file": float(2 << 20)},
            ["2,048 files", "2 MiB"],
        ),
        # 1,440,000 in 7,200 s.
        (
            "metadata_storm",
            with_io(metadata_operations=1_440_000.0),
            {"operations": 1_440_000.0, "operations_per_second": 200.0},
            ["1,440,000", "200 requests"],
        ),
        # 14,400,000 calls in 7,200 s, 100 bytes each.
        (
            "tiny_requests",
            with_io(reads=14e6, writes=4e5, read_bytes=1.44e9, write_bytes=0.0),
            {"calls": 14_400_000.0, "bytes_per_call": 100.0, "calls_per_second": 2000.0},
            ["100 B", "14,400,000 calls"],
        ),
        (
            "too_many_threads",
            make_summary(program_threads={"a": 9.0, "b": 12.0}, mean_running_threads=6.0),
            {"cores": 4.0, "most_threads": 12.0, "mean_running_threads": 6.0},
            ["b had 12 threads", "4 cores"],
        ),
        # 4, 4 and 1 of 4 cores: 3 on average, three quarters of each node.
        (
            "node_imbalance",
            with_nodes(4.0, 4.0, 1.0),
            {"nodes_behind": 1.0, "idle_nodes": 0.0, "mean_cores": 3.0, "mean_busy_ratio": 0.75},
            ["1 of 3 nodes", "n2 had 25 %", "75 %"],
        ),
        # 40 cores need 3 nodes of 16.
        (
            "too_many_nodes",
            make_summary(record={"node_count": 8, "cpus": 40}),
            {"nodes": 8.0, "cores": 40.0, "enough_nodes": 3.0},
            ["8 nodes", "5 cores", "1 GiB", "3 nodes"],
        ),
        ("node_failed", make_summary(record={"state": "NODE_FAIL"}), {}, ["while the job ran"]),
        ("node_failed", make_summary(record={"state": "BOOT_FAIL"}), {}, ["boot"]),
    ],
)
def test_finding_has_its_numbers(rule: str, summary: JobSummary, numbers: dict[str, float], texts: list[str]) -> None:
    finding = found(rule, summary)

    assert {**THRESHOLDS[rule], **numbers} == finding.numbers
    assert [] == [text for text in texts if text not in finding.explanation]


ONE_GPU = (HeldGpu(node="n1", gpu="0", mean_utilization=0.73),)
ONE_OF_TWO = (*ONE_GPU, HeldGpu(node="n1", gpu="1", mean_utilization=0.0))
LAUNCHING = GpuWork(busy_ratio=0.5, sm_ratio=0.0, pcie_bytes=9e9)
BUSY_FILES: dict[str, Any] = {"reads": 1e9, "writes": 0.0, "read_bytes": 1e10, "write_bytes": 0.0}
MIN_RUN_SECONDS = [
    ("cpu_idle", 300.0, make_summary(busy=0.5)),
    ("cpu_uneven_over_time", 300.0, make_summary(busy=0.5, cpu={"peak_cores": 4.0})),
    ("core_imbalance", 300.0, with_cores(1000.0, 400.0)),
    ("serial_code", 300.0, make_summary(busy=0.25)),
    ("memory_over_requested", 300.0, make_summary(memory={"working_peak_bytes": GIB})),
    ("memory_growing", 1800.0, make_summary(memory={"growth_ratio": 2.0})),
    ("time_over_requested", 900.0, make_summary(record={"time_limit_seconds": 864000})),
    (
        "lost_since_checkpoint",
        300.0,
        make_summary(record={"state": "TIMEOUT"}, checkpoints=Checkpoints(3, 7200.0, 60.0, START - 20_000.0)),
    ),
    ("gpu_held_without_process", 300.0, with_gpus(held_idle=2)),
    ("gpu_idle", 300.0, with_gpus(mean_utilization=0.0)),
    ("gpu_low", 300.0, with_gpus(mean_utilization=0.1)),
    ("gpu_busy_without_work", 300.0, with_gpus(work=GpuWork(busy_ratio=1.0, sm_ratio=0.0))),
    ("gpu_tensor_unused", 60.0, with_gpus(work=GpuWork(fp32_ratio=1.0, tensor_ratio=0.0))),
    ("gpu_memory_bound", 60.0, with_gpus(work=GpuWork(dram_ratio=1.0))),
    (
        "gpu_stuck",
        300.0,
        with_gpus(devices=(HeldGpu(node="n1", gpu="0", stuck_seconds=900.0, stuck_since_seconds=0.0),)),
    ),
    ("gpu_only_copies", 60.0, with_gpus(work=GpuWork(sm_ratio=0.0, pcie_bytes=1e18), devices=ONE_GPU)),
    ("gpu_launch_bound", 60.0, with_gpus(work=LAUNCHING, devices=ONE_GPU)),
    ("gpu_starved", 300.0, with_gpus(work=GpuWork(busy_ratio=0.2))),
    ("gpu_some_idle", 300.0, with_gpus(devices=ONE_OF_TWO)),
    ("gpu_unused_memory", 300.0, with_gpus(mean_utilization=0.0, peak_memory_bytes=1e12)),
    ("gpu_throttled", 300.0, with_gpus(work=GpuWork(throttled_seconds={"thermal": 6000.0}))),
    ("metadata_storm", 60.0, with_io(metadata_operations=1e9)),
    ("tiny_requests", 60.0, with_io(**BUSY_FILES)),
    ("scratch_unused", 300.0, with_io(uses_scratch=False, storage_bytes=2 * GIB)),
    ("kernel_time", 60.0, in_kernel(31.0, 73.0, 240_000)),
    ("node_imbalance", 300.0, with_nodes(4.0, 0.0)),
    (
        "network_fallback",
        300.0,
        make_summary(record={"node_count": 2}, sent_bytes={"ethernet": 1e15, "infiniband": 0.0}),
    ),
    ("too_many_nodes", 300.0, make_summary(record={"node_count": 2})),
    ("cpu_queued", 300.0, make_summary(cpu={"queue_ratio": 0.5})),
    ("memory_thrashing", 300.0, make_summary(memory={"refaults_per_second": {"anon": 1e4}})),
]


@pytest.mark.parametrize(("rule", "seconds", "summary"), MIN_RUN_SECONDS, ids=[row[0] for row in MIN_RUN_SECONDS])
def test_job_is_judged_from_the_minimum_run_time_on(rule: str, seconds: float, summary: JobSummary) -> None:
    def rules_after(run_seconds: float) -> set[str]:
        return {finding.rule for finding in all_findings(replace(summary, run_seconds=run_seconds))}

    assert rule in rules_after(seconds)
    assert rule in rules_after(seconds + 1)
    assert rule not in rules_after(seconds - 1)


def test_every_minimum_run_time_is_tested() -> None:
    assert {rule: values["min_run_seconds"] for rule, values in THRESHOLDS.items() if "min_run_seconds" in values} == {
        "too_short": 60.0
    } | {rule: seconds for rule, seconds, _ in MIN_RUN_SECONDS}


def test_minimum_run_time_of_most_rules_is_one_threshold() -> None:
    def rules_after(run_seconds: float, summary: JobSummary) -> set[str]:
        found = all_findings(replace(summary, run_seconds=run_seconds), {"min_run_seconds": 200.0})
        return {finding.rule for finding in found}

    for rule, seconds, summary in MIN_RUN_SECONDS:
        shortest = 200.0 if seconds == 300.0 else seconds
        assert rule in rules_after(shortest, summary)
        assert rule not in rules_after(shortest - 1, summary)


def test_node_is_idle_below_a_share_of_the_mean() -> None:
    # 4, 4 and c of 4 cores: the mean is (8 + c) / 12, a twentieth of it is c / 4 at c = 8 / 59 = 0.1356.
    assert 0 == found("node_imbalance", with_nodes(4.0, 4.0, 0.136)).numbers["idle_nodes"]
    assert 1 == found("node_imbalance", with_nodes(4.0, 4.0, 0.135)).numbers["idle_nodes"]


@pytest.mark.parametrize(("per_node", "enough"), [(2.0, 2.0), (1.0, 4.0), (0.5, 4.0)])
def test_a_node_has_at_least_one_core(per_node: float, enough: float) -> None:
    summary = replace(make_summary(record={"node_count": 8, "cpus": 4}), node_cpus=per_node)

    assert enough == found("too_many_nodes", summary).numbers["enough_nodes"]


def test_lists_name_no_rest_where_there_is_none() -> None:
    # Five nodes and ten programs are named.
    nodes = found("node_imbalance", with_nodes(*[4.0] * 8, *[0.0] * 5)).explanation
    programs = found("too_many_threads", make_summary(program_threads={f"p{n}": 20.0 for n in range(10)})).explanation

    assert "more" not in nodes
    assert "more" not in programs


def test_programs_with_equally_many_threads_are_named_in_alphabetical_order() -> None:
    text = found("too_many_threads", make_summary(program_threads={"b": 20.0, "a": 20.0, "c": 30.0})).explanation

    assert text.index("c had") < text.index("a had") < text.index("b had")


def test_cores_that_did_the_work_are_counted_only_if_others_did_not() -> None:
    def text(used: int) -> str:
        return found("cpu_idle", make_summary(busy=0.5, cpu={"peak_cores": 2.0, "cores_used": used})).explanation

    assert "3 cores did nearly all" in text(3)
    assert "nearly all" not in text(4)


def test_load_is_uneven_from_a_peak_of_one_core_on() -> None:
    finding = found("cpu_uneven_over_time", make_summary(busy=0.1, cpu={"peak_cores": 1.0}))

    assert 0.4 == finding.numbers["mean_to_peak_ratio"]


@pytest.mark.parametrize("name", ["0", "10", "0+1"])
def test_step_without_a_number_of_tasks_has_one(name: str) -> None:
    steps = (StepRecord(name=name, state="COMPLETED", tasks=None),)
    summary = make_summary(busy=0.5, record={"steps": steps, "submit_line": "sbatch --mem=8G x"})

    assert "#SBATCH --cpus-per-task=2" == found("cpu_idle", summary).suggestion


@pytest.mark.parametrize(("tasks", "is_suggested"), [(1, True), (2, False)])
def test_threads_are_limited_in_a_job_of_one_task(tasks: int, is_suggested: bool) -> None:
    steps = (StepRecord(name="0", state="COMPLETED", tasks=tasks),)
    summary = make_summary(program_threads={"a": 99.0}, record={"steps": steps})

    assert is_suggested == bool(found("too_many_threads", summary).suggestion)


@pytest.mark.parametrize(
    ("rule", "summary", "expected"),
    [
        # 8 GiB for each node, twice as much is 16 GiB, for 4 cores 4 GiB each.
        ("oom_kill", on_two_nodes(GIB, GIB, state="OUT_OF_MEMORY", **PER_CORE), "#SBATCH --mem-per-cpu=4G"),
        # 6.5 GiB x 1.2 = 7.8, up to 8 GiB: no less than each node had.
        ("memory_over_requested", on_two_nodes(0.0, 6.5 * GIB), ""),
        # 5.5 GiB x 1.2 = 6.6, up to 7 GiB: less than a fifth below 8 GiB makes no difference.
        ("memory_over_requested", on_two_nodes(0.0, 5.5 * GIB), ""),
        # 4.5 GiB x 1.2 = 5.4, up to 6 GiB.
        ("memory_over_requested", on_two_nodes(0.0, 4.5 * GIB), "#SBATCH --mem=6G"),
        # Nodes are unknown: half of 6 GiB each, x 1.2 = 3.6, up to 3.75 GiB.
        (
            "memory_over_requested",
            make_summary(
                record={"node_count": 2, "cpus": 8}, nodes=(),
                memory={"requested_bytes": 16 * GIB, "working_peak_bytes": 6 * GIB},
            ),
            "#SBATCH --mem=3840M",
        ),
        # Which node needed how much, with how many cores, is not known.
        (
            "memory_over_requested",
            make_summary(
                record={"node_count": 2, "cpus": 8, **PER_CORE}, nodes=(),
                memory={"requested_bytes": 16 * GIB, "working_peak_bytes": 6 * GIB},
            ),
            "",
        ),
        # 4 tasks on each of 6 nodes are 24; 2 nodes have 12 each. 10 GiB of 6 nodes are 30 GiB for each of 2.
        (
            "too_many_nodes",
            make_summary(
                record={"node_count": 6, "cpus": 24, "submit_line": "sbatch -N6 --ntasks-per-node=4 --mem=10G x"},
                memory={"requested_bytes": 60 * GIB, "working_peak_bytes": 40 * GIB},
            ),
            "#SBATCH --nodes=2 --ntasks-per-node=12 --mem=30G",
        ),
        # 16 h x 1.5 = 24 h.
        (
            "timed_out",
            make_summary(record={"state": "TIMEOUT", "time_limit_seconds": 57600}),
            "#SBATCH --time=1-00:00:00",
        ),
        # 2 h x 1.5 = 3 h.
        (
            "time_over_requested",
            make_summary(record={"time_limit_seconds": 14401}, run_seconds=7200.0),
            "#SBATCH --time=03:00:00",
        ),
    ],
)  # fmt: skip
def test_line_is_computed_from_what_the_job_did(rule: str, summary: JobSummary, expected: str) -> None:
    assert expected == found(rule, summary).suggestion


def test_peak_that_slurm_saw_does_not_raise_the_need_of_other_nodes() -> None:
    # 10 GiB x 1.2 = 12 GiB on 4 cores are 3 GiB; MaxRSS of 10 GiB is that of this node.
    nodes = (
        NodeSummary(node="n0", working_peak_bytes=10 * GIB, cpus=4.0),
        NodeSummary(node="n1", working_peak_bytes=2 * GIB, cpus=2.0),
    )
    summary = make_summary(
        record={"node_count": 2, "cpus": 6, **PER_CORE},
        memory={"requested_bytes": 120 * GIB, "working_peak_bytes": 12 * GIB, "slurm_peak_bytes": 10 * GIB},
        nodes=nodes,
        coverage=covered(2),
    )

    assert "#SBATCH --mem-per-cpu=3G" == found("memory_over_requested", summary).suggestion


@pytest.mark.parametrize(
    ("tail", "expected"),
    # A tenth of 7,200 s; less is not worth a sentence, and more time is suggested.
    [(719.0, False), (720.0, True), (721.0, True)],
)
def test_timed_out_job_is_stuck_from_a_tenth_of_its_run_on(tail: float, expected: bool) -> None:
    finding = found("timed_out", make_summary(record={"state": "TIMEOUT"}, cpu={"idle_tail_seconds": tail}))

    assert expected == ("12 min" in finding.explanation)
    assert expected == (not finding.suggestion)


def test_all_requested_memory_counts_where_cores_are_unknown() -> None:
    # 1 GiB of each core is free, but there is none.
    memory = {"requested_bytes": GIB, "working_peak_bytes": 0.0}

    assert (
        GIB
        == found("memory_over_requested", make_summary(record={"cpus": None}, memory=memory)).numbers["requested_bytes"]
    )


def test_uneven_nodes_are_named_where_they_keep_memory_from_getting_less() -> None:
    def is_named(summary: JobSummary) -> bool:
        return "one node needed most of it" in found("memory_over_requested", summary).advice

    steps = (StepRecord(name="0", state="COMPLETED", tasks=1, request="--mem=8G"),)
    kept = make_summary(record={"steps": steps}, memory={"working_peak_bytes": GIB})

    assert is_named(on_two_nodes(0.0, 6.5 * GIB))
    assert not is_named(on_two_nodes(0.0, 4.5 * GIB))
    assert not is_named(kept)


def test_unknown_peak_is_no_growth() -> None:
    summary = make_summary(memory={"growth_ratio": 2.0, "working_peak_bytes": None})

    assert "memory_growing" not in {each.rule for each in all_findings(summary)}


def test_files_in_tmpfs_are_named_from_three_tenths_of_the_need_on() -> None:
    memory = {"requested_bytes": 16 * GIB, "oom_kills": 1, "working_peak_bytes": 10 * GIB}
    unmeasured = {"oom_kills": 1, "working_peak_bytes": None}

    assert (
        "3 GiB were shared"
        in found("oom_kill", make_summary(memory=memory | {"shared_peak_bytes": 3 * GIB})).explanation
    )
    assert "were shared" not in found("oom_kill", make_summary(memory=unmeasured)).explanation


def test_step_requests_the_cores_of_all_its_tasks() -> None:
    steps = (StepRecord(name="0", state="COMPLETED", tasks=3, request="-c2 -N2-4"),)
    summary = make_summary(record={"steps": steps})

    assert (6, 2) == (step_cores(summary), step_nodes(summary))
    assert (0, 0) == (step_cores(make_summary()), step_nodes(make_summary()))


def test_unknown_cores_were_not_requested() -> None:
    assert 0 == requested_cores(make_summary(record={"cpus": None}))


@pytest.mark.parametrize(("calls", "expected"), [(0.0, []), (1.0, [10.0])])
def test_one_call_has_a_size_and_none_has_not(calls: float, expected: list[float]) -> None:
    summary = with_io(reads=calls, writes=0.0, read_bytes=10.0, write_bytes=0.0)
    thresholds = {"tiny_requests.min_calls": 0.0, "tiny_requests.min_calls_per_second": 0.0}
    findings = [each for each in all_findings(summary, thresholds) if each.rule == "tiny_requests"]

    assert expected == [each.numbers["bytes_per_call"] for each in findings]


def test_run_of_five_seconds_that_hung_gets_no_more_time() -> None:
    hung = make_summary(record={"state": "TIMEOUT"}, run_seconds=5.0, cpu={"idle_tail_seconds": 4.0})

    assert "" == found("timed_out", hung).suggestion
