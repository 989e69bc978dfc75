# SPDX-License-Identifier: Apache-2.0
"""Answer the recorder's questions the slow and plain way, from lists of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, pairwise
from pathlib import Path

from slurmscope.jobs.series import Aggregation, JobSpan, SeriesQuery
from slurmscope.recorder.recorder import RecordedSample, Recorder
from slurmscope.recorder.settings import RecorderSettings

START = 1_790_000_000.0
INTERVAL = 15.0
JOB = 4711
CPU = "jobs_cpu_seconds_total"
MEMORY = "jobs_memory_anon_bytes"

Points = list[tuple[float, float]]
Answer = dict[tuple[str, ...], Points]


def make_recorder(folder: Path, **settings: object) -> Recorder:
    """Open a recorder whose clock stands still."""
    chosen = RecorderSettings(file=folder / "recorder.db", interval=INTERVAL, **settings)  # type: ignore[arg-type]
    return Recorder(chosen, clock=lambda: 0.0)


def sample(value: float, metric: str = CPU, node: str = "n1", job: int = JOB, **labels: str) -> RecordedSample:
    """Make one sample of a job on a node."""
    return metric, {"slurm_job": str(job), "slurm_node": node, **labels}, value


def naive_curves(
    series: Sequence[tuple[Mapping[str, str], Points]], wanted: SeriesQuery, span: JobSpan, points: int
) -> Answer:
    """Look at every sample for every point."""
    length = span.end_seconds - span.start_seconds
    step = next(n for n in count(1) if n >= INTERVAL and n * points >= length)
    window = max(step, 3 * INTERVAL)
    answer: Answer = {}
    for turn in range(points):
        nominal_end = span.start_seconds + (turn + 1) * step
        if nominal_end - step >= span.end_seconds:
            break
        end, left = min(nominal_end, span.end_seconds), nominal_end - window
        numbers: dict[tuple[str, ...], float] = {}
        for labels, samples in series:
            number = _at(samples, wanted.how, span, (left, end, window))
            if number is not None:
                each = tuple(labels.get(name, "") for name in wanted.each)
                numbers[each] = max(numbers.get(each, float("-inf")), number)
        for by, number in summed(numbers, wanted).items():
            answer.setdefault(by, []).append((end, number))
    return answer


def naive_totals(
    series: Sequence[tuple[Mapping[str, str], Points]], wanted: SeriesQuery, span: JobSpan
) -> dict[tuple[str, ...], float]:
    """Look at every sample of the span."""
    numbers: dict[tuple[str, ...], float] = {}
    end = span.end_seconds + (2 * INTERVAL if wanted.how in {Aggregation.MAX, Aggregation.TOTAL} else 0)
    for labels, samples in series:
        number = _fold([(at, value) for at, value in samples if span.start_seconds <= at <= end], wanted.how)
        if number is not None:
            each = tuple(labels.get(name, "") for name in wanted.each)
            numbers[each] = max(numbers.get(each, float("-inf")), number)
    return summed(numbers, wanted)


def summed(numbers: Mapping[tuple[str, ...], float], wanted: SeriesQuery) -> dict[tuple[str, ...], float]:
    """Sum up over the labels that are not kept."""
    sums: dict[tuple[str, ...], float] = {}
    for each, number in sorted(numbers.items()):
        by = tuple(value for name, value in zip(wanted.each, each, strict=True) if name in wanted.by)
        sums[by] = sums.get(by, 0.0) + number
    return sums


def _at(samples: Points, how: Aggregation, span: JobSpan, bounds: tuple[float, float, float]) -> float | None:
    left, end, window = bounds
    inside = [(at, value) for at, value in samples if at >= span.start_seconds and left < at <= end]
    before = [(at, value) for at, value in samples if at >= span.start_seconds and left - window < at <= left]
    if how is Aggregation.TOTAL:
        return inside[-1][1] if inside else None
    return _fold(before[-1:] + inside if how is Aggregation.RATE and inside else inside, how)


def _fold(samples: Points, how: Aggregation) -> float | None:
    if not samples:
        return None
    values = [value for _, value in samples]
    if how is Aggregation.MAX:
        return max(values)
    if how is Aggregation.TOTAL:
        return values[0] + sum(after - before for before, after in pairwise(values) if after > before)
    if how is Aggregation.MEAN:
        return sum(values) / len(values)
    if len(samples) < 2:
        return None
    growth = sum(after - before if after >= before else after for before, after in pairwise(values))
    return growth / (samples[-1][0] - samples[0][0])
