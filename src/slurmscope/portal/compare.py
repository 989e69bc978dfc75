# SPDX-License-Identifier: Apache-2.0
"""Compare several jobs, with their charts over run time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.responses import Response

from slurmscope.core.units import format_bytes, format_count, format_ratio, format_seconds
from slurmscope.jobs.render.formatting import format_time
from slurmscope.jobs.render.svg.charts import render_chart_svg
from slurmscope.jobs.report import JobReport
from slurmscope.portal.charts import encode_charts, make_data_table, overlay_charts
from slurmscope.portal.context import Context, RequestContext, not_found
from slurmscope.portal.queries import BadQuery, parse_format
from slurmscope.portal.web.tables import Table, make_table_response
from slurmscope.reports.page_paths import parse_job


class ComparedRow(NamedTuple):
    """Hold one row of the comparison, with one text per job."""

    label: str
    texts: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Return whether the jobs differ in this row."""
        return len(set(self.texts)) > 1


def compare_reports(reports: Sequence[JobReport]) -> tuple[ComparedRow, ...]:
    """Make the rows of a comparison."""
    return tuple(ComparedRow(label, tuple(read(report) for report in reports)) for label, read in _ROWS)


_ROWS: tuple[tuple[str, Callable[[JobReport], str]], ...] = (
    ("Name", lambda report: report.record.name),
    ("User", lambda report: report.record.user),
    ("Account", lambda report: report.record.account),
    ("Partition", lambda report: report.record.partition),
    ("State", lambda report: report.record.state),
    ("Submitted", lambda report: format_time(report.record.submit_seconds)),
    ("Run time", lambda report: format_seconds(report.summary.run_seconds)),
    ("Nodes", lambda report: format_count(report.record.node_count)),
    ("Cores", lambda report: format_count(report.record.cpus) if report.record.cpus else "unknown"),
    ("GPUs", lambda report: format_count(report.record.gpus)),
    ("Requested memory", lambda report: format_bytes(report.summary.memory.asked_bytes)),
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
    for chart in overlay_charts(_read_reports(context)):
        if chart.name == name:
            return Response(render_chart_svg(chart, width=720, height=260, dark=dark), media_type="image/svg+xml")
    raise not_found()


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
