# SPDX-License-Identifier: Apache-2.0
"""Check that numbers are said right, at the edges of their units too."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.units import (
    format_bytes,
    format_count,
    format_rate,
    format_ratio,
    format_seconds,
    format_some,
    parse_bytes,
)
from slurmscope.jobs.render.formatting import format_day, format_elapsed, format_time, show


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1,023 B"),
        (1024, "1 KiB"),
        (1024**2 - 1, "1 MiB"),
        (1536 * 1024**2, "1.5 GiB"),
        (819.2 * 1024**2, "819 MiB"),
        (8 * 1024**3, "8 GiB"),
        (12.34 * 1024**4, "12.3 TiB"),
        (2**80, "1,048,576 EiB"),
        (None, "not measured"),
        (math.nan, "not measured"),
        (math.inf, "not measured"),
    ],
)
def test_sizes_have_binary_units(amount: float | None, words: str) -> None:
    assert words == format_bytes(amount)


@given(st.integers(0, 2**70))
def test_a_size_that_is_read_back_is_nearly_the_same(amount: int) -> None:
    assert amount == pytest.approx(parse_bytes(format_bytes(amount).replace(" ", "").replace(",", "")), rel=0.006)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.01, "under 0.1 s"),
        (0.44, "0.4 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (3599.7, "1 h"),
        (2 * 3600 + 180, "2 h 3 min"),
        (86400 - 20, "1 d"),
        (26 * 3600, "1 d 2 h"),
        (365 * 86400, "365 d"),
        (-5, "0 s"),
        (None, "not measured"),
        (math.nan, "not measured"),
    ],
)
def test_durations_have_two_units(seconds: float | None, words: str) -> None:
    assert words == format_seconds(seconds)


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (0.0, "0 %"),
        (0.0004, "<0.1 %"),
        (0.0833, "8.3 %"),
        (0.0997, "10 %"),
        (0.5, "50 %"),
        (1.5, "150 %"),
        (-0.02, "-2.0 %"),
        (None, "not measured"),
        (math.inf, "not measured"),
    ],
)
def test_shares_are_percentages_and_little_is_not_nothing(ratio: float | None, words: str) -> None:
    assert words == format_ratio(ratio)


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        (2.0, "2"),
        (2.1, "2.1"),
        (0.126, "0.13"),
        (10.04, "10"),
        (99.96, "100"),
        (123456.7, "123,457"),
        (None, "not measured"),
    ],
)
def test_counts_have_three_digits_or_all(amount: float | None, words: str) -> None:
    assert words == format_count(amount)


def test_rates_are_sizes_per_second() -> None:
    assert "31.5 MiB/s" == format_rate(33e6)
    assert "not measured" == format_rate(None)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "00:00:00"), (7200.9, "02:00:00"), (86399, "23:59:59"), (90061, "1-01:01:01")]
)
def test_elapsed_time_is_written_as_sacct_does(seconds: float, words: str) -> None:
    assert words == format_elapsed(seconds)


@given(st.integers(0, 4_000_000_000))
def test_moments_are_in_utc(seconds: int) -> None:
    moment = datetime.fromtimestamp(seconds, tz=UTC)

    assert moment.isoformat(" ").replace("+00:00", " UTC") == format_time(seconds)
    assert moment.date().isoformat() == format_day(seconds)


@pytest.mark.parametrize("seconds", [None, 1e300, -1e300, math.nan, math.inf])
def test_a_moment_no_calendar_knows_is_unknown(seconds: float | None) -> None:
    assert "unknown" == format_time(seconds)
    assert "unknown" == format_day(seconds)


def test_one_is_not_many() -> None:
    assert "1 node" == format_some(1, "node")
    assert "0 nodes" == format_some(0, "node")
    assert "1,200 indices" == format_some(1200, "index", "indices")


def test_what_does_not_print_is_spelled_out() -> None:
    assert "a\\u001b[31m\\u202eb\\r\\n" == show("a\x1b[31m\u202eb\r\n")
