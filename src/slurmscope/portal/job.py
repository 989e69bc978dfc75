# SPDX-License-Identifier: Apache-2.0
"""Show one job: its page, the live update of a running job, its charts and files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from fastapi import APIRouter
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response

from slurmscope.archive.interface import JobFilter, NotedKind, NotedThing
from slurmscope.core.errors import ArchiveError
from slurmscope.jobs.charts import choose_charts
from slurmscope.jobs.heat_maps import find_heat_maps
from slurmscope.jobs.render.html import render_html
from slurmscope.jobs.render.json import render_json
from slurmscope.jobs.render.resubmission import describe_resubmission
from slurmscope.jobs.render.svg.charts import describe_range, fold, render_chart_svg
from slurmscope.jobs.render.svg.heat_map import render_heat_map_svg
from slurmscope.jobs.render.tables import SourceSection, source_sections
from slurmscope.jobs.render.text import render_text
from slurmscope.jobs.render.verdict import make_verdict
from slurmscope.jobs.report import Chart, JobReport
from slurmscope.jobs.runs import run_of, runs_of_job
from slurmscope.jobs.summary import NodeSummary
from slurmscope.jobs.what_if import describe_outcome, predict
from slurmscope.portal.charts import (
    HEAT_WIDTH,
    DataTable,
    encode_charts,
    find_chart,
    make_data_table,
    show_heat_maps,
)
from slurmscope.portal.context import Context, RequestContext, not_found
from slurmscope.portal.job_view import (
    JobParts,
    Tab,
    WhatIfView,
    add_script_options,
    fill_form,
    list_tabs,
    make_job_parts,
    make_job_view,
    may_see_script,
    parse_request,
    show_submitted,
    stores_scripts,
    tab_of,
)
from slurmscope.portal.pending import pending_of_report, show_pending
from slurmscope.portal.queries import NUMBER, BadQuery
from slurmscope.portal.savings import RunComparison, compare_runs
from slurmscope.portal.staff import make_staff_section
from slurmscope.portal.web.tables import make_chart_table, make_heat_table, make_table, make_table_response
from slurmscope.portal.zoom import ZoomedReport, encode_zoomed, find_charted, find_zoomed
from slurmscope.reports.page_paths import array_path, job_path

router = APIRouter(include_in_schema=False)

MAX_PARTS = 128
SHOWN_CHARTS = 4
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
    report = add_script_options(context, context.audit_report(shown_id, report))
    return _show_started(context, context.add_resubmission(report))


def _show_started(context: RequestContext, report: JobReport) -> Response:
    what_if = _predict_what_if(context, report)
    shown = _choose_tab(context, report, what_if)
    parts = _PageParts(context, report, shown, what_if)
    page = context.page(
        "job.html",
        report=report,
        top=Markup(parts.render("job_top.html")),  # noqa: S704 - our template
        body=Markup(parts.render("job_tab.html")),  # noqa: S704 - our template
        tab=shown.tab,
        is_whole=shown.is_whole,
        tabs=shown.tabs,
        has_script=may_see_script(context, report) and stores_scripts(context, report.record.cluster),
        staff=make_staff_section(context, NotedThing(NotedKind.JOB, report.record.cluster, report.record.shown_id)),
    )
    page.status_code = 400 if what_if and what_if.error else page.status_code
    return page


@router.get("/jobs/{shown_id}/live")
def send_update(context: Context, shown_id: str) -> Response:
    """Send the parts of the page that change while the job runs."""
    report = context.find_report(shown_id)
    parts = _PageParts(context, report, _choose_tab(context, report), is_update=True)
    # The script draws the charts again.
    is_drawn = parts.shown.tab == "charts"
    return HTMLResponse(parts.render("job_top.html") + ("" if is_drawn else parts.render("job_tab.html")))


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
    image = render_heat_map_svg(heat_map, width=HEAT_WIDTH, dark=dark, zone=context.zone, title="")
    return Response(image, media_type="image/svg+xml")


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
    report = await run_in_threadpool(lambda: context.add_resubmission(add_script_options(context, report)))
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


class _ShownTab(NamedTuple):
    """The tabs of a job, and which of them is shown; ``is_whole`` is the page that begins with the verdict."""

    tab: str
    is_whole: bool
    tabs: tuple[Tab, ...]
    sections: tuple[SourceSection, ...]


def _choose_tab(context: RequestContext, report: JobReport, what_if: WhatIfView | None = None) -> _ShownTab:
    """Return the tab that the address names; an address of a tab that the job does not have is that of the job."""
    sections = source_sections(report)
    tabs = list_tabs(report, sections)
    wanted = "what-if" if what_if and (what_if.sentences or what_if.error) else context.query.get("tab", "")
    is_whole = wanted not in {tab.name for tab in tabs}
    return _ShownTab(tabs[0].name if is_whole else wanted, is_whole, tabs, sections)


class _PageParts:
    """Render the parts of a page; those of a running job once for all viewers, if they are alike for all."""

    def __init__(
        self,
        context: RequestContext,
        report: JobReport,
        shown: _ShownTab,
        what_if: WhatIfView | None = None,
        *,
        is_update: bool = False,
    ) -> None:
        self.context, self.report, self.shown, self.what_if, self.is_update = context, report, shown, what_if, is_update
        self.others = OtherRuns(
            _find_runs(context, report), _compare_runs(context, report), _find_parts(context, report)
        )

    def render(self, template: str) -> str:
        """Render one part; which other runs are shown depends on the viewer."""
        render = partial(self._render, template)
        if any(self.others):
            return render()
        kept = (template, self.shown.tab, self.shown.is_whole, self.is_update)
        return self.context.rendering_cache.get(self.report, "/".join(map(str, kept)), render)

    def _render(self, template: str) -> str:
        add = _add_verdict if template == "job_top.html" else _add_tab
        return self.context.render_part(
            template,
            report=self.report,
            job=make_job_view(self.report, self.others.requeued),
            tab=self.shown.tab,
            is_whole=self.shown.is_whole,
            is_update=self.is_update,
            **add(self),
        )


def _add_verdict(parts: _PageParts) -> dict[str, object]:
    """Return what the page has above its tabs; the other tabs have the name of the job alone."""
    context, report, record = parts.context, parts.report, parts.report.record
    same_name = JobFilter(cluster=context.link_cluster(record.cluster), user=record.user, name=record.name[:200])
    if not parts.shown.is_whole:
        return {"same_name": same_name}
    chosen = choose_charts(report, SHOWN_CHARTS)
    return {
        "same_name": same_name,
        "verdict": make_verdict(report),
        "header": describe_resubmission(report),
        "comparisons": parts.others.compared,
        "parts": parts.others.parts,
        "charts": () if parts.is_update else _with_tables(chosen.shown),
        "flat": [(chart.title, describe_range(chart)) for chart in chosen.flat],
    }


def _add_tab(parts: _PageParts) -> dict[str, object]:
    """Return what the shown tab needs."""
    report, tab = parts.report, parts.shown.tab
    return {
        "sections": [section for section in parts.shown.sections if tab_of(section) == tab],
        "submitted": show_submitted(report.record),
        "what_if": parts.what_if,
        "charts": _with_tables(tuple(chart for chart in report.charts if chart.times)) if tab == "charts" else (),
        "heat_maps": () if tab != "nodes" or parts.is_update else show_heat_maps(report),
    }


def _with_tables(charts: tuple[Chart, ...]) -> list[tuple[Chart, DataTable]]:
    return [(chart, make_data_table(chart)) for chart in map(fold, charts)]


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
