# SPDX-License-Identifier: Apache-2.0
"""Tell for how much of a run, and on how many of its nodes, something was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from slurmscope.analysis.alignment import step_seconds
from slurmscope.analysis.run import MeasuredRun
from slurmscope.model.series import Series
from slurmscope.model.summary import Coverage

REACH_STEPS = 2.0
"""A point speaks for the time to its neighbours, if these are no further away than so many steps."""
FIRST_REACH_STEPS = 4.0
"""So far back the first point speaks: a rate needs the samples of half a minute and more before there is any."""
LEAST_STEP_SECONDS = 15.0
"""What is taken for the step of short jobs: they have one point, or two of which one was moved to the end."""


def cover(run: MeasuredRun, told: Iterable[str], curves: Sequence[Series], *, nodes: int | None = None) -> Coverage:
    """Make the coverage: the nodes that told a number, and the mean share of the run that their curves span."""
    told = set(told)
    expected = run.node_count if nodes is None else nodes
    ratios = run_ratios(run, curves)
    return Coverage(
        nodes=expected,
        nodes_measured=min(len(told), expected),
        run_ratio=fmean(ratios.get(node, 0.0) for node in told) if told else 0.0,
    )


def run_ratios(run: MeasuredRun, curves: Sequence[Series]) -> Mapping[str, float]:
    """Return for each node the share of the run that its curve spans."""
    step = max(step_seconds(curves) or 0.0, LEAST_STEP_SECONDS)
    # Nodes that one query answered for have their times in common: each set of times is looked at once.
    spanned = {times: _spanned(times, run, step) for times in {series.times for series in curves}}
    return {series.labels[0]: spanned[series.times] / run.span_seconds for series in curves}


def counted_by_node(run: MeasuredRun) -> Mapping[str, float]:
    """Return for each node how long its CPU time was counted: to the end, unless its last point is long before that.

    The counter starts with the job and misses nothing while nobody looks, so gaps before the last point do not matter.
    When a job was suspended is not known, only for how long: a node that fell silent may have run all the time before.
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
    # How long it took, at this pace, to come to what the counter tells.
    return min(run.seconds, max(run.seconds - reach, cpu_seconds / busy))


def _spanned(times: tuple[float, ...], run: MeasuredRun, step: float) -> float:
    first = min(max(times[0] - run.start_seconds, 0.0), FIRST_REACH_STEPS * step)
    rest = (
        min(max(later - earlier, 0.0), REACH_STEPS * step) for earlier, later in pairwise((*times, run.end_seconds))
    )
    return min(run.span_seconds, first + sum(rest))
