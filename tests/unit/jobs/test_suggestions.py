# SPDX-License-Identifier: Apache-2.0
"""Suggested amounts are above the need, and their lines are ones that Slurm takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.units import parse_bytes
from slurmscope.jobs.suggestions import (
    is_worthwhile,
    memory_line,
    memory_per_core_bytes,
    suggest_memory_bytes,
    suggest_time_seconds,
    time_line,
)

GIB = 1 << 30


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


@pytest.mark.parametrize(
    ("needed", "expected"),
    # In steps of 256 MiB up to 4 GiB, of 1 up to 32, 4 up to 128, 16 up to 512, and of 64 GiB.
    [(0.0, 0.5), (0.6, 0.75), (4.0, 4.0), (4.1, 5.0), (32.0, 32.0), (33.0, 36.0), (130.0, 144.0), (513.0, 576.0)],
)
def test_memory_is_rounded_up_to_a_figure_people_write(needed: float, expected: float) -> None:
    assert expected * GIB == suggest_memory_bytes(needed * GIB, 1.0)


@pytest.mark.parametrize(
    ("mebibytes", "expected"),
    # By at most a quarter more: in steps of 1 MiB up to 7, of 2 up to 15, 4, 8, 16, 32, and of 64 MiB from 256 on.
    [(1, 1), (5, 5), (9, 10), (17, 20), (33, 40), (65, 80), (129, 160), (257, 320), (1000, 1024), (5000, 5056)],
)
def test_memory_of_each_core_is_rounded_up_to_a_figure_people_write(mebibytes: int, expected: int) -> None:
    assert expected == memory_per_core_bytes(4 * mebibytes * 2**20, 4) / 2**20


@pytest.mark.parametrize(
    ("needed", "expected"),
    # In steps of 10 minutes up to an hour, of 30 up to 8, of an hour up to 2 days, and of 6 hours.
    [(0.0, 600), (601.0, 1200), (3600.0, 3600), (3601.0, 5400), (28801.0, 32400), (172801.0, 194400)],
)
def test_time_is_rounded_up_to_a_figure_people_write(needed: float, expected: int) -> None:
    assert expected == suggest_time_seconds(needed, 1.0)


@pytest.mark.parametrize(("enough", "expected"), [(8.0, True), (8.1, False)])
def test_smaller_request_is_worthwhile_from_a_fifth_on(enough: float, expected: bool) -> None:
    assert expected is is_worthwhile(10.0, enough)
