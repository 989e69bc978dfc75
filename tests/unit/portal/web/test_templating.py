# SPDX-License-Identifier: Apache-2.0
"""Lengths and colours of pages follow from the numbers beside them."""

from __future__ import annotations

import pytest

from slurmscope.model.job_states import BASE_STATES
from slurmscope.portal.web.templating import _format_hours, _level, _memory_level, _percent_number, _state_class


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [(None, 0.0), (0.0, 0.0), (0.25, 25.0), (0.1234, 12.3), (1.0, 100.0), (1.5, 100.0), (-0.5, 0.0)],
)
def test_bar_is_as_long_as_its_ratio(ratio: float | None, expected: float) -> None:
    assert expected == _percent_number(ratio)


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (None, "unknown"), (0.0, "low"), (0.29, "low"), (0.3, "middle"), (0.69, "middle"), (0.7, "high"), (2.0, "high"),
    ],
)  # fmt: skip
def test_use_is_rated_from_30_and_70_percent_on(ratio: float | None, expected: str) -> None:
    assert expected == _level(ratio)


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (None, "unknown"), (0.09, "low"), (0.1, "middle"), (0.49, "middle"), (0.5, "high"), (0.94, "high"),
        (0.95, "low"), (1.0, "low"),
    ],
)  # fmt: skip
def test_memory_is_rated_low_again_near_its_limit(ratio: float | None, expected: str) -> None:
    assert expected == _memory_level(ratio)


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


@pytest.mark.parametrize(("seconds", "expected"), [(3600.0, "1"), (5400.0, "1.5"), (36.0, "0.01")])
def test_hours_have_two_decimals(seconds: float, expected: str) -> None:
    assert expected == _format_hours(seconds)
