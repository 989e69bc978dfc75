# SPDX-License-Identifier: Apache-2.0
"""Peaks, silent ends and growth are read off curves; expected numbers are worked out by hand."""

from __future__ import annotations

import pytest

from slurmscope.jobs.curves import AlignedValues, growth_rate, growth_ratio, idle_start_seconds, idle_tail_seconds, peak

TIMES = tuple(float(time) for time in range(10, 101, 10))


def test_peak_of_gaps_is_not_known() -> None:
    assert peak((None, None)) is None
    assert 2.0 == peak((1.0, None, 2.0))


@pytest.mark.parametrize(
    ("values", "cpus", "expected"),
    [
        ((4.0,) * 10, 4, 0.0),
        ((4.0,) * 6 + (0.0,) * 4, 4, 40.0),
        # Two steps are no tail: a pause between two phases looks the same.
        ((4.0,) * 8 + (0.0,) * 2, 4, 0.0),
        ((4.0,) * 7 + (0.0,) * 3, 4, 30.0),
        # One busy core after a parallel phase is work on 64 cores, and none to speak of on 1,000.
        ((64.0,) * 5 + (1.0,) * 5, 64, 0.0),
        ((1000.0,) * 5 + (1.0,) * 5, 1000, 50.0),
        # A twentieth of a core is the least.
        ((0.05,) * 10, 1, 0.0),
        ((0.049,) * 10, 1, None),
        ((None,) * 10, 1, None),
        ((4.0,) + (None,) * 9, 4, None),
        # The end was not measured.
        ((4.0,) * 7 + (None,) * 3, 4, None),
        ((4.0,) * 3 + (0.0,) * 5 + (None,) * 2, 4, 70.0),
    ],
)
def test_silent_end_is_measured_from_the_last_work(values: AlignedValues, cpus: int, expected: float | None) -> None:
    assert expected == idle_tail_seconds(TIMES, values, end_seconds=100.0, cpus=cpus)


@pytest.mark.parametrize(
    ("values", "start", "expected"),
    [
        ((4.0,) * 10, 0.0, 0.0),
        # The fifth point covers the step before it, which begins 40 s after the start.
        ((0.0,) * 4 + (4.0,) * 6, 0.0, 40.0),
        ((0.0,) * 2 + (4.0,) * 8, 0.0, 0.0),
        ((0.0,) * 3 + (4.0,) * 7, 0.0, 30.0),
        ((0.0,) * 10, 0.0, None),
        ((4.0,) + (None,) * 9, 0.0, None),
        ((None,) * 4 + (4.0,) * 6, 0.0, 0.0),
        # The start was not measured.
        ((None,) * 5 + (4.0,) * 5, 0.0, None),
        ((0.0,) * 5 + (4.0,) * 5, -40.0, 90.0),
        ((0.0,) * 5 + (4.0,) * 5, -40.1, None),
    ],
)
def test_idle_start_is_measured_until_the_first_work(
    values: AlignedValues, start: float, expected: float | None
) -> None:
    assert expected == idle_start_seconds(TIMES, values, start_seconds=start, cpus=4)


def test_no_curve_has_no_end() -> None:
    assert idle_start_seconds((), (), start_seconds=0.0, cpus=1) is None
    assert idle_tail_seconds((), (), end_seconds=100.0, cpus=1) is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # The middle is 40 to 60: mean of 4, 5 and 6; the end is 90 and 100.
        (tuple(float(step) for step in range(1, 11)), 9.5 / 5),
        ((3.0,) * 10, 1.0),
        ((0.0,) * 10, None),
        ((1.0,) * 8 + (None, None), None),
        ((1.0, 1.0, 1.0, None, None, None, 1.0, 1.0, 1.0, 1.0), None),
    ],
)
def test_growth_compares_the_end_with_the_middle(values: AlignedValues, expected: float | None) -> None:
    assert expected == growth_ratio(TIMES, values, start_seconds=0.0, end_seconds=100.0)


def test_two_points_are_enough_for_an_end() -> None:
    assert 0.0 == idle_tail_seconds((0.0, 100.0), (4.0, 0.0), end_seconds=100.0, cpus=4)
    assert idle_tail_seconds((0.0, 100.0), (4.0, None), end_seconds=100.0, cpus=4) is None


@pytest.mark.parametrize(("points", "expected"), [(9, None), (10, 1.0)])
def test_growth_is_known_from_ten_points_on(points: int, expected: float | None) -> None:
    rate = growth_rate([(float(time), float(time)) for time in range(points)])

    assert pytest.approx(expected) == rate


@pytest.mark.parametrize(("level", "expected"), [(38.0, 1.0), (38.5, None)])
def test_curve_grows_from_a_tenth_of_its_level_on(level: float, expected: float | None) -> None:
    # The second half rises by 4 from 5 to 9 seconds, with a mean of 2 above the level at its start.
    rate = growth_rate([(float(time), level - 5 + time) for time in range(10)])

    assert pytest.approx(expected) == rate


def test_points_of_one_moment_do_not_grow() -> None:
    assert growth_rate([(5.0, float(value)) for value in range(10)]) is None
