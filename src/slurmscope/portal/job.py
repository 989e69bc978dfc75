# SPDX-License-Identifier: Apache-2.0
"""Show one job: its page, the live update of a running job, its charts and files."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from fastapi import APIRouter
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response

from slurmscope.archive.interface import JobFilter, NotedKind, NotedThing
from slurmscope.archive.job_columns import JobRow
from slurmscope.core.errors import ArchiveError
from slurmscope.jobs.heat_maps import find_heat_maps
from slurmscope.jobs.render.html import render_html
from slurmscope.jobs.render.json import render_json
from slurmscope.jobs.render.resubmission import describe_resubmission
from slurmscope.jobs.render.svg.charts import fold, render_chart_svg
from slurmscope.jobs.render.svg.heat_map import render_heat_map_svg
from slurmscope.jobs.render.tables import source_sections
from slurmscope.jobs.render.text import render_text
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.runs import run_of, runs_of_job
from slurmscope.jobs.summary import NodeSummary
from slurmscope.jobs.what_if import describe_outcome, predict
from slurmscope.portal.charts import encode_charts, find_chart, make_data_table, show_heat_map
from slurmscope.portal.context import Context, RequestContext, not_found
from slurmscope.portal.job_script import may_see_script
from slurmscope.portal.job_view import WhatIfView, fill_form, make_job_view, parse_request, show_submitted
from slurmscope.portal.pending import pending_of_report, show_pending
from slurmscope.portal.queries import NUMBER, BadQuery
from slurmscope.portal.savings import RunComparison, compare_runs
from slurmscope.portal.staff import make_staff_section
from slurmscope.portal.web.tables import make_chart_table, make_heat_table, make_table, make_table_response
from slurmscope.portal.zoom import encode_zoomed, find_charted, find_zoomed
from slurmscope.reports.page_paths import array_path, job_path
from slurmscope.reports.zoom import ZoomedReport


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


router = APIRouter(include_in_schema=False)

MAX_PARTS = 128
_SVG_WIDTH, _SVG_HEIGHT = 720, 260


@router.get("/jobs/{shown_id}")
def show_job(context: Context, shown_id: str) -> Response:
    """Show a job, pending or started; the id of an array, or of its pending tasks, redirects to the array."""
    if "_[" in shown_id:
        return RedirectResponse(context.base_path + job_path(shown_id, context.cluster), 303)
    if pending := context.find_pending(shown_id):
        return show_pending(context, shown_id, pending)
    report = context.read_report(shown_id)
    if (report is None or report.record.is_array_rest) and _is_array(context, shown_id):
        return RedirectResponse(f"{context.base_path}{array_path(shown_id, context.cluster)}", 303)
    if report and (pending := pending_of_report(report)):
        return show_pending(context, shown_id, pending)
    report = context.add_resubmission(context.audit_report(shown_id, report))
    what_if = _predict_what_if(context, report)
    body = _render_cached(context, report, is_update=False, what_if=what_if)
    has_script = may_see_script(context, report) and _stores_scripts(context, report.record.cluster)
    staff = make_staff_section(context, NotedThing(NotedKind.JOB, report.record.cluster, report.record.shown_id))
    shown = Markup(body)  # noqa: S704 - our template
    page = context.page("job.html", report=report, body=shown, has_script=has_script, staff=staff)
    page.status_code = 400 if what_if and what_if.error else page.status_code
    return page


@router.get("/jobs/{shown_id}/live")
def send_update(context: Context, shown_id: str) -> Response:
    """Send the parts of the page that change while the job runs."""
    report = context.find_report(shown_id)
    return HTMLResponse(_render_cached(context, report, is_update=True))


@router.get("/jobs/{shown_id}/charts.json")
def send_charts(context: Context, shown_id: str) -> Response:
    """Send the charts to the script on the page."""
    found = find_zoomed(context, shown_id)
    if isinstance(found, ZoomedReport):
        return Response(encode_zoomed(found), media_type="application/json")
    charts = [chart for chart in found.charts if chart.times]
    text = context.rendering_cache.get(found, "charts", lambda: encode_charts(charts).decode())
    return Response(text, media_type="application/json")


@router.get("/jobs/{shown_id}/charts/{name}.svg")
def send_chart_image(context: Context, shown_id: str, name: str, dark: bool = False) -> Response:  # noqa: FBT001, FBT002
    """Draw one chart for browsers without scripts."""
    chart = find_chart(find_charted(context, shown_id).charts, name)
    image = render_chart_svg(chart, width=_SVG_WIDTH, height=_SVG_HEIGHT, dark=dark, zone=context.zone)
    return Response(image, media_type="image/svg+xml")


@router.get("/jobs/{shown_id}/charts/{name}.{format}")
def send_chart_table(context: Context, shown_id: str, name: str, format: str) -> Response:
    """Send all points of a chart."""
    chart = find_chart(find_charted(context, shown_id).charts, name)
    return make_table_response(make_chart_table(chart), _table_format(format), context.name_file(shown_id, name))


@router.get("/jobs/{shown_id}/heat/{name}.svg")
def send_heat_image(context: Context, shown_id: str, name: str, dark: bool = False) -> Response:  # noqa: FBT001, FBT002
    """Draw one heat map."""
    heat_map = find_chart(find_heat_maps(find_charted(context, shown_id)), name)
    return Response(render_heat_map_svg(heat_map, dark=dark, zone=context.zone), media_type="image/svg+xml")


@router.get("/jobs/{shown_id}/heat/{name}.{format}")
def send_heat_table(context: Context, shown_id: str, name: str, format: str) -> Response:
    """Send all values of a heat map."""
    heat_map = find_chart(find_heat_maps(find_charted(context, shown_id)), name)
    return make_table_response(
        make_heat_table(heat_map), _table_format(format), context.name_file(shown_id, name, "heat")
    )


@router.get("/jobs/{shown_id}/nodes.{format}")
def send_node_table(context: Context, shown_id: str, format: str) -> Response:
    """Send the node table."""
    report = context.find_report(shown_id)
    name = context.name_file(shown_id, "nodes")
    table = make_table(NodeSummary, report.summary.nodes, exclude=("core_seconds",))
    return make_table_response(table, _table_format(format), name)


@router.get("/jobs/{shown_id}/report.{format}")
async def send_report(context: Context, shown_id: str, format: str) -> Response:
    """Send the whole report as text, JSON, HTML or PDF."""
    report = await run_in_threadpool(context.find_report, shown_id)
    if format not in _MEDIA_TYPES:
        raise not_found()
    report = await run_in_threadpool(context.add_resubmission, report)
    if format == "pdf":
        body: str | bytes = await context.documents.pdf(report)
    else:
        body = await run_in_threadpool(_RENDERERS[format], report)
    # Text and JSON open in the browser. HTML is downloaded: as a file, it does not run in the portal's origin.
    disposition = "attachment" if format in {"html", "pdf"} else "inline"
    headers = {"Content-Disposition": f'{disposition}; filename="{context.name_file(shown_id)}.{format}"'}
    return Response(body, media_type=_MEDIA_TYPES[format], headers=headers)


_RENDERERS: dict[str, Callable[[JobReport], str | bytes]] = {
    "txt": render_text,
    "json": render_json,
    "html": render_html,
}
_MEDIA_TYPES = {
    "txt": "text/plain; charset=utf-8",
    "json": "application/json",
    "html": "text/html; charset=utf-8",
    "pdf": "application/pdf",
}


def _stores_scripts(context: RequestContext, cluster: str) -> bool:
    live = context.find_live(cluster)
    return live is not None and context.services.scripts.is_stored(live)


def _is_array(context: RequestContext, shown_id: str) -> bool:
    if not NUMBER.match(shown_id):
        return False
    return context.has_jobs(JobFilter(cluster=context.cluster, array_job_id=int(shown_id)))


def _predict_what_if(context: RequestContext, report: JobReport) -> WhatIfView | None:
    """Return what the form of an ended job predicts; None for other jobs, whose page is replaced while they run."""
    record = report.record
    if not record.has_ended or record.start_seconds is None:
        return None
    view = fill_form(context.query)
    try:
        request = parse_request(context.query)
    except BadQuery as error:
        return replace(view, error=str(error))
    if request is None:
        return view
    outcome = predict(report, request, context.services.wait_times.find(record.cluster, record.partition))
    return replace(view, sentences=describe_outcome(report, outcome))


def _render_cached(
    context: RequestContext, report: JobReport, *, is_update: bool, what_if: WhatIfView | None = None
) -> str:
    """Render what all viewers of a job see alike; which other runs are shown depends on the viewer."""
    others = OtherRuns(_find_runs(context, report), _compare_runs(context, report), _find_parts(context, report))
    if any(others):
        return _render_body(context, report, others, is_update=is_update, what_if=what_if)
    name = "update" if is_update else "body"
    render = partial(_render_body, context, report, others, is_update=is_update, what_if=what_if)
    return context.rendering_cache.get(report, name, render)


class OtherRuns(NamedTuple):
    """Earlier runs of a requeued job, and comparisons with runs of the same name that got or followed advice."""

    requeued: tuple[JobReport, ...]
    compared: tuple[RunComparison, ...]
    parts: JobParts | None = None
    """The parts of a heterogeneous job."""


def _compare_runs(context: RequestContext, report: JobReport) -> tuple[RunComparison, ...]:
    record = report.record
    if not record.has_ended:
        return ()
    try:
        outcomes = context.services.advice.find_outcomes(
            context.viewer, record.cluster, record.job_id, record.submit_seconds
        )
    except ArchiveError:
        # The page is useful without them.
        return ()
    return compare_runs(outcomes)


def _render_body(
    context: RequestContext, report: JobReport, others: OtherRuns, *, is_update: bool, what_if: WhatIfView | None
) -> str:
    folded = () if is_update else [fold(chart) for chart in report.charts if chart.times]
    return context.render_part(
        "job_body.html",
        job=make_job_view(report, others.requeued),
        comparisons=others.compared,
        parts=others.parts,
        report=report,
        same_name=JobFilter(
            cluster=context.link_cluster(report.record.cluster), user=report.record.user, name=report.record.name[:200]
        ),
        sections=source_sections(report),
        header=describe_resubmission(report),
        what_if=what_if,
        submitted=show_submitted(report.record),
        charts=[(chart, make_data_table(chart)) for chart in folded],
        heat_maps=() if is_update else [show_heat_map(heat_map) for heat_map in find_heat_maps(report)],
        is_update=is_update,
    )


def _find_parts(context: RequestContext, report: JobReport) -> JobParts | None:
    record = report.record
    if record.het_job_id is None:
        return None
    wanted = JobFilter(cluster=record.cluster, het_job_id=record.het_job_id)
    try:
        rows = context.archive.list_jobs(context.viewer, wanted, limit=MAX_PARTS).rows
    except ArchiveError:
        # The page is useful without the other parts.
        return None
    return make_job_parts(record.het_job_id, rows)


def _find_runs(context: RequestContext, report: JobReport) -> tuple[JobReport, ...]:
    """Find all runs of a requeued job; if accounting does not count restarts, the archive is searched."""
    record = report.record
    if record.restarts == 0:
        return ()
    try:
        if record.restarts is None:
            rows = context.archive.find_shown(context.viewer, record.shown_id, cluster=record.cluster)
            if not any(row.submit_seconds != record.submit_seconds for row in rows):
                return ()
        found = context.archive.find(context.viewer, record.job_id, cluster=record.cluster)
        runs = set(map(run_of, runs_of_job(record, [run.record for run in found])))
        return tuple(run for run in found if run_of(run.record) in runs)
    except ArchiveError:
        # The page is useful without the list of earlier runs.
        return ()


def _table_format(format: str) -> str:
    if format not in {"csv", "json"}:
        raise not_found()
    return format
