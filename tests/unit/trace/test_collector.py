# SPDX-License-Identifier: Apache-2.0
"""Check the series of traced processes against hand-worked numbers."""

from __future__ import annotations

from slurmscope.exporter.collector import NoOptions
from slurmscope.trace import cluster_endpoint as traces
from slurmscope.trace import node_collector as node_traces
from slurmscope.trace.samples import RunningJobOwner, TracedProcess, Traces, TraceSample

OWNER = RunningJobOwner(4711, 1000, "ada", "physics", "RUNNING", "n[1-2]", 8, 17179869184)
RANK_0 = TraceSample(
    job_id=4711, pid=812, cpu_percent=150.0, threads=4.0, memory_bytes=1000.0, read_bytes=10.0, write_bytes=20.0,
    command="solver", rank=0, step="0", cpu_seconds=61.5, start_time_seconds=1700000000.0,
)  # fmt: skip
PROCESSES = (
    TracedProcess(OWNER, "n1", "token", RANK_0),
    TracedProcess(OWNER, "n1", "token", RANK_0._replace(pid=800, rank=1, memory_bytes=500.0)),
    TracedProcess(OWNER, "n2", "socket", RANK_0._replace(rank=2, cpu_seconds=None, memory_bytes=None)),
    TracedProcess(RunningJobOwner(5, 1001, "eve"), "n2", "plain", TraceSample(job_id=5)),
)
ALL = Traces(processes=PROCESSES, accepted=9, refused={"owner": 2, "job": 1}, is_enabled=True)


def collected(reading: Traces) -> dict[str, dict[tuple[str, ...], float]]:
    return {family.metric.name: dict(family.samples) for family in traces.collect(NoOptions(), traces=reading)}  # type: ignore[arg-type]


def test_each_process_has_its_own_series() -> None:
    found = collected(ALL)
    rank_0 = ("4711", "n1", "812", "0", "0", "solver")
    rank_1 = ("4711", "n1", "800", "1", "0", "solver")
    rank_2 = ("4711", "n2", "812", "2", "0", "solver")
    assert {rank_0: 61.5, rank_1: 61.5} == found["slurm_trace_cpu_seconds_total"]
    assert {rank_0: 1.5, rank_1: 1.5, rank_2: 1.5} == found["slurm_trace_cpu_cores"]
    assert {rank_0: 1000.0, rank_1: 500.0} == found["slurm_trace_memory_rss_bytes"]
    assert {4.0} == set(found["slurm_trace_threads"].values())
    assert {10.0} == set(found["slurm_trace_read_bytes_total"].values())
    assert {20.0} == set(found["slurm_trace_write_bytes_total"].values())
    assert {1700000000.0} == set(found["slurm_trace_start_time_seconds"].values())


def test_older_names_are_sums_over_the_job() -> None:
    found = collected(ALL)
    assert {("4711", "ada"): 450.0} == found["slurm_proc_cpu_usage"]
    assert {("4711", "ada"): 1500.0} == found["slurm_proc_mem_usage"]
    assert {("4711", "ada"): 12.0} == found["slurm_proc_threadcount"]
    assert {("4711", "ada"): 30.0} == found["slurm_proc_read_bytes"]
    assert {("4711", "ada"): 60.0} == found["slurm_proc_write_bytes"]
    assert {("4711", "n1"): 800, ("4711", "n2"): 812} == found["slurm_proc_pid"]


def test_allocation_of_traced_jobs_is_slurms() -> None:
    found = collected(ALL)
    assert {("4711",): 8} == found["slurm_job_cpu_alloc"]
    assert {("4711",): 17179869184} == found["slurm_job_mem_alloc"]


def test_allocation_is_left_to_the_collector_that_has_all_jobs() -> None:
    found = collected(Traces(processes=PROCESSES, is_enabled=True, has_allocations=False))
    assert "slurm_job_cpu_alloc" not in found


def test_posts_are_counted() -> None:
    found = collected(ALL)
    assert {(): 9} == found["slurmscope_trace_samples_total"]
    assert {("job",): 1, ("owner",): 2} == found["slurmscope_trace_refused_total"]
    assert {(): 4} == found["slurmscope_trace_processes"]


def test_nothing_is_exported_without_tracing() -> None:
    assert not any(collected(Traces()).values())
    assert [] == list(node_traces.collect(NoOptions(), traces=Traces()))


def test_node_has_the_series_of_processes_only() -> None:
    names = {family.metric.name for family in node_traces.collect(NoOptions(), traces=ALL)}
    assert {metric.name for metric in node_traces.COLLECTOR.metrics} == names
    assert not any(name.startswith("slurm_proc_") for name in names)
