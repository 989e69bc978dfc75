# SPDX-License-Identifier: Apache-2.0
"""Answer queries about simulated workloads like a Prometheus server that had sampled them.

Nothing is stored. A curve has its points at the ends of equal steps; each is what a sample at that moment says, and a
rate is the growth since the sample before, the first being that of the start. JobTotals are made of the same samples.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from uuid import NAMESPACE_DNS, uuid5

from slurmscope.core.errors import ServerTimedOut
from slurmscope.jobs.series import (
    JOB_LABEL,
    NODE_LABEL,
    Aggregation,
    Curves,
    JobSpan,
    JobTotals,
    Series,
    SeriesQuery,
    SeriesSource,
)
from slurmscope.simulator.history.workloads import GpuLoad, GpuProgram, NodeWorkload, Workload

LabelledValues = Iterable[tuple[tuple[str, ...], float]]
WorkloadSample = tuple[str, tuple[tuple[str, str], ...], float]

IDLE_GPU_WATTS, OPENED_GPU_WATTS = 87.0, 123.0
"""Power of a GPU that no process has opened, and of one with a process that does nothing."""
SPINNING_SM_RATIO = 0.0076
"""Share of the multiprocessors that one spinning thread keeps busy."""
CORE_WATTS, BUSY_CORE_WATTS = 3.0, 5.0


@dataclass(frozen=True, slots=True)
class WorkloadMetric:
    """The further labels of a metric and its values at a given time; what is not measured is left out."""

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
    def values_at(node: NodeWorkload, at: float) -> LabelledValues:
        return [((str(gpu.number), ""), value(node, gpu, at)) for gpu in node.gpus]

    return WorkloadMetric(("gpu", "mig"), values_at)


def _counted(value: Callable[[NodeWorkload, GpuLoad, float], float]) -> WorkloadMetric:
    """Make a number for each GPU whose hardware has counters."""

    def values_at(node: NodeWorkload, at: float) -> LabelledValues:
        return [((str(gpu.number), ""), value(node, gpu, at)) for gpu in node.gpus if gpu.has_counters]

    return WorkloadMetric(("gpu", "mig"), values_at)


def _gpu_joules(node: NodeWorkload, gpu: GpuLoad, at: float) -> float:
    idle = OPENED_GPU_WATTS if gpu.has_process else IDLE_GPU_WATTS
    return idle * at + (gpu.program.watts - OPENED_GPU_WATTS) * node.worked_seconds(gpu, at)


def _worked(share: Callable[[GpuProgram], float]) -> WorkloadMetric:
    return _counted(lambda node, gpu, at: share(gpu.program) * node.worked_seconds(gpu, at))


def _transferred(_node: NodeWorkload, gpu: GpuLoad, at: float) -> float:
    return gpu.program.pcie_bytes * min(at, gpu.stuck_seconds) if gpu.has_process else 0.0


def _of_kind(name: str, kind: str, value: Callable[[NodeWorkload, GpuLoad, float], float | None]) -> WorkloadMetric:
    """Make a number for each GPU that has one, with a label for its only kind."""

    def values_at(node: NodeWorkload, at: float) -> LabelledValues:
        for gpu in node.gpus:
            if (number := value(node, gpu, at)) is not None:
                yield (str(gpu.number), "", kind or str(gpu.program.xid)), number

    return WorkloadMetric(("gpu", "mig", name), values_at)


def _node_joules(node: NodeWorkload, at: float) -> LabelledValues:
    parts = {
        "gpu": math.fsum(_gpu_joules(node, gpu, at) for gpu in node.gpus),
        "base": CORE_WATTS * len(node.work.cores) * at,
        "cpu": BUSY_CORE_WATTS * node.cpu_seconds(at),
    }
    return [((part, "node"), joules) for part, joules in parts.items()]


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
        # The simulated agents read every job after its last process.
        "jobs_memory_peak_final": _one(lambda _node, _at: 1.0),
        "jobs_memory_file_bytes": _one(lambda node, at: node.memory.file_bytes(at)),
        "jobs_memory_limit_bytes": _one(lambda node, _at: node.memory.limit_bytes),
        "jobs_memory_events_total": WorkloadMetric(("event",), _events),
        "jobs_io_read_bytes_total": _one(NodeWorkload.read_bytes),
        "jobs_io_write_bytes_total": _one(NodeWorkload.written_bytes),
        "jobs_io_reads_total": _one(lambda node, at: node.read_bytes(at) // node.files.piece_bytes),
        "jobs_io_writes_total": _one(lambda node, at: node.written_bytes(at) // node.files.piece_bytes),
        "jobs_storage_read_bytes_total": _one(NodeWorkload.read_bytes),
        "jobs_storage_write_bytes_total": _one(NodeWorkload.written_bytes),
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
        "jobs_gpu_busy_seconds_total": _held(NodeWorkload.one_gpu_seconds),
        "jobs_gpu_sm_active_seconds_total": _counted(
            lambda node, gpu, at: (
                gpu.program.sm * node.worked_seconds(gpu, at) + SPINNING_SM_RATIO * max(0.0, at - gpu.stuck_seconds)
            )
        ),
        "jobs_gpu_tensor_active_seconds_total": _worked(lambda program: program.tensor),
        "jobs_gpu_dram_active_seconds_total": _worked(lambda program: program.dram),
        "jobs_gpu_pipe_active_seconds_total": _of_kind(
            "pipe",
            "fp32",
            lambda node, gpu, at: gpu.program.fp32 * node.worked_seconds(gpu, at) if gpu.has_counters else None,
        ),
        "jobs_gpu_throttled_seconds_total": _of_kind(
            "reason", "thermal", lambda node, gpu, at: gpu.program.thermal * node.worked_seconds(gpu, at)
        ),
        "jobs_gpu_pcie_received_bytes_total": _counted(_transferred),
        "jobs_gpu_pcie_transmitted_bytes_total": _counted(lambda node, gpu, at: 0.05 * _transferred(node, gpu, at)),
        "jobs_gpu_faults_total": _of_kind("xid", "", lambda _node, gpu, at: 1.0 if at >= gpu.fault_seconds else None),
        "jobs_gpu_fault_timestamp_seconds": _of_kind(
            "xid", "", lambda _node, gpu, at: gpu.fault_at_seconds if at >= gpu.fault_seconds else None
        ),
        "jobs_gpu_energy_joules_total": _held(_gpu_joules),
        "jobs_energy_joules_total": WorkloadMetric(("part", "covers"), _node_joules),
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


SHORTEST_STEP_SECONDS = 10
POINTS = 120
"""How many points a curve has at most, whatever was requested: enough for a chart, and quick for thousands of jobs."""

LabelValues = tuple[str, ...]
ValuesByLabels = dict[LabelValues, list[float]]


class SimulatedSeries:
    """Compute answers from workloads; a job without one is left out. Safe for any thread."""

    max_concurrent_queries = 1

    def __init__(
        self, find_workload: Callable[[int], Workload | None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Take a function that returns the workload of a job ID."""
        self._find_workload = find_workload
        self._clock = clock

    def read_curves(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, points: int, until: float) -> Curves:
        """Return curves of at most so many points each."""
        curves: dict[int, tuple[Series, ...]] = {}
        for span, workload in self._found(spans, until):
            ends = step_ends(span, min(points, POINTS))
            rows = _sample(wanted, workload, [span.start_seconds, *ends])
            made = (Series(labels, ends, _points(wanted.how, ends, span, row)) for labels, row in rows.items())
            if answer := tuple(made):
                curves[span.job_id] = answer
        return Curves(curves)

    def read_totals(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, until: float) -> JobTotals:
        """Return one number per series, over the whole span of each job."""
        totals: dict[int, dict[LabelValues, float]] = {}
        for span, workload in self._found(spans, until):
            rows = _sample(wanted, workload, step_ends(span, POINTS))
            if answer := {labels: _total(wanted.how, span, row) for labels, row in rows.items()}:
                totals[span.job_id] = answer
        return JobTotals(totals)

    def _found(self, spans: Sequence[JobSpan], until: float) -> list[tuple[JobSpan, Workload]]:
        if self._clock() > until:
            raise ServerTimedOut("simulated jobs were not queried in time")
        return [(span, workload) for span in spans if (workload := self._find_workload(span.job_id)) is not None]


class SplitSeries:
    """Query one source for some jobs and another for all others."""

    max_concurrent_queries = 1

    def __init__(self, one: SeriesSource, is_of_one: Callable[[int], bool], other: SeriesSource) -> None:
        """Take the sources, and the function that chooses between them."""
        self._one = one
        self._is_of_one = is_of_one
        self._other = other

    def read_curves(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, points: int, until: float) -> Curves:
        """Return what both sources return."""
        answers = [source.read_curves(wanted, own, points=points, until=until) for source, own in self._split(spans)]
        by_job = {job_id: curves for answer in answers for job_id, curves in answer.by_job.items()}
        return Curves(by_job, frozenset[int]().union(*(answer.lost_jobs for answer in answers)))

    def read_totals(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, until: float) -> JobTotals:
        """Return what both sources return."""
        answers = [source.read_totals(wanted, own, until=until) for source, own in self._split(spans)]
        by_job = {job_id: totals for answer in answers for job_id, totals in answer.by_job.items()}
        return JobTotals(by_job, frozenset[int]().union(*(answer.lost_jobs for answer in answers)))

    def _split(self, spans: Sequence[JobSpan]) -> list[tuple[SeriesSource, list[JobSpan]]]:
        ones = {span.job_id for span in spans if self._is_of_one(span.job_id)}
        parts = (
            (self._one, [span for span in spans if span.job_id in ones]),
            (self._other, [span for span in spans if span.job_id not in ones]),
        )
        return [(source, own) for source, own in parts if own]


class SeriesByCluster:
    """Query the source of the cluster whose jobs are meant; other clusters may have the same job IDs."""

    max_concurrent_queries = 1

    def __init__(self, members: Mapping[str, SeriesSource]) -> None:
        """Take the source of each cluster, by name."""
        self._members = members

    def read_curves(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, points: int, until: float) -> Curves:
        """Return what the source of the cluster returns; nothing for an unknown cluster."""
        source = self._members.get(wanted.cluster)
        return source.read_curves(wanted, spans, points=points, until=until) if source else Curves()

    def read_totals(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, until: float) -> JobTotals:
        """Return what the source of the cluster returns; nothing for an unknown cluster."""
        source = self._members.get(wanted.cluster)
        return source.read_totals(wanted, spans, until=until) if source else JobTotals()


def step_ends(span: JobSpan, points: int) -> tuple[float, ...]:
    """Return the moments at which a span is sampled; the last one is its end."""
    length = span.end_seconds - span.start_seconds
    step = max(SHORTEST_STEP_SECONDS, math.ceil(length / max(1, points)))
    count = max(0, math.ceil(length / step))
    return tuple(min(span.end_seconds, span.start_seconds + step * (index + 1)) for index in range(count))


def _sample(wanted: SeriesQuery, workload: Workload, moments: Sequence[float]) -> ValuesByLabels:
    """Sample one metric, and add up what the query does not separate."""
    metric = METRICS.get(wanted.metric)
    if metric is None or not moments:
        return {}
    rows: ValuesByLabels = {}
    for node in workload.nodes:
        for labels, row in _sample_node(
            metric, node, [max(0.0, at - workload.start_seconds) for at in moments]
        ).items():
            named = {NODE_LABEL: node.name, **dict(zip(metric.labels, labels, strict=True))}
            is_wanted = all(named.get(name, "") == value for name, value in wanted.where)
            if is_wanted and all(named.get(name, "") in values for name, values in wanted.among):
                _add(rows, tuple(named.get(name, "") for name in wanted.by), row)
    return rows


def _sample_node(
    metric: WorkloadMetric, node: NodeWorkload, moments: Collection[float]
) -> Mapping[LabelValues, list[float]]:
    rows: ValuesByLabels = {}
    for at in moments:
        for labels, number in metric.values_at(node, at):
            rows.setdefault(labels, []).append(number)
    return rows


def _add(rows: ValuesByLabels, labels: LabelValues, row: list[float]) -> None:
    before = rows.get(labels)
    rows[labels] = row if before is None else [one + other for one, other in zip(before, row, strict=True)]


def _points(how: Aggregation, ends: Sequence[float], span: JobSpan, row: Sequence[float]) -> tuple[float, ...]:
    if how is not Aggregation.RATE:
        return tuple(row[1:])
    moments = (span.start_seconds, *ends)
    lengths = (after - before for before, after in pairwise(moments))
    return tuple((after - before) / length for (before, after), length in zip(pairwise(row), lengths, strict=True))


def _total(how: Aggregation, span: JobSpan, row: Sequence[float]) -> float:
    if how in {Aggregation.MAX, Aggregation.TOTAL}:
        return max(row)
    if how is Aggregation.MEAN:
        return math.fsum(row) / len(row)
    return row[-1] / (span.end_seconds - span.start_seconds)
