# SPDX-License-Identifier: Apache-2.0
"""Prepare the measurements of one run of a job: its time span, its nodes, and only plausible values."""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from slurmscope.analysis.queries import CURVES, TOTALS
from slurmscope.model.job_record import JobRecord
from slurmscope.model.job_states import REQUEUED, WAITING_STATES
from slurmscope.model.series import NODE_LABEL, Measured, Series, SeriesQuery

# In accounting, REQUEUED is a run that started and was interrupted.
NOT_STARTED = WAITING_STATES - {REQUEUED}
"""States in which the start time is only the scheduler's estimate."""

ROUNDING_SECONDS = 1.0
"""Accounting rounds times to seconds: a sample this close to the start or end belongs to the run."""

PLAUSIBLE = 1e24
"""No counter, size or count of a job is above this; higher values come from a broken response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """Hold one run; ``nodes`` are those of the job, whether they were measured or not.

    Curves and totals are labelled with these nodes, and hold finite numbers of 0 and more within the time of the run.
    """

    record: JobRecord
    start_seconds: float
    end_seconds: float
    nodes: tuple[str, ...]
    curves: Mapping[str, tuple[Series, ...]]
    totals: Mapping[str, Mapping[tuple[str, ...], float]]

    @property
    def span_seconds(self) -> float:
        """Return the time from start to end, including suspended time."""
        return self.end_seconds - self.start_seconds

    @property
    def seconds(self) -> float:
        """Return the run time as Slurm counts it: without suspended time."""
        suspended, span = self.record.suspended_seconds, self.span_seconds
        return span - suspended if 0 <= suspended <= span else span

    @property
    def node_count(self) -> int:
        """Count the nodes, including those that accounting does not name."""
        return max(self.record.node_count, len(self.nodes))

    def by_node(self, total: str) -> dict[str, float]:
        """Return a total by node, for the nodes that reported it."""
        return {labels[0]: value for labels, value in self.totals.get(total, {}).items()}

    def is_whole(self, nodes: Iterable[str]) -> bool:
        """Return whether these are all nodes of the job."""
        return len(set(nodes)) >= self.node_count > 0

    def whole(self, total: str) -> float | None:
        """Add up a total over nodes; None unless every node reported it."""
        reported = self.by_node(total)
        return math.fsum(reported.values()) if self.is_whole(reported) else None


def prepare_run(
    record: JobRecord, measured: Measured, *, now_seconds: float, curves: Collection[str] = CURVES.keys()
) -> MeasuredRun:
    """Determine the time span, label every series with its node, and drop implausible values.

    ``curves`` names those to prepare: a job on many cores has thousands that only its charts need.
    """
    start, end = _span(record, now_seconds)
    nodes = record.nodes or _reporting_nodes(measured)
    places = _Places(
        nodes=frozenset(nodes),
        by_short_name=_by_short_name(nodes),
        only=nodes[0] if max(record.node_count, len(nodes)) == 1 and nodes else None,
    )
    return MeasuredRun(
        record=record,
        start_seconds=start,
        end_seconds=end,
        nodes=nodes,
        curves={
            name: tuple(_clean_curves(series, CURVES[name], places, start, end))
            for name, series in measured.curves.items()
            if name in CURVES and name in curves
        },
        totals={
            name: _clean_totals(totals, TOTALS[name], places)
            for name, totals in measured.totals.items()
            if name in TOTALS
        },
    )


def _span(record: JobRecord, now_seconds: float) -> tuple[float, float]:
    if record.start_seconds is None or record.state in NOT_STARTED:
        return 0.0, 0.0
    end = now_seconds if record.end_seconds is None else record.end_seconds
    return float(record.start_seconds), float(max(end, record.start_seconds))


def _reporting_nodes(measured: Measured) -> tuple[str, ...]:
    """Return the nodes that reported CPU time: accounting does not name the nodes of every job."""
    return tuple(sorted({labels[0] for labels in measured.totals.get("cpu", {}) if labels}))


def _by_short_name(nodes: Iterable[str]) -> Mapping[str, str]:
    """Map short node names to long ones; a short name of two nodes is left out."""
    found: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        found[node.partition(".")[0]].append(node)
    return {short: same[0] for short, same in found.items() if len(same) == 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Map labels to the nodes of a job."""

    nodes: frozenset[str]
    by_short_name: Mapping[str, str]
    only: str | None

    def node_of(self, label: str) -> str | None:
        """Return the node; None for a label that is not a node of this job.

        By default an agent uses the short name of its host, while Slurm may use the long one. An agent that is alone on
        its machine leaves the label empty, which is unambiguous for a job on one node. For a job on several nodes such
        series cannot be distinguished and count as not measured.
        """
        if label in self.nodes:
            return label
        short = label.partition(".")[0]
        if short in self.nodes:
            return short
        return self.by_short_name.get(label) if label else self.only


def _named(labels: tuple[str, ...], query: SeriesQuery, places: _Places) -> tuple[str, ...] | None:
    if len(labels) != len(query.by):
        return None
    if NODE_LABEL not in query.by:
        return labels
    node = places.node_of(labels[0])
    return None if node is None else (node, *labels[1:])


def _clean_curves(
    curves: tuple[Series, ...], query: SeriesQuery, places: _Places, start: float, end: float
) -> Iterator[Series]:
    seen = set()
    for series in curves:
        labels = _named(series.labels, query, places)
        if labels is None or labels in seen:
            continue
        cleaned = _clean(series, labels, start - ROUNDING_SECONDS, end + ROUNDING_SECONDS)
        if cleaned.times:
            seen.add(labels)
            yield cleaned


def _clean(series: Series, labels: tuple[str, ...], first: float, last: float) -> Series:
    times, values = series.times, series.values
    # Nearly every curve is valid as it is; these checks run at C speed.
    if (
        times
        and len(times) == len(values)
        and math.isfinite(sum(values))
        and min(values) >= 0
        and max(values) <= PLAUSIBLE
        and first <= times[0]
        and times[-1] <= last
        and all(map(operator.lt, times, times[1:]))
    ):
        return series if labels == series.labels else Series(labels, times, values)
    good = {
        time: value
        for time, value in zip(times, values, strict=False)
        if 0 <= value <= PLAUSIBLE and first <= time <= last
    }
    points = sorted(good.items())
    return Series(labels, tuple(time for time, _ in points), tuple(value for _, value in points))


def _clean_totals(
    totals: Mapping[tuple[str, ...], float], query: SeriesQuery, places: _Places
) -> dict[tuple[str, ...], float]:
    """Keep plausible values; where two names mean the same node, the higher value counts."""
    kept: dict[tuple[str, ...], float] = {}
    for labels, value in totals.items():
        named = _named(labels, query, places)
        if named is not None and 0 <= value <= PLAUSIBLE:
            kept[named] = max(value, kept.get(named, 0.0))
    return kept
