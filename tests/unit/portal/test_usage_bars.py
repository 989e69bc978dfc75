# SPDX-License-Identifier: Apache-2.0
"""Test the bars of days and weeks against worked examples."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from slurmscope.archive.interface import UseTotal
from slurmscope.portal.users import MAX_DAY_BARS, make_usage_bars


def seconds_of(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def make_total(day: date, hours: float = 1.0) -> UseTotal:
    return UseTotal(
        key=day.isoformat(),
        jobs=2,
        core_seconds=3600 * hours,
        measured_core_seconds=1800 * hours,
        used_core_seconds=900 * hours,
        gpu_seconds=0.0,
        measured_gpu_seconds=0.0,
        used_gpu_seconds=0.0,
        jobs_with_findings=1,
    )


def test_bar_is_a_day_in_a_short_period() -> None:
    first = date(2026, 11, 14)
    view = make_usage_bars([make_total(first), make_total(date(2026, 11, 16), 4.0)], seconds_of(first), 3)

    assert "day" == view.unit
    assert ["2026-11-14", "2026-11-15", "2026-11-16"] == [bar.title for bar in view.bars]
    assert [(2, 25.0, 12.5, 6.2), (0, 0.0, 0.0, 0.0), (2, 100.0, 50.0, 25.0)] == [
        (bar.jobs, bar.allocated_height, bar.measured_height, bar.used_height) for bar in view.bars
    ]
    assert (4, 5 * 3600.0, 4 * 3600.0) == (view.total.jobs, view.total.core_seconds, view.highest_core_seconds)


@pytest.mark.parametrize("first", [date(2025, 11, 16) + timedelta(days=shift) for shift in range(7)])
def test_bar_is_a_week_from_monday_in_a_long_period(first: date) -> None:
    days = [first + timedelta(days=number) for number in range(366)]
    view = make_usage_bars([make_total(day) for day in days], seconds_of(first), 366)
    weeks: dict[tuple[int, int], int] = {}
    for day in days:
        weeks[day.isocalendar()[:2]] = weeks.get(day.isocalendar()[:2], 0) + 1

    assert "week" == view.unit
    assert [2 * count for count in weeks.values()] == [bar.jobs for bar in view.bars]
    assert [round(100 * count / 7, 1) for count in weeks.values()] == [bar.allocated_height for bar in view.bars]
    assert (2 * 366, 7 * 3600.0) == (view.total.jobs, view.highest_core_seconds)
    assert (first.isoformat(), days[-1].isoformat()) == (view.first_day, view.last_day)
    monday = next(day for day in days[1:] if day.weekday() == 0)
    assert f"{monday} to {monday + timedelta(days=6)}" in {bar.title for bar in view.bars}


def test_longest_period_of_days_is_a_quarter() -> None:
    first = date(2026, 1, 1)

    assert "day" == make_usage_bars([], seconds_of(first), MAX_DAY_BARS).unit
    assert "week" == make_usage_bars([], seconds_of(first), MAX_DAY_BARS + 1).unit


def test_bars_of_no_jobs_have_no_height() -> None:
    view = make_usage_bars([], seconds_of(date(2026, 1, 1)), 2)

    assert [(0, 0.0)] * 2 == [(bar.jobs, bar.allocated_height) for bar in view.bars]
    assert view.total.cpu_ratio is None
