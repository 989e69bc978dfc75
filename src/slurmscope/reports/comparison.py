# SPDX-License-Identifier: Apache-2.0
"""Render the comparison of two runs as text and as JSON."""

from __future__ import annotations

from slurmscope.analysis.comparison import ComparedFigure, Comparison
from slurmscope.figures import NOT_MEASURED, format_bytes, format_count, format_ratio
from slurmscope.reports.columns import cut, lay_table
from slurmscope.reports.formatting import show
from slurmscope.reports.json import as_plain, encode_json
from slurmscope.reports.run_contents import precise

_FORMATS = {"seconds": precise, "bytes": format_bytes, "ratio": format_ratio, "count": format_count}


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
    form, ratio = _FORMATS[figure.unit], figure.ratio
    return form(figure.first), form(figure.second), NOT_MEASURED if ratio is None else f"{ratio:,.2f}"


def _mapping(plain: object) -> dict[str, object]:
    return plain if isinstance(plain, dict) else {}
