# SPDX-License-Identifier: Apache-2.0
"""Prepare the bar chart of allocated and used core-hours, by day or by week."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slurmscope.model.archive import UseTotal
from slurmscope.portal.views.queries import render_day
from slurmscope.units import DAY_SECONDS

MAX_DAY_BARS = 92
"""Of longer periods, a bar is a week: a bar for each day would be about a pixel wide."""
WEEK_DAYS = 7
_MONDAY = 4
"""The first Monday after 1970-01-01, in days."""


class UsageBar(NamedTuple):
    """Hold a day or a week; heights are 0 to 100. Time that was not measured is separate from idle time."""

    title: str
    jobs: int
    core_seconds: float
    used_core_seconds: float
    allocated_height: float
    measured_height: float
    used_height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageBars:
    """Hold all bars, including those without jobs, and the sums of the period."""

    bars: tuple[UsageBar, ...]
    unit: str
    first_day: str
    last_day: str
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


def make_usage_bars(totals: Sequence[UseTotal], since_seconds: int, days: int) -> UsageBars:
    """Make the bars of so many days, starting at ``since_seconds``, from the sums of each day."""
    by_day = {total.key: total for total in totals}
    names = [render_day(since_seconds + index * DAY_SECONDS) or "" for index in range(days)]
    length = 1 if days <= MAX_DAY_BARS else WEEK_DAYS
    groups = _split(names, since_seconds, length)
    parts = [(group, [by_day[name] for name in group if name in by_day]) for group in groups]
    highest = max((sum(total.core_seconds for total in found) for _, found in parts), default=0.0)
    return UsageBars(
        bars=tuple(_make_bar(group, found, highest) for group, found in parts),
        unit="day" if length == 1 else "week",
        first_day=names[0],
        last_day=names[-1],
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


def _split(names: Sequence[str], since_seconds: int, length: int) -> Iterator[Sequence[str]]:
    """Yield the days of each bar; weeks begin on Monday, so the first and the last may be shorter."""
    start, end = 0, (_MONDAY - since_seconds // DAY_SECONDS) % length or length
    while start < len(names):
        yield names[start:end]
        start, end = end, end + length


def _make_bar(days: Sequence[str], totals: Sequence[UseTotal], highest: float) -> UsageBar:
    allocated = sum(total.core_seconds for total in totals)
    measured = sum(total.measured_core_seconds for total in totals)
    used = sum(total.used_core_seconds for total in totals)
    heights = (round(100 * seconds / highest, 1) if highest else 0.0 for seconds in (allocated, measured, used))
    title = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return UsageBar(title, sum(total.jobs for total in totals), allocated, used, *heights)
