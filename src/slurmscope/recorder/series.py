# SPDX-License-Identifier: Apache-2.0
"""Read curves and totals of jobs from the recorder, in place of a Prometheus server.

Curves are as in :mod:`slurmscope.recorder.series`. JobTotals are made of the samples from the start of a run
to its end; the highest one and the last one of a counter may also come within :data:`GRACE_INTERVALS` after the end,
because an agent serves the last numbers of a job only when it is over.

The span is cut into steps of equal length; a point is at the end of its step. Each point is made of the samples in
its window, which is as long as the step but never shorter than :data:`WINDOW_INTERVALS` intervals of recording, so
that one missed sample leaves no hole. Windows are open on their left and closed on their right, as PromQL's are; none
reaches beyond the span, because a requeued job has the same number.

Growth is counted from the last sample before the window, so that nothing between two windows is lost. That sample may
be one window older, not more: growth over a long silence belongs to no step.
"""

from __future__ import annotations

import math
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeVar

from slurmscope.core.errors import ServerTimedOut, SourceError
from slurmscope.core.log import escape
from slurmscope.jobs.series import Aggregation, Curves, JobSpan, JobTotals, Series, SeriesQuery, total_of_rises
from slurmscope.recorder.file import read_heads
from slurmscope.recorder.schema import open_reader
from slurmscope.recorder.settings import CLUSTER_INTERVAL_SECONDS
from slurmscope.recorder.slabs import (
    NO_JOB,
    Heads,
    LabelPairs,
    Piece,
    SlabReader,
    grow,
    in_order,
    join,
    make_piece,
    rise,
)

WINDOW_INTERVALS = 3


@dataclass(frozen=True, slots=True)
class Steps:
    """Cut a span into steps of ``step_seconds``; the last one may be shorter."""

    start_seconds: float
    end_seconds: float
    step_seconds: float
    window_seconds: float
    count: int

    def end_of(self, index: int) -> float:
        """Return the end of a step, which is the time of its point."""
        return min(self.start_seconds + self.step_seconds * (index + 1), self.end_seconds)

    def window_start_of(self, index: int) -> float:
        """Return where the window of a point begins; it may lie before the span."""
        return self.start_seconds + self.step_seconds * (index + 1) - self.window_seconds


class Window(NamedTuple):
    """Name samples by their places: ``begin`` to before ``end``; growth counts from ``base``."""

    base: int
    begin: int
    end: int


def plan_steps(start_seconds: float, end_seconds: float, *, points: int, interval_seconds: float) -> Steps:
    """Cut a span into at most ``points`` steps of whole seconds, none shorter than the interval."""
    length = max(0.0, end_seconds - start_seconds)
    step = max(1, math.ceil(max(length / max(1, points), interval_seconds)))
    window = max(step, WINDOW_INTERVALS * interval_seconds)
    return Steps(start_seconds, end_seconds, step, window, math.ceil(length / step))


def find_windows(times: Sequence[float], steps: Steps) -> list[Window]:
    first, found = bisect_left(times, steps.start_seconds), []
    for index in range(steps.count):
        start = steps.window_start_of(index)
        begin = max(first, bisect_right(times, start, first))
        end = bisect_right(times, steps.end_of(index), begin)
        has_base = begin > first and times[begin - 1] > start - steps.window_seconds
        found.append(Window(begin - 1 if has_base else begin, begin, end))
    return found


def make_points(
    times: Sequence[float], values: Sequence[float], windows: Sequence[Window], how: Aggregation
) -> list[float | None]:
    """Return one point for each window, None where nothing was measured; a counter's values never fall."""
    if how is Aggregation.MAX:
        return [max(values[begin:end]) if end > begin else None for _, begin, end in windows]
    if how is Aggregation.TOTAL:
        return [values[end - 1] if end > begin else None for _, begin, end in windows]
    if how is Aggregation.MEAN:
        return [sum(values[begin:end]) / (end - begin) if end > begin else None for _, begin, end in windows]
    return [
        (values[end - 1] - values[base]) / (times[end - 1] - times[base]) if end - 1 > base else None
        for base, _, end in windows
    ]


GRACE_INTERVALS = 2
"""How long after a job's end its last numbers may come."""

_CHECK_OPERATIONS = 1000

T = TypeVar("T")

Points = list[float | None]
Groups = dict[tuple[str, ...], list[Sequence[Piece]]]
"""The pieces of each series, by the values of the labels that distinguish series."""


class RecorderSeries:
    """Read recorded samples, from any thread: every query opens the file separately.

    ``heads`` is the memory of the recorder in this process; without it the journal in the file is read, which takes
    longer.
    """

    # All the work is done in this process, and no two threads of it compute at the same time.
    max_concurrent_queries = 1

    def __init__(
        self,
        file: Path,
        *,
        interval_seconds: float,
        heads: Heads | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file = file
        self._interval_seconds = interval_seconds
        self._heads = heads
        self._clock = clock

    def read_curves(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, points: int, until: float) -> Curves:
        """Return curves of at most so many points each."""

        def make(span: JobSpan, groups: Groups) -> tuple[Series, ...]:
            start, end = span.start_seconds, span.end_seconds
            return _curves(
                wanted, groups, plan_steps(start, end, points=points, interval_seconds=self._interval_seconds)
            )

        return Curves(self._answer(wanted, spans, make, until=until))

    def read_cluster(
        self, wanted: SeriesQuery, start_seconds: float, end_seconds: float, *, points: int, until: float
    ) -> tuple[Series, ...]:
        """Return curves of a metric that belongs to no job."""
        interval_seconds = max(self._interval_seconds, CLUSTER_INTERVAL_SECONDS)
        steps = plan_steps(start_seconds, end_seconds, points=points, interval_seconds=interval_seconds)
        span = JobSpan(NO_JOB, start_seconds, end_seconds)
        found = self._answer(wanted, (span,), lambda _, groups: _curves(wanted, groups, steps), until=until)
        return found.get(NO_JOB, ())

    def read_totals(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, until: float) -> JobTotals:
        """Return one number per series, over the whole span of each job."""
        grace = GRACE_INTERVALS * self._interval_seconds if wanted.how in {Aggregation.MAX, Aggregation.TOTAL} else 0.0
        later = [span._replace(end_seconds=span.end_seconds + grace) for span in spans]
        return JobTotals(self._answer(wanted, later, lambda span, groups: _totals(wanted, groups, span), until=until))

    def _answer(
        self, wanted: SeriesQuery, spans: Sequence[JobSpan], make: Callable[[JobSpan, Groups], T], *, until: float
    ) -> dict[int, T]:
        """Make one answer for each job of which something is known; nothing of exporters of others is recorded."""
        if wanted.is_foreign:
            return {}
        # Memory first, then the file: what is packed in between is seen twice and never missed.
        jobs = {span.job_id for span in spans}
        copies = {} if self._heads is None else {job: self._heads.copies(wanted.metric, job) for job in jobs}
        answers = {}
        try:
            with open_reader(self._file) as connection:
                connection.set_progress_handler(lambda: self._clock() > until, _CHECK_OPERATIONS)
                if self._heads is None:
                    heads = read_heads(connection, wanted.metric, jobs)
                    copies = {job: heads.copies(wanted.metric, job) for job in jobs}
                reader = SlabReader(connection)
                for span in spans:
                    self._check(until)
                    found = list(reader.read(wanted.metric, *span))
                    found += [(pairs, make_piece(*samples)) for pairs, *samples in copies[span.job_id]]
                    if answer := make(span, _group(wanted, found)):
                        answers[span.job_id] = answer
        except ValueError as error:
            raise SourceError(f"cannot read recorded samples from {escape(str(self._file))}: {error}") from error
        return answers

    def _check(self, until: float) -> None:
        if self._clock() > until:
            raise ServerTimedOut(f"reading recorded samples from {escape(str(self._file))} timed out")


def _group(wanted: SeriesQuery, found: Iterable[tuple[LabelPairs, Piece]]) -> Groups:
    """Merge pieces of one series, and series that the query does not distinguish."""
    series: dict[LabelPairs, list[Piece]] = {}
    for pairs, piece in found:
        series.setdefault(pairs, []).append(piece)
    groups: Groups = {}
    for pairs, pieces in series.items():
        labels = dict(pairs)
        is_wanted = all(labels.get(name, "") == value for name, value in wanted.where)
        if is_wanted and all(labels.get(name, "") in values for name, values in wanted.among):
            each = tuple(labels.get(name, "") for name in wanted.each)
            groups.setdefault(each, []).append(in_order(pieces))
    return groups


def _totals(wanted: SeriesQuery, groups: Groups, span: JobSpan) -> dict[tuple[str, ...], float]:
    kept = [wanted.each.index(name) for name in wanted.by]
    totals: dict[tuple[str, ...], float] = {}
    for each, several in sorted(groups.items()):
        numbers = [number for pieces in several if (number := _total(wanted.how, pieces, span)) is not None]
        if numbers:
            by = tuple(each[place] for place in kept)
            totals[by] = totals.get(by, 0.0) + max(numbers)
    return totals


def _total(how: Aggregation, pieces: Sequence[Piece], span: JobSpan) -> float | None:
    parts = [part for piece in pieces if (part := piece.between(span.start_seconds, span.end_seconds)) is not None]
    if not parts:
        return None
    whole = reduce(join, parts)
    if how is Aggregation.MAX:
        return whole.highest
    if how is Aggregation.TOTAL:
        # Most counters never fall: then their samples need not be unpacked.
        return _risen(pieces, span) if _has_reset(pieces) else whole.last
    if how is Aggregation.MEAN:
        return whole.total / whole.samples
    seconds = whole.last_at - whole.first_at
    return whole.growth / seconds if seconds > 0 else None


def _risen(pieces: Sequence[Piece], span: JobSpan) -> float:
    """Add up what a counter grew, from 0 at the start of the job."""
    values = array("d")
    for piece in pieces:
        times, more = piece.load()
        values.extend(more[bisect_left(times, span.start_seconds) : bisect_right(times, span.end_seconds)])
    return total_of_rises(values)


def _curves(wanted: SeriesQuery, groups: Groups, steps: Steps) -> tuple[Series, ...]:
    kept = [wanted.each.index(name) for name in wanted.by]
    windows: dict[Hashable, list[Window]] = {}
    sums: dict[tuple[str, ...], Points] = {}
    for each, several in sorted(groups.items()):
        highest = reduce(_higher, (_points(wanted, pieces, steps, windows) for pieces in several))
        by = tuple(each[place] for place in kept)
        sums[by] = _added(sums[by], highest) if by in sums else highest
    ends = [steps.end_of(index) for index in range(steps.count)]
    curves = (_series(by, ends, points) for by, points in sums.items())
    return tuple(curve for curve in curves if curve.times)


def _points(
    wanted: SeriesQuery, pieces: Sequence[Piece], steps: Steps, windows: dict[Hashable, list[Window]]
) -> Points:
    times, values = array("d"), array("d")
    for piece in pieces:
        more_times, more_values = piece.load()
        times.extend(more_times)
        values.extend(more_values)
    # Most series of a node were recorded together: their windows are found once.
    key = tuple(piece.times_key for piece in pieces)
    if key not in windows:
        windows[key] = find_windows(times, steps)
    has_fallen = wanted.how is Aggregation.RATE and _has_reset(pieces)
    whole = (rise if wanted.may_fall else grow)(values) if has_fallen else values
    return make_points(times, whole, windows[key], wanted.how)


def _has_reset(pieces: Sequence[Piece]) -> bool:
    """Return whether a counter fell; that is known without unpacking its samples."""
    return any(piece.has_reset for piece in pieces) or any(
        after.digest.first < before.digest.last for before, after in pairwise(pieces)
    )


def _higher(one: Points, other: Points) -> Points:
    return [b if a is None else a if b is None else max(a, b) for a, b in zip(one, other, strict=True)]


def _added(one: Points, other: Points) -> Points:
    return [b if a is None else a if b is None else a + b for a, b in zip(one, other, strict=True)]


def _series(labels: tuple[str, ...], ends: Sequence[float], points: Points) -> Series:
    times = tuple(end for end, point in zip(ends, points, strict=True) if point is not None)
    return Series(labels, times, tuple(point for point in points if point is not None))
