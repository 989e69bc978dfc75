# SPDX-License-Identifier: Apache-2.0
"""Find the nodes and GPUs of a job that the others wait for: they are slow, or have stopped.

Each is compared with the median of the others, point by point. A node is slow when a CPU limit held its processes back.
It is oversubscribed when they could run and had no core: others used it, and the node is not at fault. Neither depends
on how the work is divided, nor on how the others wait, sleeping or spinning. A GPU is slow when it is less busy while
all others are always busy, and yet does as much work: that is how they wait for it in a collective operation.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean, median, median_high
from typing import NamedTuple

from slurmscope.jobs.curves import STOPPED_CORES, Aligned, align
from slurmscope.jobs.measured_run import REACH_STEPS, MeasuredRun
from slurmscope.jobs.processes import SilentPart, SlowPart
from slurmscope.jobs.rule import MIN_WORKING_CORES
from slurmscope.jobs.series import Series

SLOW_RATIO = 0.8
"""A part is slow while it is below this share of the median of the others."""
MIN_DEVIATIONS = 3.5
"""And further from that median than so many standard deviations, estimated by the median deviation of the others."""
DEVIATION_OF_MEDIAN = 1.4826
"""Standard deviation of a normal distribution by its median absolute deviation."""
MAX_SLOW = 8
"""Of so many parts it is checked whether they are slow: what most of them are is not slow."""
MAX_MISSED = 1
"""Points between two slow ones that may be other: the one before belongs to the same time."""
MIN_POINTS = 3
"""A part that is slow in fewer points is not named: one point is chance."""
LEAST_GPU_WORK = 0.02
"""GPUs whose tensor cores, or multiprocessors, work for a smaller share are not compared by them."""
LEAST_CORES = 0.01
"""A node that keeps fewer cores busy does not work, and is not compared."""
WAITING_GPU_RATIO = 0.9
"""GPUs that wait for others in a collective operation are busy for at least this share of the time."""
SILENT_GPU_RATIO = 0.02
"""A GPU that is busy for a smaller share does nothing."""
WENT_ON_RATIO = 0.8
"""In this share of the time after a part stopped, most parts must have worked: all pause now and then."""
LAST_POINTS = 3
"""And in one of the last points: what they did before they stopped themselves is not going on."""

_Label = tuple[str, ...]


def find_slow_parts(run: MeasuredRun) -> tuple[SlowPart, ...]:
    """Return the nodes and GPUs that were slow for longest, the slowest first."""
    throttled = _by_labels(run, "cpu_throttled")
    nodes = _slow(align(tuple(_run_ratios(run, throttled))), run.start_seconds)
    gpus = _slow(
        align(_own_gpus(run)), run.start_seconds, min_ratio=SILENT_GPU_RATIO, min_others_ratio=WAITING_GPU_RATIO
    )
    return _sorted((*nodes, *(part for part in gpus if _works_as_much(run, part))))


def find_oversubscribed(run: MeasuredRun) -> tuple[SlowPart, ...]:
    """Return the nodes where threads waited for a core and no limit held them back, the worst first."""
    throttled = _by_labels(run, "cpu_throttled")
    waited = {
        labels: {time: max(0.0, wait - throttled.get(labels, {}).get(time, 0.0)) for time, wait in points.items()}
        for labels, points in _by_labels(run, "cpu_queue").items()
    }
    return _sorted(_slow(align(tuple(_run_ratios(run, waited))), run.start_seconds))


def _sorted(parts: Iterable[SlowPart]) -> tuple[SlowPart, ...]:
    return tuple(sorted(parts, key=lambda part: (-part.factor, part.node, part.gpu)))


def find_silent_parts(run: MeasuredRun) -> tuple[SilentPart, ...]:
    """Return the nodes and GPUs that did nothing any more, while most of the others went on to the end."""
    nodes = tuple(_silent(align(run.curves.get("cpu", ())), run.end_seconds, STOPPED_CORES, MIN_WORKING_CORES))
    gpus = _silent(align(_own_gpus(run)), run.end_seconds, SILENT_GPU_RATIO, WAITING_GPU_RATIO)
    silent_nodes = {part.node for part in nodes}
    return tuple(
        sorted(
            (*nodes, *(part for part in gpus if part.node not in silent_nodes)),
            key=lambda part: (-part.seconds, part.node, part.gpu),
        )
    )


def _by_labels(run: MeasuredRun, curve: str) -> dict[_Label, dict[float, float]]:
    return {series.labels: dict(zip(series.times, series.values, strict=True)) for series in run.curves.get(curve, ())}


def _run_ratios(run: MeasuredRun, lost: Mapping[_Label, Mapping[float, float]]) -> Iterator[Series]:
    """Yield for each node which share of the time in which its processes could run was not ``lost``."""
    for series in run.curves.get("cpu", ()):
        waits = lost.get(series.labels, {})
        points = [
            # Those that mostly sleep wait for others, not for a core.
            (time, busy / (busy + waits[time]) if busy + waits[time] >= MIN_WORKING_CORES else 1.0)
            for time, busy in zip(series.times, series.values, strict=True)
            if time in waits and busy >= LEAST_CORES
        ]
        if points:
            times, ratios = zip(*points, strict=True)
            yield Series(series.labels, times, ratios)


def _own_gpus(run: MeasuredRun) -> tuple[Series, ...]:
    """Return the curves of GPUs that no other job shared."""
    jobs = run.totals.get("gpu_jobs", {})
    return tuple(series for series in run.curves.get("gpu_busy", ()) if jobs.get(series.labels, 0.0) <= 1)


def _works_as_much(run: MeasuredRun, part: SlowPart) -> bool:
    """Return whether a GPU that was less busy did about as much as the others: then these wait for it while they spin.

    GPUs that work each for itself do as much as they are busy. False where it is not known.
    """
    for curve in ("gpu_tensor", "gpu_sm"):
        sums = {
            series.labels: [value for time, value in zip(series.times, series.values, strict=True) if part.covers(time)]
            for series in run.curves.get(curve, ())
        }
        means = {labels: fmean(values) for labels, values in sums.items() if values}
        own = [mean for labels, mean in means.items() if labels[:2] == (part.node, part.gpu)]
        others = [mean for labels, mean in means.items() if labels[:2] != (part.node, part.gpu)]
        if len(own) == 1 and others and median(others) >= LEAST_GPU_WORK:
            return own[0] >= (1 + 1 / part.factor) / 2 * median(others)
    return False


class _SlowPoint(NamedTuple):
    place: int
    own: float
    others: float


def _slow(
    aligned: Aligned, start_seconds: float, *, min_ratio: float = 0.0, min_others_ratio: float = 0.0
) -> Iterator[SlowPart]:
    """Yield for each part that was ever slow the longest time."""
    points: defaultdict[_Label, list[_SlowPoint]] = defaultdict(list)
    labels = tuple(aligned.rows)
    for place, column in enumerate(_columns(aligned)):
        known = sorted((value, label) for label, value in zip(labels, column, strict=True) if value is not None)
        values = [value for value, _ in known]
        for rank, (own, label) in enumerate(known[: min(MAX_SLOW, len(known) - 1)]):
            others = _median_of_others(values, rank)
            if min_ratio <= own < SLOW_RATIO * others and others >= min_others_ratio and _is_far(values, rank, others):
                points[label].append(_SlowPoint(place, own, others))
    for label, found in points.items():
        longest = max(_split(found), key=lambda span: span[-1].place - span[0].place)
        if len(longest) < MIN_POINTS:
            continue
        first, last = longest[0].place, longest[-1].place
        begin = max(start_seconds, aligned.times[first] - _step(aligned))
        yield SlowPart(
            node=label[0],
            gpu=_gpu_of(label),
            own_ratio=math.fsum(point.own for point in longest) / len(longest),
            others_ratio=math.fsum(point.others for point in longest) / len(longest),
            since_seconds=begin,
            seconds=aligned.times[last] - begin,
        )


def _silent(aligned: Aligned, end_seconds: float, silent: float, working: float) -> Iterator[SilentPart]:
    """Yield each part that was once above ``working``, and ended below ``silent`` while most were above ``working``."""
    reach = REACH_STEPS * _step(aligned)
    # Of two parts, the one that works.
    usual = [median_high([value for value in column if value is not None] or [0.0]) for column in _columns(aligned)]
    for label, values in aligned.rows.items():
        known = [(place, value) for place, value in enumerate(values) if value is not None]
        busy = [(place, value) for place, value in known if value >= silent]
        if not busy or busy[-1] == known[-1] or end_seconds - aligned.times[known[-1][0]] > reach:
            continue
        last = busy[-1][0]
        went_on = [value >= working for value in usual[last + 1 : known[-1][0] + 1]]
        has_worked = max(value for _, value in busy) >= working
        if has_worked and any(went_on[-LAST_POINTS:]) and sum(went_on) >= WENT_ON_RATIO * len(went_on):
            yield SilentPart(label[0], _gpu_of(label), end_seconds - aligned.times[last])


def _median_of_others(values: Sequence[float], rank: int) -> float:
    """Return the median of sorted values without one of them."""
    count = len(values) - 1
    return (_other(values, rank, (count - 1) // 2) + _other(values, rank, count // 2)) / 2


def _other(values: Sequence[float], rank: int, place: int) -> float:
    return values[place if place < rank else place + 1]


def _is_far(values: Sequence[float], rank: int, others: float) -> bool:
    """Return whether a value is further from the median of the others than these are scattered."""
    scatter = median(abs(value - others) for place, value in enumerate(values) if place != rank)
    return others - values[rank] > MIN_DEVIATIONS * DEVIATION_OF_MEDIAN * scatter


def _split(points: Iterable[_SlowPoint]) -> list[list[_SlowPoint]]:
    """Split points where too many between two of them are other."""
    spans: list[list[_SlowPoint]] = []
    for point in points:
        if spans and point.place - spans[-1][-1].place <= MAX_MISSED + 1:
            spans[-1].append(point)
        else:
            spans.append([point])
    return spans


def _columns(aligned: Aligned) -> Iterator[tuple[float | None, ...]]:
    return zip(*aligned.rows.values(), strict=True)


def _step(aligned: Aligned) -> float:
    times = aligned.times
    return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 0.0


def _gpu_of(label: _Label) -> str:
    return label[1] if len(label) > 1 else ""
