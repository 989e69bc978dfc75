# SPDX-License-Identifier: Apache-2.0
"""Export the processes that jobs trace, also under the names of the older Slurm exporter.

::

    slurm_trace_memory_rss_bytes{jobid="4711",host="n1",pid="812",rank="0",step="0",command="python3"} 52428800
    slurm_proc_mem_usage{jobid="4711",username="ada"} 209715200

The older names have no label for the process: their values are sums over all traced processes of a job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from slurmscope.collectors.job_info import CPUS, MEMORY
from slurmscope.collectors.trace_metrics import TRACE_METRICS, trace_families
from slurmscope.metrics.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family, Metric, compat_gauge
from slurmscope.model.trace import TracedProcess, Traces, TraceSample


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
        yield Family(MEMORY, memory)


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
    metrics=(*TRACE_METRICS, *COMPAT_METRICS, CPUS, MEMORY),
    collect=collect,
)
