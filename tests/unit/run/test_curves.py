# SPDX-License-Identifier: Apache-2.0
"""Samples of uneven times become even curves that keep totals and peaks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.run.report import MOST_SAMPLES, SampleHistory, make_axis, rate_curve, size_curve
from tests.fakes.traced_runs import START, make_sample


def test_history_is_bounded_and_keeps_first_last_and_peaks() -> None:
    history = SampleHistory()
    for number in range(5 * MOST_SAMPLES):
        history.add(make_sample(float(number), float(number), resident=10**9 if number == 777 else 1))

    kept = history.samples()

    assert len(kept) <= MOST_SAMPLES
    assert (START, START + 5 * MOST_SAMPLES - 1) == (kept[0].time_seconds, kept[-1].time_seconds)
    assert 10**9 == max(sample.resident_bytes for sample in kept)
    assert sorted(kept) == list(kept)
    assert kept[-1].cpu_seconds == 5 * MOST_SAMPLES - 1


def test_history_of_a_short_run_is_complete() -> None:
    history = SampleHistory()
    for number in range(MOST_SAMPLES):
        history.add(make_sample(float(number), 0.0))

    assert MOST_SAMPLES == len(history.samples())


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_samples_make_no_curve(count: int) -> None:
    samples = [make_sample(0.0, 0.0)] * count

    axis = make_axis(samples)

    assert () == axis
    assert rate_curve(samples, axis, lambda sample: sample.cpu_seconds, "n1") is None
    assert size_curve(samples, axis, lambda sample: sample.resident_bytes, "n1") is None


def test_samples_of_one_moment_make_no_curve() -> None:
    assert () == make_axis([make_sample(0.0, 0.0), make_sample(0.0, 1.0)])


def test_rate_of_dense_and_sparse_samples_is_even() -> None:
    times = [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4]
    samples = [make_sample(time, 2 * time) for time in times]

    curve = rate_curve(samples, make_axis(samples), lambda sample: sample.cpu_seconds, "n1")

    assert curve is not None
    assert ("n1",) == curve.labels
    assert [pytest.approx(2.0)] * 7 == list(curve.values)
    assert pytest.approx(START + 6.4) == curve.times[-1]


def test_rate_of_two_samples_at_one_moment_takes_the_later() -> None:
    samples = [make_sample(0.0, 0.0), make_sample(1.0, 1.0), make_sample(1.0, 3.0), make_sample(2.0, 3.0)]

    curve = rate_curve(samples, (START + 1.0, START + 2.0), lambda sample: sample.cpu_seconds, "n1")

    assert curve is not None
    assert pytest.approx(3.0) == sum(curve.values)


def test_counter_that_was_not_always_measured_has_no_curve() -> None:
    samples = [make_sample(0.0, 0.0), make_sample(1.0, 1.0, read_chars=None)]

    assert rate_curve(samples, make_axis(samples), lambda sample: sample.read_chars, "n1") is None


def test_size_is_the_highest_of_its_interval_or_the_last_known() -> None:
    sizes = {0.0: 5, 1.0: 7, 2.0: 3, 10.0: 1}
    samples = [make_sample(time, 0.0, resident=size) for time, size in sizes.items()]

    curve = size_curve(samples, [START + 2, START + 4, START + 10], lambda sample: sample.resident_bytes, "n1")

    assert curve is not None
    assert (7, 3, 1) == curve.values


@given(st.lists(st.tuples(st.floats(0.01, 100), st.floats(0, 50)), min_size=1, max_size=60), st.integers(1, 30))
def test_area_under_a_rate_is_the_total(steps: list[tuple[float, float]], points: int) -> None:
    samples, elapsed, cpu = [make_sample(0.0, 0.0)], 0.0, 0.0
    for pause, growth in steps:
        elapsed, cpu = elapsed + pause, cpu + growth
        samples.append(make_sample(elapsed, cpu))
    axis = make_axis(samples, points)

    curve = rate_curve(samples, axis, lambda sample: sample.cpu_seconds, "n1")

    assert curve is not None
    assert len(curve.values) <= points
    width = axis[0] - START
    # Unix times have about a quarter of a microsecond.
    assert math.isclose(cpu, sum(curve.values) * width, rel_tol=1e-2, abs_tol=1e-2)
