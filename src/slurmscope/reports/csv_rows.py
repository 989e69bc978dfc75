# SPDX-License-Identifier: Apache-2.0
"""Write rows as CSV; cells that a spreadsheet would treat as a formula are prefixed with a quote."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable

from slurmscope.log import escape

# The full-width forms of these characters start formulas too, in East Asian versions of spreadsheets.
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")

Cell = str | int | float | bool | tuple[str, ...] | None
"""What a table holds; several texts are separated by blanks in CSV, and a list in JSON."""


def render_csv_rows(rows: Iterable[tuple[Cell, ...]]) -> str:
    """Render rows as CSV."""
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerows([_escape_formula(cell) for cell in row] for row in rows)
    return stream.getvalue()


def _escape_formula(cell: Cell) -> Cell:
    if isinstance(cell, tuple):
        cell = " ".join(cell)
    if not isinstance(cell, str):
        return cell
    return f"'{escape(cell)}" if _FORMULA.match(cell) else escape(cell)
