# SPDX-License-Identifier: Apache-2.0
"""Render a job report as one self-contained HTML document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from slurmscope.core.errors import MissingExtraError
from slurmscope.core.units import NOT_MEASURED
from slurmscope.jobs.charts import choose_charts
from slurmscope.jobs.heat_maps import find_differing
from slurmscope.jobs.rating import Rating
from slurmscope.jobs.render import contents
from slurmscope.jobs.render.contents import Gauge
from slurmscope.jobs.render.formatting import show
from slurmscope.jobs.render.svg.charts import render_chart_svg, render_gauge_svg
from slurmscope.jobs.render.svg.elements import DARK, LIGHT, Markup, Palette
from slurmscope.jobs.render.svg.heat_map import DARK_SCALE, describe_heat_map, render_heat_map_svg
from slurmscope.jobs.render.verdict import make_verdict
from slurmscope.jobs.report import JobReport

if TYPE_CHECKING:
    from jinja2 import Environment


def render_html(report: JobReport, *, url: str = "", parts: Sequence[JobReport] = ()) -> str:
    """Return a document with charts that follows the reader's light or dark colour scheme.

    ``parts`` are the other parts of a heterogeneous job.
    """
    return _render((report, *parts), url, _pictures, is_short=False)


def _pictures(report: JobReport) -> dict[str, object]:
    gauges = [(gauge, _bar(gauge)) for gauge in contents.gauges(report)]
    charts = [(render_chart_svg(chart), show(chart.help)) for chart in choose_charts(report).shown]
    charts += [(render_heat_map_svg(item), describe_heat_map(item)) for item in find_differing(report)]
    return {"gauges": gauges, "charts": charts}


def render_mail_html(report: JobReport, *, url: str = "") -> str:
    """Return the document without charts, small enough for mail programs; what a portal shows is linked instead."""

    def draw_none(report: JobReport) -> dict[str, object]:
        return {"gauges": [(gauge, "") for gauge in contents.gauges(report)], "charts": ()}

    return _render((report,), url, draw_none, is_short=bool(safe_url(url)))


def render_template(name: str, /, **values: object) -> str:
    """Render a template; every value is escaped."""
    return _environment().get_template(name).render(light=LIGHT, dark=DARK, dark_css=make_chart_css(DARK), **values)


def make_chart_css(palette: Palette) -> Markup:
    """Return rules that recolour every chart of a page."""
    rules = [
        f".paper {{ fill: {palette.paper} }}",
        f".ink {{ fill: {palette.ink} }}",
        f".on-fill {{ fill: {palette.paper} }}",
        f".grid {{ stroke: {palette.grid} }}",
        f".tick, .frame {{ stroke: {palette.ink} }}",
        f"line.reference {{ stroke: {palette.reference} }}",
        f"text.reference {{ fill: {palette.reference} }}",
        *(f".line-{index} {{ stroke: {color} }}" for index, color in enumerate(palette.lines)),
        *(f".fill-{index} {{ fill: {color} }}" for index, color in enumerate(palette.lines)),
        *(f".heat-{index} {{ fill: {color} }}" for index, color in enumerate(DARK_SCALE)),
        *(f"rect.{rating.value} {{ fill: {palette.rated(rating)} }}" for rating in Rating),
    ]
    return Markup("\n".join(f"svg {rule}" for rule in rules).replace(", .frame", ", svg .frame"))


def safe_url(url: str) -> str:
    """Return an http or https address, or an empty text for anything else."""
    return show(url) if url.startswith(("https://", "http://")) else ""


def _render(
    reports: Sequence[JobReport], url: str, draw: Callable[[JobReport], dict[str, object]], *, is_short: bool
) -> str:
    bodies = [
        _render_body(report, url, is_short=is_short, is_part=len(reports) > 1, **draw(report)) for report in reports
    ]
    texts = contents.texts(reports[0])
    return render_template("report.html", title=texts["title"], made=texts["made"], bodies=bodies)


def _render_body(report: JobReport, url: str, **values: object) -> Markup:
    texts = {**contents.texts(report), "verdict": make_verdict(report), "state": show(report.record.state)}
    return Markup(render_template("report_body.html", **texts, url=safe_url(url), **values))


def _bar(gauge: Gauge) -> str:
    """Draw the bar of a gauge; empty for a value that is not a share."""
    if gauge.ratio is None and gauge.text != NOT_MEASURED:
        return ""
    return render_gauge_svg(gauge.label, gauge.ratio, rating=gauge.rating)


@cache
def _environment() -> Environment:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise MissingExtraError("a report in HTML", "reports") from error
    return Environment(
        loader=PackageLoader("slurmscope.jobs.render"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
