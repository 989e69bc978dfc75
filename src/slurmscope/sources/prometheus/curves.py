# SPDX-License-Identifier: Apache-2.0
"""Make curves of what a Prometheus answers: cut to the run, put together of parts, growth turned into rates."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from slurmscope.model.series import Aggregation, JobSpan, Series
from slurmscope.sources.prometheus.answers import FoundSeries
from slurmscope.sources.prometheus.plan import CurvesQuestion

CurvesByJob = dict[int, dict[tuple[str, ...], Series]]
"""Curves by the number of the job and the values of their labels."""


def first_parts(plan: Iterable[CurvesQuestion], how: Aggregation) -> list[JobSpan]:
    """Return the starts of runs that are asked for by themselves; no rate is made of a small part of a window."""
    pairs = ((question, span, question.first_part(span)) for question in plan for span in question.spans)
    return [
        part
        for question, span, part in pairs
        if part is not None
        and (how is not Aggregation.RATE or part.end_seconds - part.start_seconds >= _least_seconds(span, question))
    ]


def last_parts(plan: Iterable[CurvesQuestion]) -> list[JobSpan]:
    """Return the ends of runs that are asked for by themselves."""
    parts = (question.last_part(span) for question in plan for span in question.spans)
    return [part for part in parts if part is not None]


def add_curve(by_job: CurvesByJob, span: JobSpan, curve: Series) -> None:
    """Take a curve of a run, or one more part of it."""
    if curve.times:
        known = by_job.setdefault(span.job_id, {})
        known[curve.labels] = _merged(known[curve.labels], curve) if curve.labels in known else curve


def cut_curve(
    found: FoundSeries, span: JobSpan, question: CurvesQuestion, how: Aggregation, labels: tuple[str, ...]
) -> Series:
    """Keep the points whose windows lie within the run or reach a little out of it.

    One of them may be the point behind its end.
    """
    begin = max(bisect_right(found.times, span.start_seconds), bisect_left(found.times, question.settled_seconds(span)))
    end = bisect_left(found.times, span.end_seconds)
    behind = found.times[end] - span.end_seconds if end < len(found.times) else math.inf
    if behind < question.step_seconds and behind <= question.reach_seconds:
        end += 1
    times, values = found.times[begin:end], found.values[begin:end]
    if how is Aggregation.RATE:
        times, values = _rates(times, values, span, question)
    if times and times[-1] > span.end_seconds:
        times = (*times[:-1], span.end_seconds)
    return Series(labels, times, values)


def _rates(
    times: Sequence[float], values: Sequence[float], span: JobSpan, question: CurvesQuestion
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Divide growth by the part of each window in which the job ran; leave out where that is a small part."""
    least, window_seconds = _least_seconds(span, question), question.window_seconds
    covered = [min(time, span.end_seconds) - max(time - window_seconds, span.start_seconds) for time in times]
    kept = [(time, value / part) for time, value, part in zip(times, values, covered, strict=True) if part >= least]
    return tuple(time for time, _ in kept), tuple(value for _, value in kept)


def make_point(how: Aggregation, part: JobSpan, value: float) -> float:
    """Make a point of a curve of what was told about a part of a run."""
    if how is Aggregation.RATE:
        return value / (part.end_seconds - part.start_seconds)
    return abs(value) if how is Aggregation.TOTAL else value


def _least_seconds(span: JobSpan, question: CurvesQuestion) -> float:
    return min(question.window_seconds, span.end_seconds - span.start_seconds) / 2


def _merged(one: Series, other: Series) -> Series:
    """Put two parts of a curve together; where both have a value, the higher one counts."""
    points = dict(zip(one.times, one.values, strict=True))
    for time, value in zip(other.times, other.values, strict=True):
        points[time] = max(value, points.get(time, value))
    times = tuple(sorted(points))
    return Series(one.labels, times, tuple(points[time] for time in times))
