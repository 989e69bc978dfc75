# SPDX-License-Identifier: Apache-2.0
"""Render the report of a command for a terminal, in the style of seff."""

from __future__ import annotations

from collections.abc import Iterator

from slurmscope.model.traced_run import RunReport
from slurmscope.reports import contents, run_contents
from slurmscope.reports.columns import pad
from slurmscope.reports.sparkline import BLOCKS, draw_sparkline
from slurmscope.reports.text import TextPage

LABEL_COLUMNS = 16
CURVE_COLUMNS = 40


def render_run_text(made: RunReport, *, width: int = 80, use_color: bool = False, marks: str = BLOCKS) -> str:
    """Return the report in lines of at most ``width`` columns; ``marks`` are the characters of curves."""
    page = TextPage(width, use_color=use_color)
    lines = [
        *page.top(run_contents.title(made)),
        *page.rows(run_contents.rows(made)),
        *_curves(made, page, marks),
        *page.heading("Findings"),
        *(page.findings(contents.findings(made.report), run_contents.no_findings(made))),
        *page.missing(made.report),
    ]
    return "\n".join(lines) + "\n"


def _curves(made: RunReport, page: TextPage, marks: str) -> Iterator[str]:
    drawn = run_contents.curves(made)
    if drawn:
        yield ""
    columns = min(CURVE_COLUMNS, page.width - LABEL_COLUMNS - 24)
    for chart in drawn:
        curve = draw_sparkline(chart.lines[0].values, columns, marks)
        yield f"  {pad(chart.title, LABEL_COLUMNS)}  {pad(curve, columns)}  {run_contents.peak_text(chart)}"
