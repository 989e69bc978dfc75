# SPDX-License-Identifier: Apache-2.0
"""Prepare the measurements of one run of a job, and compute for how much of it something was measured."""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean

from slurmscope.core.hostlist import expand_hosts
from slurmscope.jobs.curves import step_seconds
from slurmscope.jobs.queries import CURVES, TOTALS
from slurmscope.jobs.record import MAX_STEPS, JobRecord
from slurmscope.jobs.series import NODE_LABEL, Measured, Series, SeriesQuery
from slurmscope.jobs.summary import Coverage
from slurmscope.slurm.states import REQUEUED, WAITING_STATES

# In accounting, REQUEUED is a run that started and was interrupted.
NOT_STARTED = WAITING_STATES - {REQUEUED}
"""States in which the start time is only the scheduler's estimate."""

ROUNDING_SECONDS = 1.0
"""Accounting rounds times to seconds: a sample this close to the start or end belongs to the run."""

PLAUSIBLE = 1e24
"""No counter, size or count of a job is above this; higher values come from a broken response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """One run; ``nodes`` are those of the job, whether they were measured or not.

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
    run = MeasuredRun(
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
    # What a failed query lacks is not idle.
    return run if measured.problems else _with_idle(_with_ended(run), _find_idle_nodes(run))


_OF_CGROUPS = ("cpu", "memory_anon", "memory_shared", "memory_rss")


def _with_ended(run: MeasuredRun) -> MeasuredRun:
    """Return the run with zeros to its end on nodes where all processes of the job ended before.

    Their cgroup is removed then, and the agent marks its last values. A node whose agent fell silent is not measured.
    """
    cpu = run.curves.get("cpu", ())
    reach = REACH_STEPS * (step_seconds(cpu) or run.span_seconds)
    ended_at = {series.labels: series.times[-1] for series in run.curves.get("ended", ())}
    gone = {
        series.labels
        for series in cpu
        if series.times[-1] < run.end_seconds - reach
        and series.times[-1] - reach <= ended_at.get(series.labels, -math.inf)
    }
    axis = max((series.times for series in cpu), key=operator.itemgetter(-1), default=())

    def extend(series: Series) -> Series:
        rest = tuple(time for time in axis if time > series.times[-1]) if series.labels in gone else ()
        return Series(series.labels, series.times + rest, series.values + (0.0,) * len(rest)) if rest else series

    extended = {name: tuple(map(extend, run.curves[name])) for name in _OF_CGROUPS if name in run.curves}
    return replace(run, curves={**run.curves, **extended}) if gone else run


_ZERO_TOTALS = (
    "cpu", "cpu_user", "cpu_system", "busy_peak", "memory_peak", "memory_file", "oom_kills", "read", "write", "reads",
    "writes", "storage_read", "storage_write", "mean_open_files", "uses_scratch",
)  # fmt: skip
_ZERO_CURVES = ("cpu", "memory_anon")
_REMOTE_SHELLS = frozenset({"ssh", "rsh", "pdsh"})
"""Programs that start processes on other nodes without Slurm, which does not see them."""


def _find_idle_nodes(run: MeasuredRun) -> tuple[str, ...]:
    """Return the nodes on which no step ran: there is no cgroup of the job to measure, because nothing was started.

    None where no node was measured, where the nodes of a step are unknown, or where a remote shell may have started
    processes.
    """
    measured, record = run.by_node("cpu"), run.record
    programs = {program for _node, program in run.totals.get("program_threads", {})}
    if not measured or len(run.nodes) < 2 or not record.steps or len(record.steps) >= MAX_STEPS:
        return ()
    lists = [step.node_list or (run.nodes[0] if step.name == "batch" else "") for step in record.steps]
    steps = [names for step, names in zip(record.steps, lists, strict=True) if step.name != "extern"]
    if not steps or not all(steps) or programs & _REMOTE_SHELLS:
        return ()
    try:
        used = {node for names in steps for node in expand_hosts(names)}
    except ValueError:
        return ()
    return tuple(node for node in run.nodes if node not in used and node not in measured)


def _with_idle(run: MeasuredRun, idle: tuple[str, ...]) -> MeasuredRun:
    """Return the run with zeros for nodes on which nothing was started."""
    if not idle:
        return run
    totals = {
        name: {**found, **{(node,): 0.0 for node in idle}} if name in _ZERO_TOTALS else found
        for name, found in run.totals.items()
    }
    curves = {
        name: (*found, *(Series((node,), found[0].times, (0.0,) * len(found[0].times)) for node in idle))
        if name in _ZERO_CURVES and found
        else found
        for name, found in run.curves.items()
    }
    return replace(run, totals=totals, curves=curves)


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


REACH_STEPS = 2.0
"""A point covers the time to its neighbours if these are at most this many steps away."""
FIRST_REACH_STEPS = 4.0
"""The first point covers this many steps before it: a rate needs samples of half a minute or more."""
LEAST_STEP_SECONDS = 15.0
"""Assumed step of short jobs: they have one point, or two of which one was moved to the end."""


def cover(
    run: MeasuredRun, reporting: Iterable[str], curves: Sequence[Series], *, nodes: int | None = None
) -> Coverage:
    """Compute the coverage: the nodes that reported a value, and the mean share of the run that their curves span."""
    measured = set(reporting)
    expected = run.node_count if nodes is None else nodes
    ratios = run_ratios(run, curves)
    return Coverage(
        nodes=expected,
        nodes_measured=min(len(measured), expected),
        run_ratio=fmean(ratios.get(node, 0.0) for node in measured) if measured else 0.0,
    )


def run_ratios(run: MeasuredRun, curves: Sequence[Series]) -> Mapping[str, float]:
    """Return for each node the share of the run that its curve spans."""
    step = max(step_seconds(curves) or 0.0, LEAST_STEP_SECONDS)
    # Nodes from one query share their times: each set of times is computed once.
    spanned = {times: _spanned(times, run, step) for times in {series.times for series in curves}}
    return {series.labels[0]: spanned[series.times] / run.span_seconds for series in curves}


def counted_by_node(run: MeasuredRun) -> Mapping[str, float]:
    """Return for how long each node's CPU time was counted: to the end, unless its last point is long before that.

    The counter starts with the job and counts between scrapes too, so gaps before the last point do not matter. It is
    unknown when a job was suspended, only for how long: a node that stopped reporting may have run all the time before.
    While a job runs, its last sample is up to a scrape old, which matters in its first minutes.
    """
    curves = {series.labels[0]: series for series in run.curves.get("cpu", ())}
    reach = REACH_STEPS * (step_seconds(run.curves.get("cpu", ())) or run.span_seconds)
    counters = run.by_node("cpu")
    return {
        node: run.seconds if node not in curves else _counted(run, curves[node], counters.get(node), reach)
        for node in run.nodes
    }


def _counted(run: MeasuredRun, curve: Series, cpu_seconds: float | None, reach: float) -> float:
    last = curve.times[-1]
    if run.end_seconds - last > reach:
        return min(run.seconds, max(0.0, last - run.start_seconds))
    busy = fmean(curve.values)
    if run.record.has_ended or not busy or cpu_seconds is None:
        return run.seconds
    # How long it took at this rate to reach the value of the counter.
    return min(run.seconds, max(run.seconds - reach, cpu_seconds / busy))


def _spanned(times: tuple[float, ...], run: MeasuredRun, step: float) -> float:
    first = min(max(times[0] - run.start_seconds, 0.0), FIRST_REACH_STEPS * step)
    rest = (
        min(max(later - earlier, 0.0), REACH_STEPS * step) for earlier, later in pairwise((*times, run.end_seconds))
    )
    return min(run.span_seconds, first + sum(rest))
