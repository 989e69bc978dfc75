# SPDX-License-Identifier: Apache-2.0
"""Export the processes that jobs trace, also under the names of the older Slurm exporter.

::

    slurm_trace_memory_rss_bytes{slurm_job="4711",slurm_node="n1",pid="812",rank="0",...} 52428800
    slurm_proc_mem_usage{jobid="4711",username="ada"} 209715200

The older names have no label for the process: their values are sums over all traced processes of a job.

::

    slurm_trace_cpu_seconds_total{slurm_job="4711",slurm_node="n1",pid="812",rank="0",...} 61.5
    slurmscope_trace_refused_total{reason="owner"} 3
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from slurmscope.cluster.job_info import CPUS
from slurmscope.cluster.job_info import MEMORY as JOB_MEMORY
from slurmscope.exporter.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family, Labels, Metric, compat_gauge, counter, gauge
from slurmscope.trace.samples import TracedProcess, Traces, TraceSample

LABELS = ("slurm_job", "slurm_node", "pid", "rank", "step", "command")

CPU = counter("slurm_trace_cpu_seconds_total", "CPU time of a traced process in seconds.", *LABELS)
CORES = gauge("slurm_trace_cpu_cores", "Cores that a traced process kept busy before its last sample.", *LABELS)
MEMORY = gauge("slurm_trace_memory_rss_bytes", "Resident memory of a traced process in bytes.", *LABELS)
THREADS = gauge("slurm_trace_threads", "Threads of a traced process.", *LABELS)
READ = counter("slurm_trace_read_bytes_total", "Bytes that a traced process read.", *LABELS)
WRITTEN = counter("slurm_trace_write_bytes_total", "Bytes that a traced process wrote.", *LABELS)
START = gauge("slurm_trace_start_time_seconds", "Unix time at which a traced process started.", *LABELS)

ACCEPTED = counter("slurmscope_trace_samples_total", "Accepted samples of traced processes.")
REFUSED = counter(
    "slurmscope_trace_refused_total", "Refused posts of trace samples by reason; see docs/tracing.md.", "reason"
)
PROCESSES = gauge("slurmscope_trace_processes", "Traced processes whose last sample has not expired.")

_VALUES: tuple[tuple[Metric, Callable[[TraceSample], float | None]], ...] = (
    (CPU, lambda sample: sample.cpu_seconds),
    (CORES, lambda sample: None if sample.cpu_percent is None else sample.cpu_percent / 100),
    (MEMORY, lambda sample: sample.memory_bytes),
    (THREADS, lambda sample: sample.threads),
    (READ, lambda sample: sample.read_bytes),
    (WRITTEN, lambda sample: sample.write_bytes),
    (START, lambda sample: sample.start_time_seconds),
)
TRACE_METRICS = (*(metric for metric, _ in _VALUES), ACCEPTED, REFUSED, PROCESSES)


def trace_families(traces: Traces) -> Iterator[Family]:
    """Yield one series per process and value, and the counters of samples."""
    if not traces.is_enabled:
        return
    rows = [(_labels(process), process.sample) for process in traces.processes]
    for metric, value_of in _VALUES:
        yield Family(metric, {labels: value for labels, sample in rows if (value := value_of(sample)) is not None})
    yield Family(ACCEPTED, {(): traces.accepted})
    yield Family(REFUSED, {(reason,): count for reason, count in sorted(traces.refused.items())})
    yield Family(PROCESSES, {(): len(traces.processes)})


def _labels(process: TracedProcess) -> Labels:
    sample = process.sample
    return (
        str(sample.job_id),
        process.host,
        _text(sample.pid),
        _text(sample.rank),
        sample.step or "",
        sample.command or "",
    )


def _text(number: int | None) -> str:
    return "" if number is None else str(number)


def _sum_over_processes(name: str, what: str) -> Metric:
    return compat_gauge(
        f"slurm_proc_{name}", f"{what}, summed over all traced processes of a job.", "jobid", "username"
    )


PROC_PID = compat_gauge("slurm_proc_pid", "Lowest PID of the traced processes of a job on a host.", "jobid", "hostname")
_SUMS: tuple[tuple[Metric, Callable[[TraceSample], float | None]], ...] = (
    (_sum_over_processes("cpu_usage", "CPU usage in percent of one core"), lambda sample: sample.cpu_percent),
    (_sum_over_processes("mem_usage", "Resident memory in bytes"), lambda sample: sample.memory_bytes),
    (_sum_over_processes("threadcount", "Threads"), lambda sample: sample.threads),
    (_sum_over_processes("write_bytes", "Bytes written"), lambda sample: sample.write_bytes),
    (_sum_over_processes("read_bytes", "Bytes read"), lambda sample: sample.read_bytes),
)
COMPAT_METRICS = (PROC_PID, *(metric for metric, _ in _SUMS))


def collect(options: NoOptions, *, traces: Traces) -> Iterator[Family]:  # noqa: ARG001 - the protocol
    """Yield one series per process, the sums under the older names, and the allocation of traced jobs."""
    yield from trace_families(traces)
    yield Family(PROC_PID, _lowest_pids(traces.processes))
    for metric, value_of in _SUMS:
        yield Family(metric, _sums(traces.processes, value_of))
    if traces.has_allocations:
        owners = {process.owner.job_id: process.owner for process in traces.processes}.values()
        yield Family(CPUS, {(str(job.job_id),): job.cpus for job in owners if job.cpus is not None})
        memory = {(str(job.job_id),): job.memory_bytes for job in owners if job.memory_bytes is not None}
        yield Family(JOB_MEMORY, memory)


def _lowest_pids(processes: tuple[TracedProcess, ...]) -> dict[tuple[str, str], float]:
    pids: dict[tuple[str, str], float] = {}
    for process in processes:
        if (pid := process.sample.pid) is not None:
            labels = (str(process.sample.job_id), process.host)
            pids[labels] = min(pid, pids.get(labels, pid))
    return pids


def _sums(
    processes: tuple[TracedProcess, ...], value_of: Callable[[TraceSample], float | None]
) -> dict[tuple[str, str], float]:
    sums: defaultdict[tuple[str, str], float] = defaultdict(float)
    for process in processes:
        if (value := value_of(process.sample)) is not None:
            sums[str(process.sample.job_id), process.owner.user] += value
    return dict(sums)


COLLECTOR = Collector(
    name="traces",
    role=Role.CLUSTER,
    help="Processes that jobs trace; exports nothing unless trace.enabled is on.",
    needs=("traces",),
    metrics=(*TRACE_METRICS, *COMPAT_METRICS, CPUS, JOB_MEMORY),
    collect=collect,
)
