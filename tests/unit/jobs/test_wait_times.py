# SPDX-License-Identifier: Apache-2.0
"""Waiting times are summed up by shape, and their quantiles are near those of the jobs themselves."""

from __future__ import annotations

import random
import statistics
from collections import Counter

import pytest

from slurmscope.jobs.wait_times import (
    MAX_WAIT_CLASS,
    find_cores_class,
    find_limit_class,
    find_quantile,
    find_wait_class,
    label_cores,
    label_limit,
    make_waiting_time,
)

HOUR = 3600


@pytest.mark.parametrize(
    ("cpus", "label"),
    [(0, "1"), (1, "1"), (2, "2-4"), (4, "2-4"), (5, "5-16"), (64, "17-64"), (256, "65-256"), (257, "257+")],
)
def test_class_of_cores_is_labelled_by_its_bounds(cpus: int, label: str) -> None:
    assert label == label_cores(find_cores_class(cpus))


@pytest.mark.parametrize(
    ("limit", "label"),
    [
        (60, "up to 1 h"),
        (HOUR, "up to 1 h"),
        (HOUR + 1, "up to 4 h"),
        (24 * HOUR, "up to 24 h"),
        (3 * 24 * HOUR, "up to 3 d"),
        (8 * 24 * HOUR, "more than 7 d"),
        (None, "more than 7 d"),
    ],
)
def test_class_of_time_limits_is_labelled_by_its_bound(limit: int | None, label: str) -> None:
    assert label == label_limit(find_limit_class(limit))


def test_quantiles_are_within_a_fifth_of_those_of_the_jobs() -> None:
    numbers = random.Random(7)
    waits = [numbers.lognormvariate(6, 2) for _ in range(5000)]

    summed = make_waiting_time("batch", 2, 3, Counter(map(find_wait_class, waits)))

    deciles = statistics.quantiles(waits, n=10)
    assert ("batch", 2, 3, 5000) == (summed.partition, summed.cores_class, summed.limit_class, summed.jobs)
    assert pytest.approx(deciles[4], rel=0.2) == summed.median_seconds
    assert pytest.approx(deciles[8], rel=0.2) == summed.p90_seconds


def test_jobs_that_started_at_once_waited_for_less_than_a_second() -> None:
    assert 0.5 == find_quantile({find_wait_class(0.0): 10}, 0.5)


def test_class_without_jobs_counts_for_nothing() -> None:
    assert (0.0, 0.5) == (find_quantile({}, 0.5), find_quantile({0: 10, 5: 0}, 0.5))
    # The shortest wait of all is that of the first class with jobs.
    assert 1.0 == find_quantile({0: 0, 1: 10}, 0.0)


def test_wait_of_centuries_is_in_the_last_class() -> None:
    assert MAX_WAIT_CLASS == find_wait_class(1e30)


@pytest.mark.parametrize(("seconds", "expected"), [(0.9, 0), (1.0, 1), (1.5, 2), (2.0, 3), (1e12, MAX_WAIT_CLASS)])
def test_two_classes_double_the_waiting_time(seconds: float, expected: int) -> None:
    assert expected == find_wait_class(seconds)


def test_class_of_one_job_counts() -> None:
    # Half of one job that waited from 1 to 1.41 s.
    assert pytest.approx((1 + 2**0.5) / 2) == find_quantile({1: 1}, 0.5)


def test_median_of_two_classes_is_the_end_of_the_first() -> None:
    assert pytest.approx(2**0.5) == find_quantile({1: 1, 3: 1}, 0.5)
