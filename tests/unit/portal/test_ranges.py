# SPDX-License-Identifier: Apache-2.0
"""Ranges of metrics are written as people write them, and read again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.archive.metric_ranges import JobHistogram, JobMetric, MetricRange
from slurmscope.portal.queries import (
    BadQuery,
    label_range,
    make_range_fields,
    parse_filter,
    parse_ranges,
    render_query,
    render_ranges,
)


def test_shares_are_percent_times_are_durations_and_core_time_is_in_hours() -> None:
    given_texts = {"cpu_min": "5", "cpu_max": " 20 % ", "wait_min": "1h", "core_time_max": "100", "cores_min": "16"}

    assert (
        MetricRange(JobMetric.CPU, 0.05, 0.2),
        MetricRange(JobMetric.WAIT, 3600.0, None),
        MetricRange(JobMetric.CORES, 16.0, None),
        MetricRange(JobMetric.CORE_TIME, None, 360_000.0),
    ) == parse_ranges(given_texts)


@pytest.mark.parametrize("metric", list(JobMetric))
def test_every_class_of_a_histogram_is_a_link_that_selects_it(metric: JobMetric) -> None:
    for each in JobHistogram(metric=metric, counts=(), unknown=0, is_cut=False, since_seconds=None).ranges:
        (read,) = parse_ranges(render_ranges([each]))
        assert metric is read.metric
        assert (each.low, each.high) == pytest.approx((read.low, read.high))
        assert label_range(each)


@pytest.mark.parametrize(
    "texts",
    [{"cpu_min": "many"}, {"cpu_max": "-1"}, {"wait_min": "1 fortnight"}, {"run_max": "nan"}, {"cores_min": "1e999"},
     {"gpus_min": "inf"}],
)  # fmt: skip
def test_other_texts_are_rejected(texts: dict[str, str]) -> None:
    with pytest.raises(BadQuery, match="must be a number"):
        parse_filter(texts)


@given(
    st.dictionaries(
        st.sampled_from([f"{metric.key}_{end}" for metric in JobMetric for end in ("min", "max")]), st.text()
    )
)
def test_any_text_is_read_or_rejected(texts: dict[str, str]) -> None:
    try:
        wanted = parse_filter(texts)
    except BadQuery:
        return
    render_query(wanted)


def test_form_shows_what_was_asked() -> None:
    fields = {field.key: field for field in make_range_fields(parse_ranges({"cpu_max": "20", "run_min": "90s"}))}

    assert ("", "20") == (fields["cpu"].low, fields["cpu"].high)
    assert ("1m30s", "") == (fields["run"].low, fields["run"].high)
    assert len(JobMetric) == len(fields)
