# SPDX-License-Identifier: Apache-2.0
"""Express the workload of a simulated job in the metrics that a node agent serves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from uuid import NAMESPACE_DNS, uuid5

from slurmscope.model.series import JOB_LABEL, NODE_LABEL
from slurmscope.simulate.history.workloads import GpuLoad, NodeWorkload, Workload

LabelledValues = Iterable[tuple[tuple[str, ...], float]]
WorkloadSample = tuple[str, tuple[tuple[str, str], ...], float]


@dataclass(frozen=True, slots=True)
class WorkloadMetric:
    """Hold the further labels of a metric and its values at a given time; what is not measured is left out."""

    labels: tuple[str, ...]
    values_at: Callable[[NodeWorkload, float], LabelledValues]


def samples_at(workloads: Iterable[Workload], now_seconds: float) -> Iterator[WorkloadSample]:
    """Yield every sample that the agents of all nodes would serve at this time."""
    for workload in workloads:
        at = now_seconds - workload.start_seconds
        if at < 0:
            continue
        for node in workload.nodes:
            own = ((JOB_LABEL, str(workload.job_id)), (NODE_LABEL, node.name))
            for name, metric in METRICS.items():
                for values, number in metric.values_at(node, at):
                    yield name, (*own, *zip(metric.labels, values, strict=True)), number


def _one(value: Callable[[NodeWorkload, float], float | None]) -> WorkloadMetric:
    def values_at(node: NodeWorkload, at: float) -> LabelledValues:
        number = value(node, at)
        return () if number is None else (((), number),)

    return WorkloadMetric((), values_at)


def _cores(node: NodeWorkload, at: float) -> LabelledValues:
    if not node.counts_cores:
        return ()
    done = node.work.done_seconds(at)
    return [((str(number),), busy * done) for number, busy in enumerate(node.work.cores)]


def _events(node: NodeWorkload, at: float) -> LabelledValues:
    kills = float(at >= node.memory.killed_seconds)
    return ((("oom_kill",), kills), (("max",), 9 * kills))


def _thread_states(node: NodeWorkload, at: float) -> LabelledValues:
    running = node.threads.running * node.work.load(at)
    return ((("running",), running), (("sleeping",), node.threads.count - running))


def _held(value: Callable[[NodeWorkload, GpuLoad, float], float]) -> WorkloadMetric:
    """Make a number for each GPU that the job holds."""

    def values_at(node: NodeWorkload, at: float) -> LabelledValues:
        return [((str(gpu.number), ""), value(node, gpu, at)) for gpu in node.gpus]

    return WorkloadMetric(("gpu", "mig"), values_at)


def _held_info(node: NodeWorkload, _at: float) -> LabelledValues:
    # A GPU of a node keeps its UUID from job to job.
    return [
        ((str(gpu.number), "", f"GPU-{uuid5(NAMESPACE_DNS, f'{node.name}/{gpu.number}')}", gpu.model), 1.0)
        for gpu in node.gpus
    ]


def _traced(value: Callable[[NodeWorkload, float, float], float]) -> WorkloadMetric:
    """Make a number for each traced rank; ``value`` takes the node, the time, and the rank's share of the work."""

    def values_at(node: NodeWorkload, at: float) -> LabelledValues:
        ranks, cores = node.traced_ranks, node.work.cores
        for rank in ranks:
            labels = ("0", str(rank), str(2000 + rank), node.threads.program)
            yield labels, value(node, at, math.fsum(cores[rank :: len(ranks)]) / math.fsum(cores))

    return WorkloadMetric(("step", "rank", "pid", "command"), values_at)


METRICS: Mapping[str, WorkloadMetric] = MappingProxyType(
    {
        "jobs_cpu_seconds_total": _one(NodeWorkload.cpu_seconds),
        "jobs_cpu_user_seconds_total": _one(lambda node, at: (1 - node.work.system_ratio) * node.cpu_seconds(at)),
        "jobs_cpu_system_seconds_total": _one(lambda node, at: node.work.system_ratio * node.cpu_seconds(at)),
        "jobs_cpu_core_seconds_total": WorkloadMetric(("core",), _cores),
        "jobs_busy_cores": _one(NodeWorkload.busy_cores),
        "jobs_cores": _one(lambda node, _at: float(len(node.work.cores))),
        "jobs_memory_anon_bytes": _one(lambda node, at: node.memory.anon_bytes(at)),
        "jobs_memory_shmem_bytes": _one(lambda node, _at: node.memory.shared_bytes),
        "jobs_memory_rss_bytes": _one(lambda node, at: node.memory.anon_bytes(at) + node.memory.shared_bytes),
        "jobs_memory_peak_bytes": _one(lambda node, at: node.memory.charged_bytes(at)),
        "jobs_memory_limit_bytes": _one(lambda node, _at: node.memory.limit_bytes),
        "jobs_memory_events_total": WorkloadMetric(("event",), _events),
        "jobs_io_read_bytes_total": _one(NodeWorkload.read_bytes),
        "jobs_io_write_bytes_total": _one(NodeWorkload.written_bytes),
        "jobs_io_reads_total": _one(lambda node, at: node.read_bytes(at) // node.files.piece_bytes),
        "jobs_io_writes_total": _one(lambda node, at: node.written_bytes(at) // node.files.piece_bytes),
        "jobs_distinct_files": _one(lambda node, _at: node.files.open_files),
        "jobs_uses_scratch": _one(lambda node, _at: float(node.files.uses_scratch)),
        "jobs_threads": WorkloadMetric(("state",), _thread_states),
        "jobs_program_threads": WorkloadMetric(
            ("program",), lambda node, _at: [((node.threads.program,), node.threads.count), (("bash",), 1.0)]
        ),
        "jobs_gpu_utilization_ratio": _one(NodeWorkload.gpu_ratio),
        "jobs_gpu_memory_bytes": _one(NodeWorkload.gpu_bytes),
        "jobs_gpu_held_idle": _held(lambda _node, gpu, _at: float(not gpu.has_process)),
        "jobs_gpu_held_device_info": WorkloadMetric(("gpu", "mig", "uuid", "model"), _held_info),
        "jobs_gpu_held_jobs": _held(lambda _node, _gpu, _at: 1.0),
        "jobs_gpu_held_memory_size_bytes": _held(lambda _node, gpu, _at: gpu.memory_size_bytes),
        "jobs_gpu_held_memory_bytes": _held(NodeWorkload.one_gpu_bytes),
        "jobs_gpu_held_utilization_ratio": _held(NodeWorkload.one_gpu_ratio),
        "slurm_trace_cpu_seconds_total": _traced(lambda node, at, share: share * node.cpu_seconds(at)),
        "slurm_trace_cpu_cores": _traced(lambda node, at, share: share * node.busy_cores(at)),
        "slurm_trace_memory_rss_bytes": _traced(lambda node, at, share: share * node.memory.anon_bytes(at)),
        "slurm_trace_threads": _traced(
            lambda node, _at, _share: max(1.0, node.threads.count // len(node.traced_ranks))
        ),
        "slurm_trace_read_bytes_total": _traced(lambda node, at, share: share * node.read_bytes(at)),
        "slurm_trace_write_bytes_total": _traced(lambda node, at, share: share * node.written_bytes(at)),
    }
)
"""Every metric that reports of jobs query."""
