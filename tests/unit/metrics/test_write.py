# SPDX-License-Identifier: Apache-2.0
"""Families split into the samples that a scrape finds."""

from __future__ import annotations

from slurmscope.metrics.family import Family, Histogram, gauge, histogram
from slurmscope.metrics.write import flat_samples


def test_plain_family_is_one_group() -> None:
    metric = gauge("jobs", "Jobs.", "user")

    assert [("jobs", ("user",), [(("ada",), 2.0)])] == [
        (name, labels, list(samples)) for name, labels, samples in flat_samples(Family(metric, {("ada",): 2.0}))
    ]
    assert [(("ada",), 2.0)] == list(next(flat_samples(Family(metric, iter([(("ada",), 2.0)]))))[2])


def test_histogram_has_cumulative_buckets_a_count_and_a_sum() -> None:
    metric = histogram("wait_seconds", "Wait.", "user", buckets=(1, 2.5, 1e6))
    family = Family(metric, {("ada",): Histogram((1, 2, 0, 4), 99.5)})
    groups = {name: (labels, dict(samples)) for name, labels, samples in flat_samples(family)}

    assert groups == {
        "wait_seconds_bucket": (
            ("user", "le"),
            {("ada", "1.0"): 1, ("ada", "2.5"): 3, ("ada", "1e+06"): 3, ("ada", "+Inf"): 7},
        ),
        "wait_seconds_count": (("user",), {("ada",): 7}),
        "wait_seconds_sum": (("user",), {("ada",): 99.5}),
    }
