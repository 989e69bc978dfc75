# SPDX-License-Identifier: Apache-2.0
"""Only plausible points within the run are used; a run lasts as long as Slurm counts."""

from __future__ import annotations

import math

import pytest

from slurmscope.jobs.measured_run import PLAUSIBLE, MeasuredRun, prepare_run
from slurmscope.jobs.series import Measured, Series
from tests.fakes.reports import START, make_record

END = START + 7200


def prepared(*points: tuple[float, float], **record: object) -> MeasuredRun:
    """Prepare a run with these points of its CPU curve."""
    series = Series(("n1",), tuple(time for time, _ in points), tuple(value for _, value in points))
    measured = Measured(curves={"cpu": (series,)}, totals={"cpu": {("n1",): 5.0}})
    return prepare_run(make_record(4711, **record), measured, now_seconds=END)


@pytest.mark.parametrize(
    ("time", "is_kept"),
    # Accounting rounds to seconds: one more at either end belongs to the run.
    [(START - 1.5, False), (START - 1, True), (START, True), (END, True), (END + 1, True), (END + 1.5, False)],
)
def test_points_within_a_second_of_the_run_are_kept(time: float, is_kept: bool) -> None:
    middle = (START + 100.0, 2.0)
    (curve,) = prepared(*sorted([middle, (time, 3.0)])).curves["cpu"]

    assert is_kept == (time in curve.times)
    assert START + 100.0 in curve.times


@pytest.mark.parametrize(
    ("value", "is_kept"),
    [
        (0.0, True), (0.5, True), (PLAUSIBLE, True), (PLAUSIBLE * 1.01, False), (-0.5, False), (math.nan, False),
        (math.inf, False),
    ],
)  # fmt: skip
def test_implausible_values_are_dropped_one_by_one(value: float, is_kept: bool) -> None:
    # The second point makes each be checked by itself.
    (curve,) = prepared((START + 10, value), (START + 20, -1.0), (START + 30, 0.25)).curves["cpu"]

    assert ((value, 0.25) if is_kept else (0.25,)) == curve.values


def test_points_out_of_order_are_sorted() -> None:
    (curve,) = prepared((START + 20, 2.0), (START + 10, 1.0)).curves["cpu"]

    assert ((START + 10, START + 20), (1.0, 2.0)) == (curve.times, curve.values)


@pytest.mark.parametrize(
    ("suspended", "expected"),
    # A time that is longer than the run cannot be right.
    [(0, 7200.0), (1200, 6000.0), (7200, 0.0), (7201, 7200.0), (-1, 7200.0)],
)
def test_suspended_time_does_not_count(suspended: int, expected: float) -> None:
    run = prepared((START + 10, 1.0), suspended_seconds=suspended)

    assert (7200.0, expected) == (run.span_seconds, run.seconds)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, (START, END)),
        ({"end_seconds": None, "state": "RUNNING"}, (START, END)),
        ({"end_seconds": START - 5}, (START, START)),
        ({"start_seconds": None}, (0, 0)),
        # The start of a pending job is only the scheduler's estimate; a requeued run did start.
        ({"state": "PENDING"}, (0, 0)),
        ({"state": "REQUEUED"}, (START, END)),
    ],
)
def test_run_goes_from_its_start_to_its_end_or_now(changed: dict[str, object], expected: tuple[int, int]) -> None:
    run = prepared((START + 10, 1.0), **changed)

    assert expected == (run.start_seconds, run.end_seconds)


@pytest.mark.parametrize(("count", "expected"), [(1, 5.0), (2, None)])
def test_total_is_known_only_if_every_node_reported(count: int, expected: float | None) -> None:
    run = prepared((START + 10, 1.0), node_count=count)

    assert expected == run.whole("cpu")
    assert run.whole("memory_peak") is None


def test_values_without_a_time_are_dropped() -> None:
    series = Series(("n1",), (START + 10.0,), (1.0, 2.0))
    run = prepare_run(make_record(), Measured(curves={"cpu": (series,)}), now_seconds=END)

    assert (Series(("n1",), (START + 10.0,), (1.0,)),) == run.curves["cpu"]


def test_series_are_labelled_with_the_node_name_of_slurm() -> None:
    series = Series(("n1",), (START + 10.0,), (1.0,))
    measured = Measured(curves={"cpu": (series,)}, totals={"cpu": {("n1",): 5.0}})
    run = prepare_run(make_record(nodes=("n1.example.org",)), measured, now_seconds=END)

    assert (Series(("n1.example.org",), (START + 10.0,), (1.0,)),) == run.curves["cpu"]
    assert {"n1.example.org": 5.0} == run.by_node("cpu")
