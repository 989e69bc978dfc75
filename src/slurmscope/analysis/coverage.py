# SPDX-License-Identifier: Apache-2.0
"""Compute for how much of a run, and on how many of its nodes, something was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from slurmscope.analysis.curves import step_seconds
from slurmscope.analysis.run import MeasuredRun
from slurmscope.model.series import Series
from slurmscope.model.summary import Coverage

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
