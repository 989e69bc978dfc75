# SPDX-License-Identifier: Apache-2.0
"""Show a part of a job's run, with finer data where there are any; works without scripts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from slurmscope.core.units import format_seconds
from slurmscope.jobs.heat_maps import find_heat_maps
from slurmscope.jobs.render.formatting import as_datetime
from slurmscope.jobs.render.svg.charts import fold
from slurmscope.jobs.render.svg.heat_map import make_frame
from slurmscope.jobs.report import MAX_CHART_POINTS, JobReport
from slurmscope.portal.charts import make_data_table, show_heat_map, to_json
from slurmscope.portal.context import Context, RequestContext
from slurmscope.portal.queries import BadQuery
from slurmscope.reports.zoom import RunPart, ZoomedReport

MAX_TEXT = 40
MIN_SECONDS = 10.0
"""Shortest part of a run: no agent is scraped more often."""
_UNIX_TIME = re.compile(r"[0-9]{1,11}(?:\.[0-9]{1,3})?\Z", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoomView:
    """The texts of the form, and the queries of the links to other parts; empty where there is none."""

    zone: str
    from_text: str
    to_text: str
    query: str
    closer: str
    wider: str
    earlier: str
    later: str
    note: str


def whole_run(report: JobReport) -> RunPart:
    """Return the whole run; raise BadQuery for a job that has not started."""
    record = report.record
    if record.start_seconds is None:
        raise BadQuery("The job has not started.")
    end = report.made_seconds if record.end_seconds is None else record.end_seconds
    return RunPart(float(record.start_seconds), float(max(end, record.start_seconds + 1)))


def parse_part(given: Mapping[str, str], report: JobReport, zone: tzinfo) -> RunPart | None:
    """Parse the parameters ``from`` and ``to``, within the run; None if there are none.

    Both are Unix times or ISO 8601; without an offset, ISO 8601 is in ``zone``.
    """
    texts = {name: given.get(name, "").strip() for name in ("from", "to")}
    if not any(texts.values()):
        return None
    run = whole_run(report)
    first = max(run.from_seconds, _parse_time("from", texts["from"], zone) if texts["from"] else run.from_seconds)
    last = min(run.to_seconds, _parse_time("to", texts["to"], zone) if texts["to"] else run.to_seconds)
    if last <= first:
        raise BadQuery("The part must be within the run of the job, and end after it begins.")
    # A shorter part is widened, not refused: dragging in a browser can select any part.
    missing = max(0.0, MIN_SECONDS - (last - first)) / 2
    return RunPart(first - missing, last + missing)


def count_points(part: RunPart, step: float) -> int:
    if not step:
        return MAX_CHART_POINTS
    return max(1, min(MAX_CHART_POINTS, int((part.to_seconds - part.from_seconds) / step)))


def make_zoom_view(zoomed: ZoomedReport, run: RunPart, zone: tzinfo, zone_name: str) -> ZoomView:
    """Prepare the page: links move by half of what is shown."""
    first, last = zoomed.part
    length = last - first
    return ZoomView(
        zone=zone_name,
        from_text=_format_local(first, zone),
        to_text=_format_local(last, zone),
        query=_query(zoomed.part, run),
        closer=_query(RunPart(first + length / 4, last - length / 4), run) if length >= 4 * MIN_SECONDS else "",
        wider=_query(RunPart(first - length / 2, last + length / 2), run) if zoomed.part != run else "",
        earlier=_query(RunPart(first - length / 2, last - length / 2), run) if first > run.from_seconds else "",
        later=_query(RunPart(first + length / 2, last + length / 2), run) if last < run.to_seconds else "",
        note=describe_zoom(zoomed),
    )


def describe_zoom(zoomed: ZoomedReport) -> str:
    """Describe how fine the curves are, or why they are not finer."""
    if zoomed.problem:
        return f"Finer data could not be read: {zoomed.problem}"
    step = zoomed.step_seconds
    if step is None:
        return "There are no finer data for this part of the run: the charts show what the report has."
    return f"A point every {format_seconds(step)}."


def _query(part: RunPart, run: RunPart) -> str:
    first, last = max(part.from_seconds, run.from_seconds), min(part.to_seconds, run.to_seconds)
    return f"from={first:.0f}&to={last:.0f}"


def _parse_time(name: str, text: str, zone: tzinfo) -> float:
    try:
        if len(text) > MAX_TEXT:
            raise ValueError
        if _UNIX_TIME.match(text):
            return float(text)
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        raise BadQuery(f"The parameter {name} must be a time such as 2026-09-21T14:30, or a Unix time.") from None


def _format_local(seconds: float, zone: tzinfo) -> str:
    moment = as_datetime(round(seconds))
    return "" if moment is None else moment.astimezone(zone).strftime("%Y-%m-%dT%H:%M:%S")


def encode_zoomed(zoomed: ZoomedReport) -> bytes:
    """Encode a part of a run: its charts, how fine they are, and where the cells of its heat maps are."""
    return msgspec.json.encode(
        {
            "charts": [to_json(fold(chart), is_finer=chart.name in zoomed.finer) for chart in zoomed.report.charts],
            "note": describe_zoom(zoomed),
            "heat_maps": {heat_map.name: make_frame(heat_map) for heat_map in find_heat_maps(zoomed.report)},
        }
    )


router = APIRouter(include_in_schema=False)


@router.get("/jobs/{shown_id}/zoom")
def show_zoom(context: Context, shown_id: str) -> Response:
    """Show the charts and heat maps of a part of the run; without a choice, of all of it."""
    report = context.find_report(shown_id)
    run = whole_run(report)
    part = parse_part(context.query, report, context.zone) or run
    zoomed = context.services.zoomer.zoom(context.viewer.name, report, part, MAX_CHART_POINTS)
    charts = [fold(chart) for chart in zoomed.report.charts]
    return context.page(
        "zoom.html",
        report=zoomed.report,
        part=part,
        zoom=make_zoom_view(zoomed, run, context.zone, context.zone_name),
        charts=[(chart, make_data_table(chart)) for chart in charts],
        heat_maps=[show_heat_map(heat_map) for heat_map in find_heat_maps(zoomed.report)],
    )


def find_zoomed(context: RequestContext, shown_id: str) -> ZoomedReport | JobReport:
    """Return the report of a job, or the part of it that the query chooses."""
    report = context.find_report(shown_id)
    part = parse_part(context.query, report, context.zone)
    if part is None:
        return report
    return context.services.zoomer.zoom(context.viewer.name, report, part, MAX_CHART_POINTS)


def find_charted(context: RequestContext, shown_id: str) -> JobReport:
    found = find_zoomed(context, shown_id)
    return found.report if isinstance(found, ZoomedReport) else found
