# SPDX-License-Identifier: Apache-2.0
"""Render the comparison of two runs as text and as JSON."""

from __future__ import annotations

from slurmscope.analysis.comparison import ComparedFigure, Comparison
from slurmscope.figures import NOT_MEASURED, format_bytes, format_count, format_ratio
from slurmscope.reports.columns import cut, lay_table
from slurmscope.reports.formatting import show
from slurmscope.reports.json import as_plain, encode_json
from slurmscope.reports.run_contents import precise

NO_RATIO = "–"
_TINY = 0.005
"""Positive numbers below this would be shown as 0."""


def render_comparison_text(comparison: Comparison, *, width: int = 80) -> str:
    """Return both runs side by side, with the ratio of B to A."""
    rows = [(figure.label, *_values(figure)) for figure in comparison.figures]
    lines = [
        cut(f"A: {show(comparison.first)}", width),
        cut(f"B: {show(comparison.second)}", width),
        "",
        *lay_table(("", "A", "B", "B / A"), rows, width),
    ]
    return "\n".join(lines) + "\n"


def render_comparison_json(comparison: Comparison) -> bytes:
    """Return one JSON object; what was not measured is null."""
    figures = [{**_mapping(as_plain(figure)), "ratio": as_plain(figure.ratio)} for figure in comparison.figures]
    return encode_json({"first": show(comparison.first), "second": show(comparison.second), "figures": figures})


def _values(figure: ComparedFigure) -> tuple[str, str, str]:
    form = _FORMATS[figure.unit]
    return form(figure.first), form(figure.second), _format_quotient(figure)


def _format_quotient(figure: ComparedFigure) -> str:
    if figure.first is None or figure.second is None:
        return NOT_MEASURED
    if figure.ratio is None:
        return NO_RATIO
    return "under 0.01" if 0 < figure.ratio < _TINY else f"{figure.ratio:,.2f}"


def _format_number(amount: float | None) -> str:
    return "under 0.01" if amount is not None and 0 < amount < _TINY else format_count(amount)


_FORMATS = {"seconds": precise, "bytes": format_bytes, "ratio": format_ratio, "count": _format_number}


def _mapping(plain: object) -> dict[str, object]:
    return plain if isinstance(plain, dict) else {}
