# SPDX-License-Identifier: Apache-2.0
"""Make measurements of jobs whose right summary can be worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.series import Measured, Series
from slurmscope.jobs.summarize import summarize
from slurmscope.jobs.summary import JobSummary
from tests.fakes.reports import START

STEP = 30.0


def curve(
    labels: tuple[str, ...],
    value: float | Callable[[float], float],
    *,
    first: float = STEP,
    last: float = 7200.0,
    step: float = STEP,
) -> Series:
    """Make a curve over part of a run, given in seconds since its start; ``value`` may depend on them."""
    count = int((last - first) / step) + 1
    offsets = [first + index * step for index in range(count)]
    values = tuple(value(offset) if callable(value) else value for offset in offsets)
    return Series(labels, tuple(START + offset for offset in offsets), values)


def measure_nodes(cores: dict[str, float], *, seconds: float = 7200.0, memory_bytes: float = 1e9) -> Measured:
    """Measure a run of two hours on which each node kept so many cores busy, all the time."""
    return Measured(
        curves={
            "cpu": tuple(curve((node,), busy, last=seconds) for node, busy in cores.items()),
            "memory_anon": tuple(curve((node,), memory_bytes, last=seconds) for node in cores),
            "memory_shared": tuple(curve((node,), memory_bytes / 10, last=seconds) for node in cores),
        },
        totals={
            "cpu": {(node,): busy * seconds for node, busy in cores.items()},
            "cpu_user": {(node,): 0.9 * busy * seconds for node, busy in cores.items()},
            "cpu_system": {(node,): 0.1 * busy * seconds for node, busy in cores.items()},
        },
    )


def summed(record: JobRecord, measured: Measured | None = None, now_seconds: float = START + 7200.0) -> JobSummary:
    """Sum up a job as it is two hours after its start, or at another time."""
    return summarize(record, measured or Measured(), now_seconds=now_seconds)


def with_totals(measured: Measured, **totals: dict[tuple[str, ...], float]) -> Measured:
    """Add totals."""
    return replace(measured, totals={**measured.totals, **totals})


def with_curves(measured: Measured, **curves: tuple[Series, ...]) -> Measured:
    """Add curves."""
    return replace(measured, curves={**measured.curves, **curves})
