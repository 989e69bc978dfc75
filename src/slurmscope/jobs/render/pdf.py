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
from slurmscope.jobs.failure import TITLE as FAILURE
from slurmscope.jobs.failure import failure_rows
from slurmscope.jobs.heat_maps import find_heat_maps
from slurmscope.jobs.render import contents
from slurmscope.jobs.render.contents import LabelledText
from slurmscope.jobs.render.formatting import format_time, show
from slurmscope.jobs.render.resubmission import ResubmissionText, describe_resubmission
from slurmscope.jobs.render.svg.charts import render_chart_svg
from slurmscope.jobs.render.svg.elements import LIGHT
from slurmscope.jobs.render.svg.figures import render_cores_svg, render_gauge_svg, render_use_pie_svg
from slurmscope.jobs.render.svg.heat_map import describe_heat_map, render_heat_map_svg
from slurmscope.jobs.render.tables import make_node_table, source_sections
from slurmscope.jobs.report import Chart, JobReport
from slurmscope.jobs.rule import Severity

_PICTURE = b"""#set page(width: auto, height: auto, margin: 0pt)
#image(bytes(sys.inputs.picture), format: "svg")"""


def render_pdf(report: JobReport) -> bytes:
    """Return the document: A4, numbered pages, the same bytes for the same report."""
    return _compile(_template(), {"report": json.dumps(_document(report))}, "pdf", timestamp=report.made_seconds)


def render_chart_png(chart: Chart, *, width: int = 800, height: int = 320) -> bytes:
    return render_svg_png(render_chart_svg(chart, width=width, height=height))


def render_svg_png(svg: str) -> bytes:
    """Return an SVG picture of ours as PNG, at one and a half times its size."""
    return _compile(_PICTURE, {"picture": svg}, "png", ppi=144.0)


def _document(report: JobReport) -> dict[str, object]:
    table = make_node_table(report)
    return {
        "title": contents.title(report),
        "made": format_time(report.made_seconds),
        "facts": _pairs(contents.facts(report)),
        "gauges": _gauges(report),
        "colors": {severity.value: LIGHT.of(severity) for severity in Severity},
        "failure_title": FAILURE,
        "failure": _pairs(failure_rows(report)),
        "findings": _findings(report),
        "consequences_title": contents.CONSEQUENCES,
        "no_findings": contents.no_findings(report),
        "header": _header(describe_resubmission(report)),
        "memory": _pairs(contents.memory_rows(report)),
        "memory_note": contents.memory_note(report),
        "cpu": _pairs(contents.cpu_rows(report)),
        "files": _pairs(contents.io_rows(report)),
        "nodes": {"head": table.head, "rows": table.rows, "note": table.note},
        "sections": _sections(report),
        "missing": contents.missing(report),
        "charts": _charts(report),
        "pictures": _pictures(report),
    }


def _gauges(report: JobReport) -> list[dict[str, object]]:
    return [
        {
            "label": gauge.label,
            "percent": gauge.percent,
            "text": gauge.text,
            "bar": "" if gauge.ratio is None else render_gauge_svg("", gauge.ratio, rating=gauge.rating),
        }
        for gauge in contents.gauges(report)
        if gauge.text != contents.NONE_REQUESTED
    ]


def _findings(report: JobReport) -> list[dict[str, object]]:
    return [
        {
            "severity": finding.severity.value,
            "title": finding.title,
            "text": f"{finding.explanation} {finding.advice}",
            "suggestion": finding.suggestion,
            "consequences": [f"{other.title}. {other.explanation}" for other in finding.consequences],
        }
        for finding in contents.findings(report)
    ]


def _sections(report: JobReport) -> list[dict[str, object]]:
    return [
        {
            "title": section.title,
            "head": section.table.head,
            "rows": section.table.rows,
            "notes": [section.table.note, *section.sentences],
        }
        for section in source_sections(report)
    ]


def _charts(report: JobReport) -> Sequence[tuple[str, str]]:
    charts = [(render_chart_svg(chart, width=430, height=200), show(chart.help)) for chart in report.charts]
    if report.summary.cpu.user_seconds is not None:
        charts.append((render_use_pie_svg(report, width=430, height=200), ""))
    return charts


def _pictures(report: JobReport) -> Sequence[tuple[str, str]]:
    pictures = [(render_heat_map_svg(item, width=640), describe_heat_map(item)) for item in find_heat_maps(report)]
    if (report.record.cpus or 0) > 1 and (cores := render_cores_svg(report, width=640)) is not None:
        pictures.append((cores, "The darker the cell, the busier the core."))
    return pictures


def _header(made: ResubmissionText | None) -> dict[str, object] | None:
    return None if made is None else {"title": made.title, "diff": made.diff, "sentences": made.sentences}


def _pairs(rows: tuple[LabelledText, ...]) -> list[tuple[str, str]]:
    return [(row.label, row.text) for row in rows]


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
