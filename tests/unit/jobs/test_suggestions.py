# SPDX-License-Identifier: Apache-2.0
"""Suggested amounts are above the need, and their lines are ones that Slurm takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.units import parse_bytes
from slurmscope.jobs.suggestions import memory_line, suggest_memory_bytes, suggest_time_seconds, time_line


@given(st.floats(min_value=0, max_value=1e15))
def test_suggested_memory_is_above_the_need_and_not_twice_as_much_of_a_large_one(needed: float) -> None:
    asked = suggest_memory_bytes(needed)

    assert 1.2 * needed <= asked <= max(1.5 * needed, 768 << 20)
    # Slurm reads the line back as the same size; parse_bytes has Slurm's units.
    assert asked == parse_bytes(memory_line(asked).partition("=")[2])


@given(st.floats(min_value=0, max_value=1e8))
def test_suggested_time_is_above_the_need(needed: float) -> None:
    asked = suggest_time_seconds(needed)
    days, _, clock = time_line(asked).partition("=")[2].rpartition("-")
    hours, minutes, seconds = (int(part) for part in clock.split(":"))

    assert 1.5 * needed <= asked
    assert asked == ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
