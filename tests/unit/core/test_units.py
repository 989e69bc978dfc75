# SPDX-License-Identifier: Apache-2.0
"""Durations and sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.units import (
    DAY_SECONDS,
    format_duration,
    format_hours,
    format_number,
    format_size,
    parse_bytes,
    parse_positive_seconds,
    parse_seconds,
    parse_time_limit,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10", 10),
        ("2.5", 2.5),
        ("10.", 10),
        (".5", 0.5),
        ("30s", 30),
        ("5m", 300),
        ("1h30m", 5400),
        ("1d", 86400),
        ("1w", 604800),
        ("250ms", 0.25),
    ],
)
def test_duration_is_read_in_its_unit(text: str, seconds: float) -> None:
    assert seconds == parse_seconds(text)


@pytest.mark.parametrize(
    "given",
    ["", "s", "10x", "-5", "1h30", "5 m", ".", ".s", "1.2.", "nan", "inf", True, None, [], "1" * 400, -1, 1e300],
)
def test_what_is_no_duration_is_refused(given: object) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse_seconds(given)


def test_numbers_of_a_file_are_seconds() -> None:
    assert 10.0 == parse_seconds(10)
    assert 0.5 == parse_seconds(0.5)


def test_nothing_is_no_positive_duration() -> None:
    with pytest.raises(ValueError, match="not a duration greater than 0s"):
        parse_positive_seconds("0s")
    assert 3.0 == parse_positive_seconds("3s")


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused_with_a_sentence(text: str) -> None:
    try:
        assert parse_seconds(text) >= 0
    except ValueError as error:
        assert repr(text) in str(error)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("512", 512),
        ("1K", 1024),
        ("200M", 209715200),
        ("1.5G", 1610612736),
        ("2T", 2199023255552),
        ("1g", 1073741824),
    ],
)
def test_sizes_are_binary(text: str, size: int) -> None:
    assert size == parse_bytes(text)


def test_a_bare_size_takes_the_default_unit() -> None:
    assert 4000 * 1024 * 1024 == parse_bytes("4000", default_unit="M")


@pytest.mark.parametrize("text", ["", "M", "1X", "-1M", "1 G", "N/A"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (30, "30s"),
        (90, "1m30s"),
        (5400.0, "1h30m"),
        (14 * 86400.0, "14d"),
        (0.5, "0.5s"),
        (1e-7, "0.0000001s"),
    ],
)
def test_duration_is_written_with_units(seconds: float, text: str) -> None:
    assert text == format_duration(seconds)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1KiB"),
        (10 << 30, "10GiB"),
        (3 << 29, "1536MiB"),
        (5e6, "5000000B"),
        (0.5, "0.5"),
    ],
)
def test_size_is_written_with_units(size: float, text: str) -> None:
    assert text == format_size(size)


@given(st.one_of(st.integers(0, 3650 * DAY_SECONDS), st.floats(1e-9, 3650 * DAY_SECONDS)))
def test_written_duration_is_parsed_to_the_same_number(seconds: float) -> None:
    assert seconds == parse_seconds(format_duration(seconds))


@given(st.one_of(st.integers(0, 2**53), st.integers(0, 2**20).map(lambda count: count << 30)))
def test_written_size_is_parsed_to_the_same_number(size: int) -> None:
    assert size == parse_bytes(format_size(size))


@given(st.floats(min_value=0, allow_nan=False, allow_infinity=False))
def test_written_number_is_parsed_to_the_same_number(number: float) -> None:
    assert number == float(format_number(number))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400), ("90:30", 5430), ("1:30:00", 5400), ("1-12", 129_600), ("1-12:30", 131_400),
        ("1-12:30:05", 131_405), ("00:10:00", 600), ("0", 0),
    ],
)  # fmt: skip
def test_time_limit_is_parsed_as_sbatch_does(text: str, seconds: int) -> None:
    assert seconds == parse_time_limit(text)


@pytest.mark.parametrize("text", ["", "1h", "-5", "1:2:3:4", "1-", "1.5", "UNLIMITED", "1-2-3", "٣", "99999999", "5\n"])
def test_wrong_time_limit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time limit such as"):
        parse_time_limit(text)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, "not measured"), (0.0, "0"), (10.0, "under 0.01"), (36.0, "0.01"), (3600.0, "1"), (5400.0, "1.5"),
        (44_280.0, "12.3"), (7.2e6, "2,000"),
    ],
)  # fmt: skip
def test_hours_of_cores_are_never_shown_as_zero_unless_they_are(seconds: float | None, expected: str) -> None:
    assert expected == format_hours(seconds)
