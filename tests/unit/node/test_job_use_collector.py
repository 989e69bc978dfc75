# SPDX-License-Identifier: Apache-2.0
"""Check that values of a job are exported as measured, and left out if not measured."""

from __future__ import annotations

from typing import Any

from slurmscope.node.job_use import (
    BlockUse,
    CgroupUse,
    CpuUse,
    GroupKey,
    HeldProcess,
    IoUse,
    JobKey,
    JobUse,
    MemoryUse,
    NodeJobs,
    ProcessUse,
)
from slurmscope.node.jobs import COLLECTOR, JobUseOptions

MIB = 1024 * 1024
WHOLE = CgroupUse(
    cpu=CpuUse(
        total_seconds=12.5,
        user_seconds=10.0,
        system_seconds=2.5,
        core_seconds={2: 8.0, 3: 4.5},
        cores=(2, 3),
        periods=100,
        throttled_periods=7,
        throttled_seconds=0.5,
    ),
    memory=MemoryUse(
        current_bytes=300 * MIB,
        anon_bytes=200 * MIB,
        file_bytes=90 * MIB,
        shmem_bytes=5 * MIB,
        kernel_bytes=1 * MIB,
        mapped_file_bytes=2 * MIB,
        swap_bytes=0,
        peak_bytes=310 * MIB,
        limit_bytes=512 * MIB,
        swap_limit_bytes=64 * MIB,
        events={"oom_kill": 1, "max": 9},
        refaults={"anon": 0, "file": 25},
        numa_bytes={"local": 190 * MIB, "remote": 100 * MIB},
    ),
    pressure_seconds={("cpu", "some"): 1.5, ("io", "full"): 0.25},
    block={"8:0": BlockUse(read_bytes=1, write_bytes=2, reads=3, writes=4)},
    pids=11,
    pids_limit=100,
)
PROCESSES = ProcessUse(
    processes=3,
    threads_in={"running": 2, "sleeping": 6},
    resident_bytes=250 * MIB,
    minor_faults=1000,
    major_faults=2,
    voluntary_switches=50,
    involuntary_switches=60,
    queue_seconds=4.5,
    threads_of={"python3": 8},
    most_threads_of={"python3": 5},
    cpu_seconds_of={"python3": 12.0},
    threads_on_core={2: 1, 3: 7},
    open_files=40,
    distinct_files=38,
    worst_file_ratio=0.25,
    uses_scratch=True,
    io=IoUse(read_chars=10 * MIB, write_chars=50 * MIB, reads=100, writes=200, read_bytes=7 * MIB, write_bytes=8 * MIB),
    held_processes=1,
    held=(HeldProcess(412, "hpl", "3", "stopped", 61.0),),
)
JOB = JobUse(
    key=JobKey(4711),
    uid=1001,
    busy_cores=1.5,
    groups={GroupKey(): WHOLE, GroupKey("0", "1"): WHOLE},
    processes=PROCESSES,
    environment={"SLURM_JOB_ACCOUNT": "physics", "SLURM_JOB_PARTITION": "debug"},
)
LABELS = ("4711", "")


def collect(*jobs: JobUse, options: JobUseOptions | None = None) -> dict[str, Any]:
    node_jobs = NodeJobs(
        jobs=jobs,
        users={1001: "alice"},
        layout="v1",
        available={"cgroup": True, "io": False},
        stale_cgroups=2,
        read_errors={"job": 0, "process_stat": 3},
    )
    families = COLLECTOR.collect(options or JobUseOptions(), node_jobs=node_jobs)
    return {family.metric.name: dict(family.samples) for family in families}


def test_read_errors_are_counted_by_kind() -> None:
    assert {("job",): 0, ("process_stat",): 3} == collect(JOB)["slurmscope_node_read_errors_total"]


def test_values_of_the_cgroup_are_exported() -> None:
    served = collect(JOB)

    assert {LABELS: 12.5} == served["jobs_cpu_seconds_total"]
    assert {LABELS: 2} == served["jobs_cores"]
    assert {(*LABELS, "2"): 8.0, (*LABELS, "3"): 4.5} == served["jobs_cpu_core_seconds_total"]
    assert {LABELS: 310 * MIB} == served["jobs_memory_peak_bytes"]
    assert {(*LABELS, "oom_kill"): 1, (*LABELS, "max"): 9} == served["jobs_memory_events_total"]
    assert {(*LABELS, "cpu", "some"): 1.5, (*LABELS, "io", "full"): 0.25} == served["jobs_pressure_seconds_total"]
    assert {(*LABELS, "8:0"): 2} == served["jobs_block_write_bytes_total"]
    assert {LABELS: 0} == served["jobs_memory_swap_bytes"]
    placed = {(*LABELS, "local"): 190 * MIB, (*LABELS, "remote"): 100 * MIB}
    assert placed == served["jobs_memory_numa_bytes"]


def test_values_of_the_processes_are_exported() -> None:
    served = collect(JOB)

    assert {LABELS: 50 * MIB} == served["jobs_io_write_bytes_total"]
    assert {(*LABELS, "minor"): 1000, (*LABELS, "major"): 2} == served["jobs_page_faults_total"]
    assert {(*LABELS, "voluntary"): 50, (*LABELS, "involuntary"): 60} == served["jobs_context_switches_total"]
    assert {LABELS: 4.5} == served["jobs_run_queue_wait_seconds_total"]
    assert {(*LABELS, "running"): 2, (*LABELS, "sleeping"): 6} == served["jobs_threads"]


def test_owner_is_exported_by_name_and_uid() -> None:
    assert {(*LABELS, "alice", "1001", "physics", "debug", "false"): 1} == collect(JOB)["jobs_info"]
    unknown = JobUse(key=JobKey(5), uid=7777)
    assert {("5", "", "7777", "7777", "", "", "false"): 1} == collect(unknown)["jobs_info"]


def test_kept_names_have_their_older_units() -> None:
    served = collect(JOB)

    assert {LABELS: 1000} == served["jobs_user_time"]
    assert {LABELS: 250} == served["jobs_system_time"]
    assert {LABELS: 150} == served["jobs_cpu_percent"]
    assert {LABELS: 75} == served["jobs_cpu_percent_per_core"]
    assert {LABELS: 250} == served["jobs_rss"]
    assert {LABELS: 7} == served["jobs_read_mb"]
    assert {LABELS: 8} == served["jobs_write_mb"]
    assert {(*LABELS, "python3"): 5} == served["jobs_thread_count"]


def test_use_of_scratch_is_exported_where_it_was_measured() -> None:
    assert {LABELS: 1} == collect(JOB)["jobs_uses_scratch"]


def test_what_was_not_measured_is_left_out() -> None:
    served = collect(JobUse(key=JobKey(5)))

    assert {
        "jobs_on_node": {(): 1},
        "jobs_stale_cgroups": {(): 2},
        "jobs_layout_info": {("v1",): 1},
        "slurmscope_source_available": {("cgroup",): 1, ("io",): 0},
        "slurmscope_node_read_errors_total": {("job",): 0, ("process_stat",): 3},
        "jobs_info": {("5", "", "", "", "", "", "false"): 1},
    } == {name: samples for name, samples in served.items() if samples}


def test_ended_job_shows_whether_its_peak_is_final() -> None:
    groups = {GroupKey(): WHOLE}
    ended = [JobUse(key=JobKey(n), has_ended=True, is_peak_final=bool(n), groups=groups) for n in (0, 1)]
    expected = {("0", ""): 0.0, ("1", ""): 1.0, LABELS: 0.0}
    assert expected == collect(*ended, JOB, JobUse(key=JobKey(5), has_ended=True))["jobs_memory_peak_final"]


def test_of_two_runs_of_a_job_id_the_running_one_is_exported() -> None:
    ended = JobUse(
        key=JobKey(4711, sluid="s1"), has_ended=True, groups={GroupKey(): CgroupUse(cpu=CpuUse(total_seconds=99))}
    )

    served = collect(ended, JOB)

    assert {LABELS: 12.5} == served["jobs_cpu_seconds_total"]
    assert {(): 1} == served["jobs_on_node"]


def test_same_job_on_two_virtual_nodes_has_two_series() -> None:
    jobs = [JobUse(key=JobKey(7, node), groups={GroupKey(): WHOLE}) for node in ("n1", "n2")]

    assert {("7", "n1"): 12.5, ("7", "n2"): 12.5} == collect(*jobs)["jobs_cpu_seconds_total"]


def test_jobs_without_a_node_name_have_the_host_name() -> None:
    jobs = [JobUse(key=JobKey(7, node), groups={GroupKey(): WHOLE}) for node in ("", "n2")]
    families = COLLECTOR.collect(JobUseOptions(), node_jobs=NodeJobs(jobs=tuple(jobs), host_name="n17"))
    (seconds,) = [dict(family.samples) for family in families if family.metric.name == "jobs_cpu_seconds_total"]

    assert {("7", "n17"): 12.5, ("7", "n2"): 12.5} == seconds


def test_steps_are_exported_if_enabled() -> None:
    assert "jobs_step_cpu_seconds_total" not in collect(JOB)
    served = collect(JOB, options=JobUseOptions(steps=True))

    assert {(*LABELS, "0", "1"): 12.5} == served["jobs_step_cpu_seconds_total"]
    assert {(*LABELS, "0", "1"): 1} == served["jobs_step_oom_kills_total"]


def test_every_declared_metric_is_served() -> None:
    served = collect(JOB, options=JobUseOptions(steps=True))

    assert {metric.name for metric in COLLECTOR.metrics} == {name for name, samples in served.items() if samples}


def test_processes_whose_io_is_closed_to_us_have_no_io() -> None:
    served = collect(JobUse(key=JobKey(5), processes=ProcessUse(processes=2)))

    assert {("5", ""): 2} == served["jobs_spawned_processes"]
    assert {} == served["jobs_write_mb"]
