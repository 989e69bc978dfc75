# SPDX-License-Identifier: Apache-2.0
"""Name the parts of a dashboard: rows of panels that ask queries.

In an expression, ``@`` stands for the exporter that is looked at, ``$partition`` and ``$account`` for
what was chosen at the top.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

THIRD, HALF, FULL = 8, 12, 24
"""Widths of panels; the page is 24 wide."""


class Look(enum.Enum):
    """Hold how a panel draws its numbers."""

    LINES = "lines"
    STACK = "stack"
    NUMBER = "number"
    DIAL = "dial"
    BARS = "bars"
    TABLE = "table"
    HEATMAP = "heatmap"


@dataclass(frozen=True, slots=True)
class Query:
    """Ask for one thing; ``name`` is how the legend calls each series, ``{{label}}`` being its label."""

    expression: str
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Describe one panel.

    ``warn_from`` and ``bad_from`` colour a number, ``words`` are shown in place of a value, each in its
    colour, and ``columns`` are those of a table, with the names that they get.
    """

    title: str
    queries: tuple[Query, ...]
    look: Look = Look.LINES
    unit: str = "short"
    width: int = THIRD
    text: str = ""
    warn_from: float | None = None
    bad_from: float | None = None
    words: tuple[tuple[str, str, str], ...] = ()
    columns: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Group panels under a title that can be folded."""

    title: str
    panels: tuple[Panel, ...]
    is_folded: bool = False


JOBS_READ = "slurm_job_unreadable_rows{@}"
NODES_READ = 'slurm_nodes_unreadable{@, part="rows"}'
"""Metrics that are there, whatever their value, while the reading behind a count is."""


def or_zero(expression: str, measured: str) -> str:
    """Give 0 where nothing is counted, but only while the reading behind it is there: no answer is not 0."""
    return f"{expression} or sum(0 * {measured})"


def share(part: str, whole: str, by: str = "") -> str:
    """Divide two sums."""
    of = f"sum by ({by}) " if by else "sum"
    return f"{of}({part}) / {of}({whole})"
