# SPDX-License-Identifier: Apache-2.0
"""Render a job report as PDF, and charts as PNG.

The template gets the report as data: text from users is never parsed as markup. The fonts are those bundled with
typst; system fonts are used only for characters that these lack.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from types import ModuleType

from slurmscope.core.errors import MissingExtraError, OutputError
from slurmscope.core.log import escape
from slurmscope.jobs.charts import choose_charts
from slurmscope.jobs.heat_maps import find_differing
from slurmscope.jobs.render import contents
from slurmscope.jobs.render.formatting import show
from slurmscope.jobs.render.json import as_plain
from slurmscope.jobs.render.svg.charts import render_chart_svg, render_gauge_svg
from slurmscope.jobs.render.svg.elements import LIGHT
from slurmscope.jobs.render.svg.heat_map import describe_heat_map, render_heat_map_svg
from slurmscope.jobs.render.verdict import make_verdict
from slurmscope.jobs.report import Chart, JobReport
from slurmscope.jobs.rule import Severity

_PICTURE = b"""#set page(width: auto, height: auto, margin: 0pt)
#image(bytes(sys.inputs.picture), format: "svg")"""


def render_pdf(report: JobReport, parts: Sequence[JobReport] = ()) -> bytes:
    """Return the document: A4, numbered pages, the same bytes for the same report.

    ``parts`` are the other parts of a heterogeneous job; each begins on a new page.
    """
    reports = json.dumps([*map(_document, (report, *parts))])
    return _compile(_template(), {"reports": reports}, "pdf", timestamp=report.made_seconds)


def render_chart_png(chart: Chart, *, width: int = 800, height: int = 320) -> bytes:
    return render_svg_png(render_chart_svg(chart, width=width, height=height))


def render_svg_png(svg: str) -> bytes:
    """Return an SVG picture of ours as PNG, at one and a half times its size."""
    return _compile(_PICTURE, {"picture": svg}, "png", ppi=144.0)


def _document(report: JobReport) -> object:
    colors = {severity.value: LIGHT.of(severity) for severity in Severity}
    pictures = {"gauges": _gauges(report), "charts": _charts(report), "pictures": _pictures(report)}
    return as_plain({**contents.texts(report), "verdict": make_verdict(report), **pictures, "colors": colors})


def _gauges(report: JobReport) -> list[dict[str, object]]:
    return [
        {
            "label": gauge.label,
            "percent": gauge.percent,
            "text": gauge.text,
            "bar": "" if gauge.ratio is None else render_gauge_svg("", gauge.ratio, rating=gauge.rating),
        }
        for gauge in contents.gauges(report)
    ]


def _charts(report: JobReport) -> Sequence[tuple[str, str]]:
    return [(render_chart_svg(chart, width=430, height=200), show(chart.help)) for chart in choose_charts(report).shown]


def _pictures(report: JobReport) -> Sequence[tuple[str, str]]:
    return [(render_heat_map_svg(item, width=640), describe_heat_map(item)) for item in find_differing(report)]


def _compile(
    source: bytes, inputs: dict[str, str], format: str, *, ppi: float | None = None, timestamp: int | None = None
) -> bytes:
    typst = _typst()
    try:
        made = typst.compile(source, sys_inputs=inputs, format=format, ppi=ppi, timestamp=timestamp)
    except typst.TypstError as error:
        raise OutputError(f"typst could not make the {format.upper()}: {escape(str(error), 300)}") from error
    # typst returns a list for PNG of several pages; ours has one.
    return bytes(made[0] if isinstance(made, list) else made)


def _typst() -> ModuleType:
    try:
        import typst
    except ImportError as error:
        raise MissingExtraError("a report in PDF", "reports") from error
    return typst


@cache
def _template() -> bytes:
    return files("slurmscope.jobs.render").joinpath("templates", "report.typ").read_bytes()
