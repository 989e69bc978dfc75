# SPDX-License-Identifier: Apache-2.0
"""Name the parts of a dashboard: rows of panels, each with its queries.

In an expression, ``CLUSTER``, ``NODE`` and ``PORTAL`` stand for the matchers that select what the command of that name
serves of the chosen cluster: ``slurm_jobs{CLUSTER, state="RUNNING"}``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

THIRD, HALF, FULL = 8, 12, 24
"""Widths of panels; the page is 24 wide."""


class Look(enum.Enum):
    """How a panel draws its numbers; NAME shows the name of the only series instead."""

    LINES = "lines"
    STACK = "stack"
    NUMBER = "number"
    NAME = "name"
    DIAL = "dial"
    BARS = "bars"
    TABLE = "table"
    HEATMAP = "heatmap"


LINES, STACK, NUMBER, NAME, DIAL, BARS, TABLE, HEATMAP = Look


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    ``queries`` are expressions by the name of their series in the legend, in which ``{{user}}`` is the label user, or
    by the name of their column in a table, which shows ``labels`` first. ``units`` are those of single columns.
    ``warn_from`` and ``bad_from`` colour a number; ``words`` are shown in place of a value, each in its colour.
    """

    look: Look
    title: str
    queries: Mapping[str, str]
    _: KW_ONLY
    text: str
    unit: str = "short"
    width: int = 0
    warn_from: float | None = None
    bad_from: float | None = None
    words: tuple[tuple[str, str, str], ...] = ()
    labels: tuple[str, ...] = ()
    units: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a title that can be folded."""

    title: str
    panels: tuple[Panel, ...]
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """A variable at the top of the dashboard: the values of a label of these series."""

    name: str
    title: str
    series: str
    label: str
    is_multiple: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One dashboard; ``portal_page`` is the page of the portal about the same thing."""

    name: str
    title: str
    text: str
    rows: tuple[Row, ...]
    choices: tuple[Choice, ...] = ()
    portal_page: str = ""


PARTITION = Choice("partition", "Partition", "slurm_partition_nodes_usable{CLUSTER}", "partition")
PARTITIONS = Choice("partition", "Partition", "slurm_partition_nodes_usable{CLUSTER}", "partition", is_multiple=True)
ACCOUNTS = Choice("account", "Account", "slurm_account_jobs{CLUSTER}", "account", is_multiple=True)

JOBS_READ = "slurm_job_unreadable_rows{CLUSTER}"
NODES_READ = 'slurm_nodes_unreadable{CLUSTER, part="rows"}'
"""Metrics that are there, whatever their value, while the reading behind a count is."""


def or_zero(expression: str, measured: str) -> str:
    """Give 0 where nothing is counted, but only while the reading behind it is there: no response is not 0."""
    return f"{expression} or sum(0 * {measured})"


def share(part: str, whole: str, by: str = "") -> str:
    """Divide two sums."""
    of = f"sum by ({by}) " if by else "sum"
    return f"{of}({part}) / {of}({whole})"


def rate(counter: str, by: str = "") -> str:
    """Return the growth per second of a sum of counters."""
    return f"sum{f' by ({by}) ' if by else ''}(rate({counter}[$__rate_interval]))"


def quantiles(histogram: str, matchers: str, by: str = "partition") -> dict[str, str]:
    """Return median and 95th percentile of what a histogram counted within the last hour."""
    buckets = f"sum by (le, {by}) (increase({histogram}_bucket{{{matchers}}}[1h]))"
    return {
        f"{{{{{by}}}}} median": f"histogram_quantile(0.5, {buckets})",
        f"{{{{{by}}}}} 95th percentile": f"histogram_quantile(0.95, {buckets})",
    }


GPUS = 'slurm_gres{CLUSTER, gres="gpu"}'


def by_state(what: str, series: str) -> Panel:
    """Show how many of something are allocated, idle or unusable."""
    values = {"{{state}}": f"sum by (state) ({series})"}
    return Panel(STACK, f"{what}, by state", values, text="Unusable: idle, on unavailable nodes.")


def nodes_by_state(metric: str, matchers: str) -> tuple[Panel, Panel]:
    """Show the base states of nodes, and their flags."""
    states = {"{{base_state}}": f"{metric}{{{matchers}}} > 0"}
    flags = {"{{flag}}": f"{metric}_flagged{{{matchers}}} > 0"}
    return (
        Panel(STACK, "Nodes, by state", states, text="Base state, without flags such as drain."),
        Panel(LINES, "Nodes with a flag", flags, text="A node can have several flags."),
    )


def jobs_now(state: str, metric: str, matchers: str, *, text: str) -> Panel:
    """Count the jobs in a state."""
    count = f'sum({metric}{{{matchers}, state="{state.upper()}"}})'
    return Panel(NUMBER, f"{state} jobs", {"": or_zero(count, JOBS_READ)}, text=text)


def pending_by_reason(matchers: str) -> Panel:
    """Count pending jobs by the reason that Slurm gives."""
    reasons = {"{{reason}}": f"sum by (reason) (slurm_partition_pending_jobs{{{matchers}}})"}
    return Panel(STACK, "Pending jobs, by reason", reasons, text="Why Slurm has not started them.")
