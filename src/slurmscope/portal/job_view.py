# SPDX-License-Identifier: Apache-2.0
"""Parse the form that predicts what a job would have done with another request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slurmscope.core.units import (
    DAY_SECONDS,
    NOT_MEASURED,
    format_bytes,
    format_count,
    format_ratio,
    format_seconds,
    format_some,
    parse_bytes,
    parse_time_limit,
)
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.rule import Severity, Subject
from slurmscope.jobs.suggestions import memory_line, time_line
from slurmscope.jobs.summary import Coverage, CpuSummary, GpuSummary, MemorySummary, NodeSummary
from slurmscope.jobs.what_if import OtherRequest
from slurmscope.portal.queries import BadQuery

_CORE_WIDTH, _CORE_HEIGHT = 5, 20
MAX_NODES = 100
"""Nodes shown on the page; the files contain all of them."""
_MAX_CORES = 4096
"""Cores drawn on the page, over all nodes."""


class ResourceRow(NamedTuple):
    label: str
    requested: str
    used: str
    ratio: float | None
    note: str = ""
    subject: Subject | None = Subject.CPU
    """What the ratio is rated as; None if it is not rated."""


class CoreStrip(NamedTuple):
    """The drawing of a node's cores: one path with a bar per core, because thousands of elements are slow."""

    path: str
    cores: int
    idlest: float
    busiest: float
    width: int
    height: int = _CORE_HEIGHT


class NodeRow(NamedTuple):
    node: NodeSummary
    cpu_ratio: float | None
    memory_ratio: float | None
    cores: CoreStrip | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """What the page shows in addition to the texts of the report."""

    is_live: bool
    resources: tuple[ResourceRow, ...]
    nodes: tuple[NodeRow, ...]
    nodes_left_out: int
    subjects: dict[Subject, Severity]
    """The worst severity per subject, shown on its charts."""
    runs: tuple[JobReport, ...]


def make_job_view(report: JobReport, runs: Sequence[JobReport]) -> JobView:
    """Prepare a report and the earlier runs of its job."""
    nodes = report.summary.nodes[:MAX_NODES]
    draws_cores = sum(len(node.core_seconds) for node in nodes) <= _MAX_CORES
    return JobView(
        is_live=not report.record.has_ended,
        resources=_compare_resources(report),
        nodes=tuple(_node_row(node, report.summary.run_seconds, draws_cores=draws_cores) for node in nodes),
        nodes_left_out=len(report.summary.nodes) - len(nodes),
        subjects=_subjects(report),
        runs=tuple(runs),
    )


def _compare_resources(report: JobReport) -> tuple[ResourceRow, ...]:
    summary, record = report.summary, report.record
    limit = "no limit" if summary.time.requested is None else format_seconds(summary.time.requested)
    return (
        ResourceRow("Time", limit, format_seconds(summary.time.used), summary.time.ratio, subject=Subject.TIME),
        ResourceRow("Nodes", f"{record.node_count:,}", _count_busy_nodes(summary.nodes), None),
        *_cpu_rows(summary.cpu, record.cpus),
        _memory_row(summary.memory),
        *_gpu_rows(summary.gpu, max(summary.gpu.requested, record.gpus)),
    )


def _cpu_rows(cpu: CpuSummary, cores: int | None) -> Iterator[ResourceRow]:
    note = "" if cpu.time.used is None else _describe_coverage(cpu.time.coverage)
    requested = f"{cores:,}" if cores else "unknown"
    yield ResourceRow("Cores", requested, _format_busy(cpu.mean_cores), cpu.time.ratio, note)
    requested, used = format_seconds(cpu.time.requested), format_seconds(cpu.time.used)
    yield ResourceRow("CPU time", requested, used, cpu.time.ratio, "requested: cores × run time")


def _memory_row(memory: MemorySummary) -> ResourceRow:
    note = ""
    if memory.best_peak_bytes is not None:
        note = _describe_coverage(memory.coverage if memory.working_peak_bytes is not None else None)
    requested = format_bytes(memory.requested_bytes) if memory.requested_bytes is not None else "not known"
    peak = format_bytes(memory.best_peak_bytes)
    return ResourceRow("Memory", requested, peak, memory.ratio, note, subject=Subject.MEMORY)


def _gpu_rows(gpu: GpuSummary, requested: int) -> Iterator[ResourceRow]:
    if not requested:
        return
    utilization, note = gpu.mean_utilization, _describe_coverage(gpu.coverage)
    used = _format_busy(None if utilization is None else utilization * requested)
    yield ResourceRow("GPUs", str(requested), used, utilization, note, subject=Subject.GPU)
    if gpu.memory_size_bytes is not None:
        size, peak = format_bytes(gpu.memory_size_bytes), format_bytes(gpu.peak_memory_bytes)
        yield ResourceRow("GPU memory", size, peak, gpu.memory_ratio, subject=None)


def _count_busy_nodes(nodes: Sequence[NodeSummary]) -> str:
    """Count the nodes that used at least a hundredth of their cores: an idle program uses less."""
    known = [(node.mean_cores, node.cpus or 1) for node in nodes if node.mean_cores is not None]
    return f"{sum(cores >= 0.01 * cpus for cores, cpus in known):,} busy" if known else NOT_MEASURED


def _format_busy(busy: float | None) -> str:
    return NOT_MEASURED if busy is None else f"{format_count(busy)} busy on average"


def _describe_coverage(coverage: Coverage | None) -> str:
    if coverage is None:
        return "from Slurm accounting"
    if not coverage.nodes_measured:
        return ""
    return (
        f"measured on {coverage.nodes_measured:,} of {format_some(coverage.nodes, 'node')}, "
        f"{format_ratio(coverage.run_ratio)} of the run"
    )


def _node_row(node: NodeSummary, run_seconds: float, *, draws_cores: bool) -> NodeRow:
    peak = node.working_peak_bytes
    return NodeRow(
        node=node,
        cpu_ratio=node.mean_cores / node.cpus if node.mean_cores is not None and node.cpus else None,
        memory_ratio=peak / node.limit_bytes if peak is not None and node.limit_bytes else None,
        cores=_draw_cores(node, run_seconds) if draws_cores and node.core_seconds and run_seconds > 0 else None,
    )


def _draw_cores(node: NodeSummary, run_seconds: float) -> CoreStrip:
    ordered = sorted(node.core_seconds.items(), key=_core_order)
    ratios = [min(1.0, seconds / run_seconds) for _, seconds in ordered]
    bars = (
        f"M{index * _CORE_WIDTH} {_CORE_HEIGHT}v-{ratio * _CORE_HEIGHT:.1f}h{_CORE_WIDTH - 1}V{_CORE_HEIGHT}z"
        for index, ratio in enumerate(ratios)
    )
    return CoreStrip("".join(bars), len(ratios), min(ratios), max(ratios), len(ratios) * _CORE_WIDTH)


def _core_order(core: tuple[str, float]) -> tuple[int, str]:
    return (int(core[0]) if core[0].isdecimal() else 0, core[0])


def _subjects(report: JobReport) -> dict[Subject, Severity]:
    every = [each for finding in report.findings for each in finding.with_consequences]
    return {each.subject: each.severity for each in sorted(every, key=lambda each: -each.severity.rank)}


MAX_TEXT = 20
MAX_CORES = 1_000_000
MAX_MEMORY_BYTES = 1 << 50
MAX_LIMIT_SECONDS = 365 * DAY_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfView:
    """The texts of the form, and the result or what is wrong with the input."""

    cores: str = ""
    memory: str = ""
    time: str = ""
    sentences: tuple[str, ...] = ()
    error: str = ""


def fill_form(given: Mapping[str, str]) -> WhatIfView:
    """Return the form with the texts that were given."""
    return WhatIfView(
        cores=given.get("cores", "")[:MAX_TEXT],
        memory=given.get("memory", "")[:MAX_TEXT],
        time=given.get("time", "")[:MAX_TEXT],
    )


def show_submitted(record: JobRecord) -> WhatIfView:
    """Return what was submitted, as the form takes it; empty where it is not known."""
    memory, limit = record.memory_bytes, record.time_limit_seconds
    return WhatIfView(
        cores=str(record.cpus or ""),
        memory="" if memory is None else memory_line(memory // max(1, record.node_count)).partition("=")[2],
        time="" if limit is None else time_line(limit).partition("=")[2],
    )


def parse_request(given: Mapping[str, str]) -> OtherRequest | None:
    """Parse the fields of the form; None if all are empty. Raises BadQuery with a sentence for the reader."""
    texts = {name: given.get(name, "").strip() for name in ("cores", "memory", "time")}
    if not any(texts.values()):
        return None
    cores = _parse("Cores", texts["cores"], _parse_cores, "a whole number from 1 to 1,000,000, such as 4")
    memory = _parse("Memory", texts["memory"], _parse_memory, "an amount per node up to 1024T, such as 512M or 12G")
    limit = _parse("Time limit", texts["time"], _parse_limit, "minutes, 1:30:00 or 1-12:00:00, up to 365 days")
    return OtherRequest(cpus=cores, memory_bytes=memory, limit_seconds=limit)


def _parse(label: str, text: str, parse: Callable[[str], int], expected: str) -> int | None:
    if not text:
        return None
    try:
        if len(text) > MAX_TEXT:
            raise ValueError
        return parse(text)
    except ValueError as error:
        raise BadQuery(f"{label} must be {expected}.") from error


def _parse_cores(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError
    return _bounded(int(text), MAX_CORES)


def _parse_memory(text: str) -> int:
    return _bounded(parse_bytes(text, default_unit="M"), MAX_MEMORY_BYTES)


def _parse_limit(text: str) -> int:
    return _bounded(parse_time_limit(text), MAX_LIMIT_SECONDS)


def _bounded(number: int, most: int) -> int:
    if not 1 <= number <= most:
        raise ValueError
    return number
