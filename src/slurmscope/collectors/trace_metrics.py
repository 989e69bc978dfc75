# SPDX-License-Identifier: Apache-2.0
"""Declare and fill the metrics of traced processes that both exporters serve.

::

    slurm_trace_cpu_seconds_total{jobid="4711",host="n1",pid="812",rank="0",step="0",command="python3"} 61.5
    slurmscope_trace_refused_total{reason="owner"} 3
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from slurmscope.metrics.family import Family, Labels, Metric, counter, gauge
from slurmscope.model.trace import TracedProcess, Traces, TraceSample

LABELS = ("jobid", "host", "pid", "rank", "step", "command")

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
