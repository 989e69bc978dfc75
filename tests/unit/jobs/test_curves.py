# SPDX-License-Identifier: Apache-2.0
"""Curves of several nodes meet on one time axis."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slurmscope.jobs.curves import Aligned, add, align, step_seconds, sum_over
from slurmscope.jobs.series import Series


def series(name: str, *points: tuple[float, float]) -> Series:
    return Series((name,), tuple(time for time, _ in points), tuple(value for _, value in points))


def test_curves_with_the_same_times_stay_as_they_are() -> None:
    a, b = series("a", (0.0, 1.0), (10.0, 2.0)), series("b", (0.0, 3.0), (10.0, 4.0))

    assert Aligned((0.0, 10.0), {("a",): (1.0, 2.0), ("b",): (3.0, 4.0)}) == align([a, b])


def test_nothing_measured_is_an_empty_axis() -> None:
    assert Aligned((), {}) == align([])


def test_hole_in_a_curve_is_a_gap() -> None:
    curve = series("a", (0.0, 1.0), (10.0, 2.0), (20.0, 3.0), (50.0, 4.0))

    assert Aligned((0.0, 10.0, 20.0, 30.0, 40.0, 50.0), {("a",): (1.0, 2.0, 3.0, None, None, 4.0)}) == align([curve])


def test_times_that_differ_a_little_fall_together() -> None:
    a = series("a", (0.0, 1.0), (10.0, 2.0), (20.0, 3.0))
    b = series("b", (1.5, 4.0), (11.0, 5.0), (22.0, 6.0))

    assert {("a",): (1.0, 2.0, 3.0), ("b",): (4.0, 5.0, 6.0)} == align([a, b]).rows


def test_long_curve_is_thinned_by_whole_steps() -> None:
    curve = series("a", *((float(second), float(second)) for second in range(7)))

    # Steps of two seconds; a point lies in the step that it is nearest to.
    assert Aligned((0.0, 2.0, 4.0, 6.0), {("a",): (0.0, 1.5, 3.5, 5.5)}) == align([curve], points=4)
    assert (0.0, 2.0, 4.0, 6.0) == align([curve], points=4, combine=max).rows["a",]


def test_lone_points_have_no_step() -> None:
    assert step_seconds([series("a", (5.0, 1.0))]) is None
    assert Aligned((5.0, 6.0), {("a",): (1.0, None), ("b",): (None, 2.0)}) == align(
        [series("a", (5.0, 1.0)), series("b", (6.0, 2.0))]
    )


def test_sum_has_a_gap_where_a_part_has_one() -> None:
    assert (3.0, None) == sum_over(Aligned((0.0, 1.0), {("a",): (1.0, 1.0), ("b",): (2.0, None)}))
    assert () == sum_over(Aligned((), {}))


def test_two_curves_are_added() -> None:
    assert (3.0, 5.0) == add((1.0, 2.0), (2.0, 3.0))
    assert (3.0, None, None) == add((1.0, 2.0, None), (2.0, None, None))


@given(st.lists(st.floats(min_value=0, max_value=1e6), min_size=1, unique=True), st.integers(min_value=2, max_value=50))
def test_axis_is_never_longer_than_its_limit_and_no_peak_is_lost(times: list[float], points: int) -> None:
    curve = series("a", *((time, float(index)) for index, time in enumerate(sorted(times))))
    aligned = align([curve], combine=max, points=points)

    assert len(aligned.times) <= points
    assert len(times) - 1 == max(value for value in aligned.rows["a",] if value is not None)


def test_three_points_can_have_a_hole() -> None:
    # Steps of 10 and 90 s: the median is 50 s, so the first two points fall together.
    aligned = align([series("a", (0, 1), (10, 2), (100, 3))])

    assert (0.0, 50.0, 100.0) == aligned.times
    assert {("a",): (1.5, None, 3.0)} == aligned.rows


def test_two_points_are_an_even_axis() -> None:
    assert (0.0, 1000.0) == align([series("a", (0, 1), (1000, 2))]).times


def test_step_is_the_median_time_between_points() -> None:
    assert 30.0 == step_seconds([series("a", (10, 1), (40, 2))])
    assert 50.0 == step_seconds([series("a", (0, 1), (10, 2), (100, 3))])
    assert 10.0 == step_seconds([series("a", (0, 1), (10, 2), (20, 3), (100, 4))])


def test_axis_of_two_points_has_the_ends() -> None:
    curve = series("a", *((float(time), 1.0) for time in range(0, 101, 10)))

    assert (0.0, 100.0) == align([curve], points=2).times


def test_hole_is_a_gap_at_unix_times_too() -> None:
    points = [(1.79e9 + offset, 1.0) for offset in (0.0, 30.0, 60.0, 150.0, 180.0)]

    assert {("a",): (1.0, 1.0, 1.0, None, None, 1.0, 1.0)} == align([series("a", *points)]).rows
