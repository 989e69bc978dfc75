# SPDX-License-Identifier: Apache-2.0
"""Check that a declaration which could never be served is refused where it is made."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slurmscope.metrics.family import Metric, MetricKind, compat_counter, compat_gauge, counter, gauge, histogram, info


@pytest.mark.parametrize("name", ["", "1x", "a-b", "a:b", "é", "x\n", "x y"])
def test_bad_metric_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="metric name"):
        gauge(name, "Help.")


@pytest.mark.parametrize("label", ["", "1x", "a-b", "a:b", "__name__", "x\n"])
def test_bad_label_name_is_refused(label: str) -> None:
    with pytest.raises(ValueError, match="label name"):
        gauge("x", "Help.", label)


@pytest.mark.parametrize("label", ["job", "instance", "le", "quantile"])
def test_label_of_prometheus_is_left_to_compat_names(label: str) -> None:
    with pytest.raises(ValueError, match="is reserved by Prometheus"):
        gauge("x", "Help.", label)
    assert (label,) == compat_gauge("x", "Help.", label).labels


@pytest.mark.parametrize(
    "declare",
    [
        lambda: gauge("x", "Help.", "a", "a"),
        lambda: gauge("x", ""),
        lambda: counter("x", "Help."),
        lambda: info("x", "Help."),
        lambda: histogram("x", "Help.", buckets=()),
        lambda: histogram("x", "Help.", buckets=(2, 1)),
        lambda: histogram("x", "Help.", buckets=(1, 1)),
        lambda: histogram("x", "Help.", buckets=(1, float("inf"))),
        lambda: histogram("x", "Help.", buckets=(float("nan"),)),
        lambda: histogram("x", "Help.", buckets=(-1, 1)),
        lambda: Metric(name="x", kind=MetricKind.GAUGE, help="Help.", buckets=(1,)),
        lambda: Metric(name="x", kind=MetricKind.HISTOGRAM, help="Help.", labels=("le",), buckets=(1,), is_compat=True),
    ],
)
def test_contradiction_is_refused(declare: Callable[[], Metric]) -> None:
    with pytest.raises(ValueError, match=r"^x: "):
        declare()


@pytest.mark.parametrize(
    ("metric", "unit"),
    [
        (gauge("memory_bytes", "Help."), "bytes"),
        (counter("cpu_seconds_total", "Help."), "seconds"),
        (compat_counter("cpu_seconds", "Help."), "seconds"),
        (gauge("bytes", "Help."), ""),
        (gauge("jobs", "Help."), ""),
    ],
)
def test_unit_is_what_the_name_ends_in(metric: Metric, unit: str) -> None:
    assert unit == metric.unit
