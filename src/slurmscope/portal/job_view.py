# SPDX-License-Identifier: Apache-2.0
"""Prepare what the page of a job shows: its size, nodes, charts, tabs and script, and the form of another request."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from slurmscope.archive.job_columns import JobRow
from slurmscope.core.errors import SourceError
from slurmscope.core.units import DAY_SECONDS, format_some, parse_bytes, parse_time_limit
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.render.tables import SourceSection, source_sections
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.rule import Severity, Subject
from slurmscope.jobs.script import JobScript, show_lines
from slurmscope.jobs.suggestions import memory_line, time_line
from slurmscope.jobs.summary import JobSummary, NodeSummary
from slurmscope.jobs.what_if import OtherRequest
from slurmscope.portal.context import Context, RequestContext, not_found
from slurmscope.portal.queries import BadQuery
from slurmscope.portal.settings import OFF, STAFF
from slurmscope.reports.resubmission import add_script, may_have_options

router = APIRouter(include_in_schema=False)

_NOT_READ = "The job script could not be read from Slurm's accounting. Try again in a moment."


@dataclass(frozen=True, slots=True, kw_only=True)
class JobParts:
    """The parts of a heterogeneous job in their order, and their sums."""

    het_job_id: int
    rows: tuple[JobRow, ...]
    nodes: int
    cpus: int | None
    gpus: int
    core_seconds: float
    cpu_ratio: float | None
    """Used share of the core time of all parts; None unless all were measured."""


def make_job_parts(het_job_id: int, rows: Sequence[JobRow]) -> JobParts | None:
    """Sum up the newest run of each part; None if there is only one."""
    newest: dict[int, JobRow] = {}
    for row in sorted(rows, key=lambda row: row.submit_seconds):
        newest[row.het_offset or 0] = row
    parts = tuple(newest[offset] for offset in sorted(newest))
    if len(parts) < 2:
        return None
    held = math.fsum(row.core_seconds for row in parts)
    ratios = [row.cpu_ratio for row in parts]
    cpus = [row.cpus for row in parts if row.cpus is not None]
    used = math.fsum(row.core_seconds * (row.cpu_ratio or 0.0) for row in parts)
    return JobParts(
        het_job_id=het_job_id,
        rows=parts,
        nodes=sum(row.nodes for row in parts),
        cpus=sum(cpus) if len(cpus) == len(parts) else None,
        gpus=sum(row.gpus for row in parts),
        core_seconds=held,
        cpu_ratio=used / held if held and None not in ratios else None,
    )


_CORE_WIDTH, _CORE_HEIGHT = 5, 20
MAX_NODES = 100
"""Nodes shown on the page; the files contain all of them."""
_MAX_CORES = 4096
"""Cores drawn on the page, over all nodes."""


class CoreStrip(NamedTuple):
    """The drawing of a node's cores: one path with a bar per core, because thousands of elements are slow."""

    path: str
    cores: int
    idlest: float
    busiest: float
    width: int
    height: int = _CORE_HEIGHT


class JobNodeRow(NamedTuple):
    node: NodeSummary
    cpu_ratio: float | None
    memory_ratio: float | None
    cores: CoreStrip | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """What the page shows in addition to the texts of the report."""

    is_live: bool
    size: str
    from_accounting: frozenset[str]
    """Labels of the gauges whose numbers are Slurm's own."""
    nodes: tuple[JobNodeRow, ...]
    nodes_left_out: int
    subjects: Mapping[Subject, Severity]
    """The worst severity per subject, shown on its charts."""
    runs: tuple[JobReport, ...]


def make_job_view(report: JobReport, runs: Sequence[JobReport]) -> JobView:
    """Prepare a report and the earlier runs of its job."""
    nodes = report.summary.nodes[:MAX_NODES]
    draws_cores = sum(len(node.core_seconds) for node in nodes) <= _MAX_CORES
    return JobView(
        is_live=not report.record.has_ended,
        size=describe_size(report.record),
        from_accounting=frozenset(_find_foreign(report.summary)),
        nodes=tuple(_node_row(node, report.summary.run_seconds, draws_cores=draws_cores) for node in nodes),
        nodes_left_out=len(report.summary.nodes) - len(nodes),
        subjects=report.subjects,
        runs=tuple(runs),
    )


def describe_size(record: JobRecord) -> str:
    """Return what the job requested: nodes, cores and GPUs; memory is beside its use."""
    cores = "cores unknown" if record.cpus is None else format_some(record.cpus, "core")
    gpus = format_some(record.gpus, "GPU") if record.gpus else ""
    return ", ".join(filter(None, (format_some(record.node_count, "node"), cores, gpus)))


def _find_foreign(summary: JobSummary) -> Iterator[str]:
    if summary.cpu.time.used is not None and summary.cpu.time.coverage is None:
        yield "CPU"
    if summary.memory.best_peak_bytes is not None and summary.memory.working_peak_bytes is None:
        yield "Memory"


class Tab(NamedTuple):
    """One part of the page: its name in the address, and the text of its link."""

    name: str
    label: str


def list_tabs(report: JobReport, sections: Sequence[SourceSection]) -> tuple[Tab, ...]:
    """Return the tabs that have contents; the first is shown on the page itself."""
    record, shown = report.record, {tab_of(section) for section in sections}
    tabs = (
        ("nodes", "Nodes", bool(report.summary.nodes)),
        ("gpus", "GPUs", "gpus" in shown),
        ("processes", "Processes", "processes" in shown),
        ("io", "I/O", record.start_seconds is not None),
        ("record", "Slurm record", True),
        ("site", "Site", "site" in shown),
        ("what-if", "What if", record.has_ended and record.start_seconds is not None),
        ("charts", "All charts", any(chart.times for chart in report.charts)),
    )
    found = [Tab(name, label) for name, label, has_contents in tabs if has_contents]
    # The first tab of a job with GPUs is that of its GPUs.
    return tuple(sorted(found, key=lambda tab: tab.name != "gpus"))


def tab_of(section: SourceSection) -> str:
    """Return the tab that shows a table."""
    return _TABS.get(section.name, "site")


_TABS = {"gpus": "gpus", "traces": "processes", "profile": "processes"}


def _node_row(node: NodeSummary, run_seconds: float, *, draws_cores: bool) -> JobNodeRow:
    peak = node.working_peak_bytes
    return JobNodeRow(
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
    gpus: str = ""
    sentences: tuple[str, ...] = ()
    error: str = ""


def fill_form(given: Mapping[str, str]) -> WhatIfView:
    """Return the form with the texts that were given."""
    return WhatIfView(
        cores=given.get("cores", "")[:MAX_TEXT],
        memory=given.get("memory", "")[:MAX_TEXT],
        time=given.get("time", "")[:MAX_TEXT],
        gpus=given.get("gpus", "")[:MAX_TEXT],
    )


def show_submitted(record: JobRecord) -> WhatIfView:
    """Return what was submitted, as the form takes it; empty where it is not known."""
    memory, limit = record.memory_bytes, record.time_limit_seconds
    return WhatIfView(
        cores=str(record.cpus or ""),
        memory="" if memory is None else memory_line(memory // max(1, record.node_count)).partition("=")[2],
        time="" if limit is None else time_line(limit).partition("=")[2],
        gpus=str(record.gpus or ""),
    )


def parse_request(given: Mapping[str, str]) -> OtherRequest | None:
    """Parse the fields of the form; None if all are empty. Raises BadQuery with a sentence for the reader."""
    texts = {name: given.get(name, "").strip() for name in ("cores", "memory", "time", "gpus")}
    if not any(texts.values()):
        return None
    cores = _parse("Cores", texts["cores"], _parse_cores, "a whole number from 1 to 1,000,000, such as 4")
    memory = _parse("Memory", texts["memory"], _parse_memory, "an amount per node up to 1024T, such as 512M or 12G")
    limit = _parse("Time limit", texts["time"], _parse_limit, "minutes, 1:30:00 or 1-12:00:00, up to 365 days")
    gpus = _parse("GPUs", texts["gpus"], _parse_cores, "a whole number from 1 to 1,000,000, such as 2")
    return OtherRequest(cpus=cores, memory_bytes=memory, limit_seconds=limit, gpus=gpus)


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


@router.get("/jobs/{shown_id}/script")
def show_script(context: Context, shown_id: str) -> Response:
    """Show the script and the environment of a job."""
    report, script = find_script(context, shown_id)
    lines = show_lines(script.text) if script else ()
    tabs = list_tabs(report, source_sections(report))
    return context.page("job_script.html", record=report.record, script=script, lines=lines, tabs=tabs)


def may_see_script(context: RequestContext, report: JobReport) -> bool:
    """Return whether the viewer may see the script of a job: its owner, and staff if the settings allow it."""
    rule, viewer = context.services.settings.scripts, context.viewer
    return rule != OFF and (report.record.user == viewer.name or (viewer.is_staff and rule == STAFF))


def stores_scripts(context: RequestContext, cluster: str) -> bool:
    live = context.find_live(cluster)
    return live is not None and context.services.scripts.is_stored(live)


def add_script_options(context: RequestContext, report: JobReport) -> JobReport:
    """Return the report of one of the viewer's own jobs with the options in its script, where Slurm stored it."""
    is_own = report.record.user == context.viewer.name and may_see_script(context, report)
    if not is_own or not may_have_options(report) or not stores_scripts(context, report.record.cluster):
        return report
    script = context.services.scripts.read_soon(report.record)
    return report if script is None else add_script(report, script.text, context.services.judge)


def find_script(context: RequestContext, shown_id: str) -> tuple[JobReport, JobScript | None]:
    """Return the job and its script, None if Slurm did not store it; respond 404 if the viewer may not see it."""
    report = context.read_report(shown_id)
    if report is None or not may_see_script(context, report):
        raise not_found()
    context.audit(f"script of job {context.name_job(shown_id, report.record.cluster)}", owner=report.record.user)
    try:
        return report, context.services.scripts.read(report.record)
    except SourceError as error:
        raise HTTPException(503, _NOT_READ, {"Retry-After": "10"}) from error
