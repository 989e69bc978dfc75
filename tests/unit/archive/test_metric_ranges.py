# SPDX-License-Identifier: Apache-2.0
"""Every number is in exactly one class of its histogram."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.archive.job_columns import JobRow
from slurmscope.archive.metric_ranges import JobHistogram, JobMetric, MetricRange


@given(st.sampled_from(list(JobMetric)), st.floats(0, 1e12))
def test_number_is_in_one_class(metric: JobMetric, number: float) -> None:
    histogram = JobHistogram(metric=metric, counts=(), unknown=0, is_cut=False, since_seconds=None)

    assert 1 == sum(each.contains(number) for each in histogram.ranges)


@pytest.mark.parametrize(("number", "expected"), [(0.9, False), (1.0, True), (1.9, True), (2.0, False), (None, False)])
def test_lower_bound_belongs_to_the_range(number: float | None, expected: bool) -> None:
    assert expected is MetricRange(JobMetric.CPU, 1.0, 2.0).contains(number)


def test_every_metric_is_a_number_of_a_row_with_a_label_and_a_key() -> None:
    names = {field.name for field in fields(JobRow)}

    assert {metric.value for metric in JobMetric} <= names
    assert len(JobMetric) == len({metric.label for metric in JobMetric}) == len({metric.key for metric in JobMetric})
