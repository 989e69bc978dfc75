# SPDX-License-Identifier: Apache-2.0
"""Prepare the bar chart of allocated and used core-hours per day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slurmscope.model.archive import UseTotal
from slurmscope.portal.views.queries import render_day
from slurmscope.units import DAY_SECONDS


class DayBar(NamedTuple):
    """Hold one day; heights are 0 to 100. Time that was not measured is separate from idle time."""

    day: str
    jobs: int
    core_seconds: float
    used_core_seconds: float
    allocated_height: float
    measured_height: float
    used_height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DayBars:
    """Hold all days, including those without jobs, and their sums."""

    bars: tuple[DayBar, ...]
    jobs: int
    core_seconds: float
    measured_core_seconds: float
    used_core_seconds: float
    gpu_seconds: float
    measured_gpu_seconds: float
    used_gpu_seconds: float
    jobs_with_findings: int
    highest_core_seconds: float

    @property
    def cpu_ratio(self) -> float | None:
        """Return the used share of the measured core time."""
        return self.used_core_seconds / self.measured_core_seconds if self.measured_core_seconds else None

    @property
    def gpu_ratio(self) -> float | None:
        """Return the used share of the measured GPU time."""
        return self.used_gpu_seconds / self.measured_gpu_seconds if self.measured_gpu_seconds else None


def make_day_bars(totals: Sequence[UseTotal], since_seconds: int, days: int) -> DayBars:
    """Make the bars of so many days, starting at ``since_seconds``."""
    by_day = {total.key: total for total in totals}
    highest = max((total.core_seconds for total in totals), default=0.0)
    names = [render_day(since_seconds + index * DAY_SECONDS) or "" for index in range(days)]
    return DayBars(
        bars=tuple(_make_bar(name, by_day.get(name), highest) for name in names),
        jobs=sum(total.jobs for total in totals),
        core_seconds=sum(total.core_seconds for total in totals),
        measured_core_seconds=sum(total.measured_core_seconds for total in totals),
        used_core_seconds=sum(total.used_core_seconds for total in totals),
        gpu_seconds=sum(total.gpu_seconds for total in totals),
        measured_gpu_seconds=sum(total.measured_gpu_seconds for total in totals),
        used_gpu_seconds=sum(total.used_gpu_seconds for total in totals),
        jobs_with_findings=sum(total.jobs_with_findings for total in totals),
        highest_core_seconds=highest,
    )


def _make_bar(name: str, total: UseTotal | None, highest: float) -> DayBar:
    if total is None or not highest:
        return DayBar(name, total.jobs if total else 0, 0.0, 0.0, 0.0, 0.0, 0.0)
    return DayBar(
        name,
        total.jobs,
        total.core_seconds,
        total.used_core_seconds,
        round(100 * total.core_seconds / highest, 1),
        round(100 * total.measured_core_seconds / highest, 1),
        round(100 * total.used_core_seconds / highest, 1),
    )
