# SPDX-License-Identifier: Apache-2.0
"""Render a job report as one self-contained HTML document."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from slurmscope.core.errors import MissingExtraError
from slurmscope.core.units import NOT_MEASURED
from slurmscope.jobs.heat_maps import find_heat_maps
from slurmscope.jobs.rating import Rating
from slurmscope.jobs.render import contents
from slurmscope.jobs.render.contents import Gauge
from slurmscope.jobs.render.formatting import show
from slurmscope.jobs.render.svg.charts import render_chart_svg
from slurmscope.jobs.render.svg.elements import DARK, LIGHT, Markup, Palette
from slurmscope.jobs.render.svg.figures import render_cores_svg, render_gauge_svg, render_use_pie_svg
from slurmscope.jobs.render.svg.heat_map import DARK_SCALE, describe_heat_map, render_heat_map_svg
from slurmscope.jobs.report import JobReport

if TYPE_CHECKING:
    from jinja2 import Environment


def render_html(report: JobReport, *, url: str = "") -> str:
    """Return a document with charts that follows the reader's light or dark colour scheme."""
    gauges = [(gauge, _bar(gauge)) for gauge in contents.gauges(report)]
    charts = [(chart.subject.value, render_chart_svg(chart), show(chart.help)) for chart in report.charts]
    charts += [(item.name, render_heat_map_svg(item), describe_heat_map(item)) for item in find_heat_maps(report)]
    cpu = report.summary.cpu
    figures = [render_use_pie_svg(report)] if cpu.user_seconds is not None else []
    cores = render_cores_svg(report)
    return _render(report, url, gauges=gauges, charts=charts, figures=[*figures, *([cores] if cores else [])])


def render_mail_html(report: JobReport, *, url: str = "") -> str:
    """Return the document without charts, small enough for mail programs to show in full."""
    gauges = [(gauge, "") for gauge in contents.gauges(report)]
    return _render(report, url, gauges=gauges, charts=(), figures=())


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


def _render(report: JobReport, url: str, **pictures: object) -> str:
    state = show(report.record.state)
    return render_template("report.html", state=state, url=safe_url(url), **contents.texts(report), **pictures)


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
