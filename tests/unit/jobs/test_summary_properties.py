# SPDX-License-Identifier: Apache-2.0
"""Whatever a source of series answers, a summary holds finite numbers, and charts stay within their bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurmscope.core.tres import Gres
from slurmscope.jobs.charts import make_charts
from slurmscope.jobs.findings import judge
from slurmscope.jobs.queries import CURVES, TOTALS
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import MAX_CHART_POINTS
from slurmscope.jobs.series import Measured, Series, SeriesQuery
from slurmscope.jobs.summarize import summarize
from tests.fakes.reports import START, make_record

NOW = START + 7200.0
NUMBER = st.floats() | st.floats(min_value=0, max_value=1e9) | st.just(0.0)
LABEL = st.sampled_from(["n1", "n2", "", "n1.example", "other"])
POINTS = st.lists(st.tuples(st.integers(-100, 8000), NUMBER), max_size=6)


def labels_of(wanted: SeriesQuery) -> st.SearchStrategy[tuple[str, ...]]:
    return st.tuples(*[LABEL] * len(wanted.by))


def make_series(labels: tuple[str, ...], points: list[tuple[int, float]]) -> Series:
    return Series(labels, tuple(float(START + offset) for offset, _ in points), tuple(value for _, value in points))


def curves_of(name: str) -> st.SearchStrategy[tuple[str, tuple[Series, ...]]]:
    series = st.builds(make_series, labels_of(CURVES[name]), POINTS)
    return st.tuples(st.just(name), st.lists(series, max_size=3).map(tuple))


def totals_of(name: str) -> st.SearchStrategy[tuple[str, Mapping[tuple[str, ...], float]]]:
    return st.tuples(st.just(name), st.dictionaries(labels_of(TOTALS[name]), NUMBER, max_size=4))


MEASURED = st.builds(
    Measured,
    curves=st.lists(st.sampled_from(sorted(CURVES)).flatmap(curves_of), max_size=5).map(dict),
    totals=st.lists(st.sampled_from(sorted(TOTALS)).flatmap(totals_of), max_size=6).map(dict),
)
RECORD = st.builds(
    make_record,
    state=st.sampled_from(["COMPLETED", "RUNNING", "PENDING", "OUT_OF_MEMORY"]),
    nodes=st.sampled_from([(), ("n1",), ("n1", "n2")]),
    node_count=st.integers(0, 3),
    cpus=st.integers(0, 9),
    gres=st.sampled_from([(), (Gres(name="gpu", count=4),)]),
    cpu_seconds=st.none() | st.floats(min_value=0, max_value=1e9),
    end_seconds=st.none() | st.just(START) | st.just(START + 7200),
)


def numbers_in(value: object) -> list[float]:
    if isinstance(value, float):
        return [value]
    if is_dataclass(value) and not isinstance(value, JobRecord):
        return [number for part in fields(value) for number in numbers_in(getattr(value, part.name))]
    if isinstance(value, dict):
        return [number for part in value.values() for number in numbers_in(part)]
    return [number for part in value for number in numbers_in(part)] if isinstance(value, tuple) else []


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(RECORD, MEASURED)
def test_whatever_was_measured_gives_finite_numbers_and_bounded_charts(record: JobRecord, measured: Measured) -> None:
    summary = summarize(record, measured, now_seconds=NOW)
    charts = make_charts(summary, measured)

    ratios = [summary.cpu.time.ratio or 0.0, summary.memory.ratio or 0.0, summary.time.ratio or 0.0]
    assert all(math.isfinite(number) and number >= 0 for number in [*numbers_in(summary), *numbers_in(charts), *ratios])
    assert 0.0 <= summary.coverage.run_ratio <= 1.0
    for chart in charts:
        assert len(chart.times) <= MAX_CHART_POINTS
        assert all(len(chart.times) == len(line.values) for line in chart.lines)
    judge(summary)
