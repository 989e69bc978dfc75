# SPDX-License-Identifier: Apache-2.0
"""Join tracing to the node agent: export the processes that jobs on this node trace through its socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

from slurmscope.core.settings import Section
from slurmscope.exporter.collector import Collector, NoOptions, Role
from slurmscope.exporter.feature import Feature, Host, Running
from slurmscope.exporter.reading import SharedReading
from slurmscope.metrics.family import Family, Labels, Metric, counter, gauge
from slurmscope.node.settings import PathSettings
from slurmscope.trace.samples import TracedProcess, Traces, TraceSample
from slurmscope.trace.settings import NodeTraceSettings, check_forwarding

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


def collect(options: NoOptions, *, traces: Traces) -> Iterator[Family]:  # noqa: ARG001 - the protocol
    yield from trace_families(traces)


COLLECTOR = Collector(
    name="traces",
    role=Role.NODE,
    help="Processes that jobs trace through the agent's socket; exports nothing unless trace.socket is set.",
    needs=("traces",),
    metrics=TRACE_METRICS,
    collect=collect,
)

ADVICE = "check the path of its socket and the directory, which the unit creates while the agent runs"


def _open(host: Host) -> Running:
    settings, paths = host.config.of(NodeTraceSettings), host.config.of(PathSettings)
    check_forwarding(settings)
    jobs = host.readings["node_jobs"]

    def share(read: Callable[[], Traces]) -> tuple[SharedReading]:
        return (SharedReading("traces", read, interval_seconds=jobs.interval_seconds, advice=ADVICE),)

    if settings.socket is None:
        return Running(readings=share(Traces))
    # Imported here: most nodes trace nothing, and need no server on a socket.
    from slurmscope.trace.node_endpoint import NodeTracing

    tracing = NodeTracing(settings.socket, settings, jobs, paths.below_root(paths.procfs))
    stack = ExitStack()
    stack.enter_context(tracing.open())
    return Running(readings=share(tracing.read), close=stack.close)


NODE_TRACING = Feature(
    name="trace", sections=(Section(name="trace", type=NodeTraceSettings),), collectors=(COLLECTOR,), open=_open
)
