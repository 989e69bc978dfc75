# SPDX-License-Identifier: Apache-2.0
"""Lengths and colours of pages follow from the numbers beside them."""

from __future__ import annotations

import pytest

from slurmscope.core.tres import Gres
from slurmscope.portal.web.templates import _percent_number, _rate, _spark_path, _state_class
from slurmscope.slurm.states import BASE_STATES
from tests.fakes.archive import make_row
from tests.fakes.reports import make_record, make_report


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [(None, 0.0), (0.0, 0.0), (0.25, 25.0), (0.1234, 12.3), (1.0, 100.0), (1.5, 100.0), (-0.5, 0.0)],
)
def test_bar_is_as_long_as_its_ratio(ratio: float | None, expected: float) -> None:
    assert expected == _percent_number(ratio)


@pytest.mark.parametrize(
    ("spark", "path"),
    [
        ("", ""),
        ("9", "M0.0 1.0"),
        ("05 9", "M0.0 17.0L33.3 8.1M100.0 1.0"),
        ("  ٣00", "M75.0 17.0L100.0 17.0"),
    ],
)
def test_sparkline_is_interrupted_where_nothing_was_measured(spark: str, path: str) -> None:
    assert path == _spark_path(spark)


def test_share_is_rated_for_its_job() -> None:
    report = make_report(make_record(gres=(Gres(name="gpu", count=1),)))
    row = make_row(report)

    # The cores of a job with GPUs are not rated; those of many jobs are.
    assert ["unrated", "unrated", "critical"] == [
        _rate(0.1, "cpu", report.summary), _rate(0.1, "cpu", row), _rate(0.1, "cpu"),
    ]  # fmt: skip


def test_every_state_has_a_class() -> None:
    usual = {
        "RUNNING": "running",
        "PENDING": "pending",
        "SUSPENDED": "pending",
        "COMPLETED": "completed",
        "CANCELLED": "cancelled",
    }

    assert {state: usual.get(state, "failed") for state in BASE_STATES} == {
        state: _state_class(state) for state in BASE_STATES
    }
    assert "pending" == _state_class("REQUEUED")
