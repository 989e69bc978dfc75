# SPDX-License-Identifier: Apache-2.0
"""Compare several jobs, with their charts over run time."""

from __future__ import annotations

import bisect
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.responses import Response

from slurmscope.core.units import format_bytes, format_count, format_ratio, format_seconds
from slurmscope.jobs.charts import TRACED
from slurmscope.jobs.queries import TRACED_BY_NODE
from slurmscope.jobs.render.formatting import format_time
from slurmscope.jobs.render.svg.charts import render_chart_svg
from slurmscope.jobs.report import Chart, ChartLine, JobReport
from slurmscope.portal.charts import encode_charts, find_chart, make_data_table
from slurmscope.portal.context import Context, RequestContext
from slurmscope.portal.queries import BadQuery, parse_format
from slurmscope.portal.web.tables import Table, make_table_response
from slurmscope.reports.page_paths import name_job, parse_job, shown_cluster


class ComparedRow(NamedTuple):
    """One row of the comparison, with one text per job."""

    label: str
    texts: tuple[str, ...]

    @property
    def differs(self) -> bool:
        return len(set(self.texts)) > 1


def compare_reports(reports: Sequence[JobReport]) -> tuple[ComparedRow, ...]:
    """Make the rows of a comparison."""
    return tuple(ComparedRow(label, tuple(read(report) for report in reports)) for label, read in _ROWS)


_ROWS: tuple[tuple[str, Callable[[JobReport], str]], ...] = (
    ("Name", lambda report: report.record.name),
    ("User", lambda report: report.record.user),
    ("Account", lambda report: report.record.account),
    ("Partition", lambda report: report.record.partition),
    ("State", lambda report: report.record.state.replace("_", " ").lower()),
    ("Submitted", lambda report: format_time(report.record.submit_seconds)),
    ("Run time", lambda report: format_seconds(report.summary.run_seconds)),
    ("Nodes", lambda report: format_count(report.record.node_count)),
    ("Cores", lambda report: format_count(report.record.cpus) if report.record.cpus else "unknown"),
    ("GPUs", lambda report: format_count(report.record.gpus)),
    ("Requested memory", lambda report: format_bytes(report.summary.memory.requested_bytes)),
    ("Memory used", lambda report: format_bytes(report.summary.memory.best_peak_bytes)),
    ("Busy cores, mean", lambda report: format_count(report.summary.cpu.mean_cores)),
    ("CPU use", lambda report: format_ratio(report.summary.cpu.time.ratio)),
    ("Memory use", lambda report: format_ratio(report.summary.memory.ratio)),
    ("GPU use", lambda report: format_ratio(report.summary.gpu.mean_utilization) if report.record.gpus else "no GPUs"),
    ("Time use", lambda report: format_ratio(report.summary.time.ratio)),
    ("Read", lambda report: format_bytes(report.summary.io.read_bytes)),
    ("Written", lambda report: format_bytes(report.summary.io.write_bytes)),
    ("Findings", lambda report: ", ".join(finding.title for finding in report.findings) or "none"),
)


MAX_JOBS = 6

OVERLAY_POINTS = 200
_MEDIAN = "median of "


def overlay_charts(reports: Sequence[JobReport]) -> tuple[Chart, ...]:
    """Overlay the charts of several jobs, by seconds since each job's start.

    Charts per core are left out: core numbers of different jobs are unrelated.
    """
    names = dict.fromkeys(chart.name for report in reports for chart in report.charts)
    names.pop("cpu_core", None)
    made = (_overlay(name, reports) for name in names)
    return tuple(chart for chart in made if chart is not None)


def _overlay(name: str, reports: Sequence[JobReport]) -> Chart | None:
    charts = ((report, chart) for report in reports for chart in report.charts)
    of_name = [(report, chart) for report, chart in charts if chart.name == name and chart.times and _can_merge(chart)]
    if not of_name:
        return None
    first = of_name[0][1]
    longest = max(chart.times[-1] - _start(report, chart) for report, chart in of_name)
    times = tuple(longest * index / (OVERLAY_POINTS - 1) for index in range(OVERLAY_POINTS))
    # A job without this chart has a line without values: so each job has one colour in all charts.
    found = {id(report): _resample(chart, _start(report, chart), times) for report, chart in of_name}
    lines = tuple(
        ChartLine(label=f"job {_label(report, reports)}", values=found.get(id(report), (None,) * OVERLAY_POINTS))
        for report in reports
    )
    title, note = first.title, _PARTS.get(name, "")
    if not note and name not in TRACED_BY_NODE:
        title = f"{title}, median node" if any(report.record.node_count > 1 for report, _ in of_name) else title
        note = "For a job on several nodes, the median node is shown."
    explained = f"{first.help} {note}".strip()
    return replace(first, title=title, times=times, lines=lines, reference=None, reference_label="", help=explained)


def _label(report: JobReport, compared: Sequence[JobReport]) -> str:
    clusters = sorted({each.record.cluster for each in compared})
    return name_job(report.record.shown_id, shown_cluster(report.record.cluster, clusters))


def _start(report: JobReport, chart: Chart) -> float:
    start = report.record.start_seconds
    return chart.times[0] if start is None else start


def _resample(chart: Chart, start: float, times: Sequence[float]) -> tuple[float | None, ...]:
    """Return the last value before each time, or a gap if that is older than two steps of the chart."""
    values = _merge_lines(chart)
    own = [moment - start for moment in chart.times]
    step = max((own[-1] - own[0]) / max(1, len(own) - 1), times[1] - times[0])
    resampled: list[float | None] = []
    for moment in times:
        index = bisect.bisect_right(own, moment) - 1
        is_near = index >= 0 and moment - own[index] <= 2 * step
        resampled.append(values[index] if is_near else None)
    return tuple(resampled)


_FILESYSTEMS = "All file systems of a job are added up."
_PROCESSES = "All traced processes of a job are added up."
_PARTS = {
    "cpu_split": "Both are added up.",
    **dict.fromkeys(("filesystem_read", "filesystem_write", "filesystem_metadata"), _FILESYSTEMS),
    **dict.fromkeys(("traced_cpu", "traced_memory", "traced_threads", "traced_read", "traced_write"), _PROCESSES),
}
"""Charts whose lines are not nodes but parts of the job, and what the page says about their sum."""


def _can_merge(chart: Chart) -> bool:
    """Return whether the lines of a job can be merged: the sum of many parts, of which few are kept, is not known."""
    return chart.name not in _PARTS or not any(line.label.startswith(_MEDIAN) for line in chart.lines)


def _merge_lines(chart: Chart) -> Sequence[float | None]:
    """Merge the lines of a job into one: the median of its nodes, which is comparable between jobs of any size.

    Jobs on many nodes already have a median line. Parts of the job are added up. Of what was traced and what was
    measured, the first is shown; the other has a chart of its own.
    """
    wanted = TRACED if chart.name in TRACED_BY_NODE else _MEDIAN
    chosen = [line.values for line in chart.lines if line.label.startswith(wanted)]
    if chosen:
        return chosen[0]
    columns = zip(*(line.values for line in chart.lines), strict=True)
    known = ([value for value in column if value is not None] for column in columns)
    join = sum if chart.name in _PARTS else statistics.median
    return [join(values) if values else None for values in known]


router = APIRouter(include_in_schema=False)

_SEPARATOR = re.compile(r"[\s,;]+")


@router.get("/compare")
def show_comparison(context: Context) -> Response:
    """Show a table of the jobs and their overlaid charts; without jobs, only the form."""
    table_format, reports = parse_format(context.query), _read_reports(context)
    rows = compare_reports(reports)
    if table_format != "html":
        columns = ("what", *(f"job {_name(context, report)}" for report in reports))
        return make_table_response(
            Table(columns=columns, rows=[(row.label, *row.texts) for row in rows]), table_format, "jobs"
        )
    charts = [(chart, make_data_table(chart, is_run_time=True)) for chart in overlay_charts(reports)]
    job_query = urlencode([("job", _name(context, report)) for report in reports])
    names = [_name(context, report) for report in reports]
    return context.page("compare.html", reports=reports, names=names, rows=rows, charts=charts, job_query=job_query)


@router.get("/compare/charts.json")
def send_compared_charts(context: Context) -> Response:
    """Send the overlaid charts to the script on the page."""
    return Response(encode_charts(overlay_charts(_read_reports(context))), media_type="application/json")


@router.get("/compare/charts/{name}.svg")
def send_compared_image(context: Context, name: str, dark: bool = False) -> Response:  # noqa: FBT001, FBT002
    """Draw one overlaid chart for browsers without scripts."""
    chart = find_chart(overlay_charts(_read_reports(context)), name)
    return Response(render_chart_svg(chart, width=720, height=260, dark=dark), media_type="image/svg+xml")


def _read_reports(context: RequestContext) -> list[JobReport]:
    """Read the given jobs, each once, in the given order."""
    named = " ".join(context.request.query_params.getlist("job"))[:500]
    ids = list(dict.fromkeys(part for part in _SEPARATOR.split(named) if part))
    if len(ids) > MAX_JOBS:
        raise BadQuery(f"At most {MAX_JOBS} jobs can be compared at once.")
    return [_read_report(context, name) for name in ids]


def _read_report(context: RequestContext, name: str) -> JobReport:
    cluster, shown_id = parse_job(name)
    return context.audit_report(shown_id, context.read_report_of(cluster, shown_id))


def _name(context: RequestContext, report: JobReport) -> str:
    return context.name_job(report.record.shown_id, report.record.cluster)
