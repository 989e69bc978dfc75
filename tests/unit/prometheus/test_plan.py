# SPDX-License-Identifier: Apache-2.0
"""Check that runs are grouped into few queries within all limits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.jobs.series import Aggregation, JobSpan
from slurmscope.prometheus.plan import MAX_JOBS, CurvesQuery, TotalsQuery, plan_curves, plan_totals

HOUR = 3600.0
DAY = 24 * HOUR


def plan(
    *spans: JobSpan, how: Aggregation = Aggregation.MAX, points: int = 300, max_points: int = 11_000
) -> list[CurvesQuery]:
    return list(plan_curves(spans, how, points=points, max_points=max_points, scrape_seconds=15.0))


def test_runs_of_similar_length_share_a_query() -> None:
    (query,) = plan(JobSpan(1, 7.0, HOUR), JobSpan(2, 1800.0, HOUR + 700), JobSpan(3, 5000.0, 5010.0))

    assert (1, 2, 3) == tuple(span.job_id for span in query.spans)
    assert (15.0, 15.0, 5010.0) == (query.step_seconds, query.first_seconds, query.last_seconds)


def test_short_run_keeps_its_fine_steps_beside_a_long_one() -> None:
    short, long = plan(JobSpan(1, 0.0, 7 * DAY), JobSpan(2, 6 * DAY, 6 * DAY + 60))

    assert ((2,), 15.0) == (tuple(span.job_id for span in short.spans), short.step_seconds)
    # A week in 300 points are steps of 34 minutes; 15 seconds doubled 8 times are 64.
    assert ((1,), 3840.0) == (tuple(span.job_id for span in long.spans), long.step_seconds)


def test_runs_far_apart_get_separate_queries() -> None:
    assert [1, 1] == [len(query.spans) for query in plan(JobSpan(1, 0.0, HOUR), JobSpan(2, DAY, DAY + HOUR))]


def test_jobs_of_one_query_are_limited() -> None:
    spans = [JobSpan(number, 0.0, HOUR) for number in range(MAX_JOBS + 1)]

    assert [MAX_JOBS, 1] == [len(query.spans) for query in plan(*spans)]


@pytest.mark.parametrize(
    ("how", "expected"), [(Aggregation.RATE, 60.0), (Aggregation.MAX, 30.0), (Aggregation.MEAN, 30.0)]
)
def test_window_holds_enough_scrapes(how: Aggregation, expected: float) -> None:
    fine, coarse = plan(JobSpan(1, 0.0, HOUR), JobSpan(2, 0.0, DAY), how=how)

    # A day in 299 points: 15 seconds doubled 5 times.
    assert (expected, 480.0) == (fine.window_seconds, coarse.window_seconds)


SPANS = st.builds(
    lambda number, start, length: JobSpan(number, start, start + length),
    st.integers(1, 10**9),
    st.floats(0, 2e9),
    st.floats(0.01, 3e7),
)


@given(st.lists(SPANS, max_size=20, unique_by=lambda span: span.job_id), st.integers(2, 1000), st.integers(10, 11_000))
def test_every_run_is_queried_once_within_all_limits(spans: list[JobSpan], points: int, max_points: int) -> None:
    queries = plan(*spans, points=points, max_points=max_points)

    assert sorted(spans) == sorted(span for query in queries for span in query.spans)
    for query in queries:
        step = query.step_seconds
        assert (query.last_seconds - query.first_seconds) / step + 1 <= max_points + 0.01
        for span in query.spans:
            inside = math.floor(span.end_seconds / step) - math.floor(span.start_seconds / step)
            assert inside + 1 <= points + 1
            assert query.first_seconds <= span.start_seconds + step
            assert span.end_seconds <= query.last_seconds


def test_query_is_split_by_jobs_first() -> None:
    (query,) = plan(*(JobSpan(number, number * 60.0, HOUR) for number in range(5)))
    early, late = query.split()

    assert ((0, 1), (2, 3, 4)) == tuple(tuple(span.job_id for span in half.spans) for half in (early, late))
    assert (0.0, 120.0) == (early.first_seconds, late.first_seconds)


def test_query_for_one_job_is_split_by_time_down_to_a_minimum() -> None:
    (query,) = plan(JobSpan(1, 0.0, HOUR))
    first, second = query.split()

    assert (0.0, 1800.0, 1815.0, 3600.0) == (
        first.first_seconds, first.last_seconds, second.first_seconds, second.last_seconds,
    )  # fmt: skip
    (small,) = plan(JobSpan(1, 0.0, 225.0))
    assert () == small.split()


@pytest.mark.parametrize(("how", "reach"), [(Aggregation.MAX, 30.0), (Aggregation.RATE, 60.0)])
def test_ends_of_a_long_run_are_separate_parts(how: Aggregation, reach: float) -> None:
    span = JobSpan(1, 100.0, DAY + 100.0)
    (query,) = plan(span, how=how)

    # The first step ends at 480, and its window begins at 0; the last one ends at 86880 and its window at 86400.
    assert (480.0, reach) == (query.step_seconds, query.reach_seconds)
    assert JobSpan(1, 100.0, 480.0) == query.first_part(span)
    assert JobSpan(1, DAY + 100.0 - 480.0, DAY + 100.0) == query.last_part(span)


def test_window_that_reaches_a_little_out_of_a_run_is_accepted() -> None:
    span = JobSpan(1, 480.0 + 20, DAY + 480.0 - 20)
    (query,) = plan(span)

    # Two scrapes are 30 seconds; the windows begin at 480 and end at 86880.
    assert (None, None) == (query.first_part(span), query.last_part(span))


@pytest.mark.parametrize("how", list(Aggregation))
@pytest.mark.parametrize("seconds", [10.0, 40.0, 300.0, HOUR])
def test_short_run_has_no_parts(how: Aggregation, seconds: float) -> None:
    span = JobSpan(1, 107.0, 107.0 + seconds)
    (query,) = plan(span, how=how)

    assert (None, None) == (query.first_part(span), query.last_part(span))


def test_reach_ends_where_the_run_before_may_still_be_shown() -> None:
    span = JobSpan(1, 100.0, 250.0)
    (query,) = plan_curves([span], Aggregation.MAX, points=300, max_points=11_000, scrape_seconds=60.0)

    # The window of the point at 120 begins at 0, that of the point at 180 at 60.
    assert (120.0, 60.0) == (query.window_seconds, query.reach_seconds)
    assert (JobSpan(1, 100.0, 120.0), None) == (query.first_part(span), query.last_part(span))


def test_part_that_is_the_whole_run_is_queried_once() -> None:
    span = JobSpan(1, 300.0, 430.0)
    (query,) = plan(span, points=2)

    # Its only point is the one at 480.
    assert 240.0 == query.step_seconds
    assert (span, None) == (query.first_part(span), query.last_part(span))


def test_time_after_a_run_ends_before_the_next_run() -> None:
    (query,) = plan_totals([JobSpan(1, 0.0, 100.0)], Aggregation.MAX, jobs=10, scrape_seconds=300.0)

    assert (JobSpan(1, 0.0, 220.0),) == query.spans


def test_maximum_includes_the_scrapes_after_the_run() -> None:
    (highest,) = plan_totals([JobSpan(1, 0.0, 100.0)], Aggregation.MAX, jobs=10, scrape_seconds=15.0)
    (mean,) = plan_totals([JobSpan(1, 0.0, 100.0)], Aggregation.MEAN, jobs=10, scrape_seconds=15.0)

    assert ((JobSpan(1, 0.0, 130.0),), (JobSpan(1, 0.0, 100.0),)) == (highest.spans, mean.spans)


def test_totals_query_has_a_limited_number_of_runs() -> None:
    spans = [JobSpan(number, 0.0, 60.0) for number in range(5)]

    assert [2, 2, 1] == [
        len(query.spans) for query in plan_totals(spans, Aggregation.RATE, jobs=2, scrape_seconds=15.0)
    ]


def test_totals_are_split_by_jobs_then_by_time_down_to_a_minimum() -> None:
    query = TotalsQuery(spans=(JobSpan(1, 0.0, 400.0), JobSpan(2, 0.0, 800.0)), least_seconds=240.0)
    short, long = query.split()

    assert () == short.split()
    assert [(JobSpan(2, 0.0, 400.0),), (JobSpan(2, 400.0, 800.0),)] == [half.spans for half in long.split()]
