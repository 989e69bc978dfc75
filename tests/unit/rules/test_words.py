# SPDX-License-Identifier: Apache-2.0
"""Numbers in findings read well, and computed lines are ones that Slurm takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.rules.words import (
    memory_line,
    memory_to_ask_bytes,
    say_bytes,
    say_count,
    say_number,
    say_percent,
    say_seconds,
    time_line,
    time_to_ask_seconds,
)
from slurmscope.units import parse_bytes

GIB = 1 << 30


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (0, "0.0 B"),
        (819 * 1024**2, "819 MiB"),
        (1.5 * GIB, "1.5 GiB"),
        (1023.7 * 1024**2, "1.0 GiB"),
        (2**70, "1,048,576 PiB"),
    ],
)
def test_size_has_a_binary_unit(amount: float, expected: str) -> None:
    assert expected == say_bytes(amount)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0 s"), (59.6, "1 min"), (90, "1 min 30 s"), (7500, "2 h 5 min"), (86399, "1 d"), (180000, "2 d 2 h")],
)
def test_duration_has_two_units(seconds: float, expected: str) -> None:
    assert expected == say_seconds(seconds)


@pytest.mark.parametrize(
    ("ratio", "expected"), [(0, "0 %"), (0.0001, "under 0.1 %"), (0.019, "1.9 %"), (0.5, "50 %"), (12, "1,200 %")]
)
def test_little_is_not_called_nothing(ratio: float, expected: str) -> None:
    assert expected == say_percent(ratio)


@pytest.mark.parametrize(("amount", "expected"), [(2, "2.0"), (12, "12"), (37.5, "37.5"), (1234.5, "1,234")])
def test_number_has_a_decimal_where_it_tells_something(amount: float, expected: str) -> None:
    assert expected == say_number(amount)


def test_count_agrees_with_its_noun() -> None:
    assert ("1 node", "2 nodes", "3 geese") == (
        say_count(1, "node"),
        say_count(2, "node"),
        say_count(3, "goose", "geese"),
    )


@given(st.floats(min_value=0, max_value=1e15))
def test_suggested_memory_is_above_the_need_and_not_twice_as_much_of_a_large_one(needed: float) -> None:
    asked = memory_to_ask_bytes(needed)

    assert 1.2 * needed <= asked <= max(1.5 * needed, 768 << 20)
    # Slurm reads the line back as the same size; parse_bytes has Slurm's units.
    assert asked == parse_bytes(memory_line(asked).partition("=")[2])


@given(st.floats(min_value=0, max_value=1e8))
def test_suggested_time_is_above_the_need(needed: float) -> None:
    asked = time_to_ask_seconds(needed)
    days, _, clock = time_line(asked).partition("=")[2].rpartition("-")
    hours, minutes, seconds = (int(part) for part in clock.split(":"))

    assert 1.5 * needed <= asked
    assert asked == ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
