# SPDX-License-Identifier: Apache-2.0
"""Computed lines are ones that Slurm takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.rules.words import (
    memory_option,
    memory_to_ask_bytes,
    say_number,
    time_line,
    time_to_ask_seconds,
)
from slurmscope.units import parse_bytes

GIB = 1 << 30


@pytest.mark.parametrize(("amount", "expected"), [(2, "2.0"), (12, "12"), (37.5, "37.5"), (1234.5, "1,234")])
def test_number_has_a_decimal_where_it_tells_something(amount: float, expected: str) -> None:
    assert expected == say_number(amount)


@given(st.floats(min_value=0, max_value=1e15))
def test_suggested_memory_is_above_the_need_and_not_twice_as_much_of_a_large_one(needed: float) -> None:
    asked = memory_to_ask_bytes(needed)

    assert 1.2 * needed <= asked <= max(1.5 * needed, 768 << 20)
    # Slurm reads the line back as the same size; parse_bytes has Slurm's units.
    assert asked == parse_bytes(memory_option(asked).partition("=")[2])


@given(st.floats(min_value=0, max_value=1e8))
def test_suggested_time_is_above_the_need(needed: float) -> None:
    asked = time_to_ask_seconds(needed)
    days, _, clock = time_line(asked).partition("=")[2].rpartition("-")
    hours, minutes, seconds = (int(part) for part in clock.split(":"))

    assert 1.5 * needed <= asked
    assert asked == ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
