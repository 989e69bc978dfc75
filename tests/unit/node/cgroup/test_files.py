# SPDX-License-Identifier: Apache-2.0
"""Check the parsers with output of real kernels and with arbitrary bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.node.cgroup.files import (
    count_of,
    counts_of,
    line_keys,
    parse_blkio,
    parse_core_seconds,
    parse_cores,
    parse_counts,
    parse_io,
    parse_limit,
    parse_number,
    parse_pids,
    parse_pressure,
)
from slurmscope.node.job_use import BlockUse

KEYS = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=12)
NUMBERS = st.integers(0, 2**64 - 1)
TABLES = st.dictionaries(KEYS, NUMBERS, max_size=60)


@given(st.binary(max_size=400))
def test_no_parser_ever_fails(data: bytes) -> None:
    parse_number(data)
    parse_limit(data)
    parse_counts(data)
    parse_cores(data)
    parse_core_seconds(data, None)
    parse_core_seconds(data, (0, 5))
    parse_pressure(data)
    parse_io(data)
    parse_blkio(data, data)
    parse_pids(data)
    count_of(data, b"anon")


@given(TABLES, st.lists(KEYS, max_size=8))
def test_keys_are_found_in_any_order_and_absent_ones_are_not(table: dict[str, int], wanted: list[str]) -> None:
    data = "".join(f"{key} {number}\n" for key, number in table.items()).encode()
    assert [table.get(key) for key in wanted] == counts_of(data, line_keys(*wanted))
    assert table == parse_counts(data)


def test_key_that_ends_another_is_not_taken_for_it() -> None:
    assert 7 == count_of(b"inactive_anon 5\nanon_thp 6\nanon 7\n", b"anon")


def test_line_with_more_than_a_number_is_not_measured() -> None:
    assert count_of(b"anon 7 N0=7\n", b"anon") is None
    assert {"file": 3} == parse_counts(b"anon 7 N0=7\nfile 3\n")


def test_empty_file_is_not_measured() -> None:
    assert parse_number(b"") is None
    assert [None, None] == counts_of(b"", line_keys("a", "b"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"268435456\n", 268435456),
        (b"0\n", 0),
        (b"max\n", None),
        (b"", None),
        (b"-1\n", None),
        (b"9223372036854771712\n", None),  # v1, pages of 4 KiB
        (b"9223372036854710272\n", None),  # v1, pages of 64 KiB
        (b"18446744073709551615\n", None),  # v1, Linux 2.6
    ],
)
def test_no_limit_is_none_in_every_spelling(text: bytes, expected: int | None) -> None:
    assert expected == parse_limit(text)


def as_list(cores: list[int]) -> str:
    """Write a set of cores as the kernel does, with neighbours joined."""
    parts: list[list[int]] = []
    for core in cores:
        if parts and parts[-1][-1] == core - 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


@given(st.sets(st.integers(0, 1000), min_size=1))
def test_core_lists_round_trip(cores: set[int]) -> None:
    assert tuple(sorted(cores)) == parse_cores(as_list(sorted(cores)).encode() + b"\n")


@pytest.mark.parametrize("text", [b"", b"\n", b"a", b"3-1", b"0,,1", b"-1", b"0-", b"0-99999999999"])
def test_what_is_no_core_list_is_none(text: bytes) -> None:
    assert parse_cores(text) is None


def test_core_seconds_are_of_the_given_cores_even_where_they_did_nothing() -> None:
    data = b"1500000000 0 250000000 7 \n"
    assert {1: 0.0, 2: 0.25} == parse_core_seconds(data, (1, 2, 9))


def test_core_seconds_without_a_set_are_of_the_cores_that_worked() -> None:
    assert {0: 1.5, 2: 0.25} == parse_core_seconds(b"1500000000 0 250000000 0 \n", None)


def test_pressure_has_both_kinds_in_seconds() -> None:
    data = (
        b"some avg10=17.97 avg60=4.81 avg300=1.07 total=3338579\n"
        b"full avg10=17.18 avg60=4.55 avg300=1.01 total=3181865\n"
    )
    assert {"some": 3.338579, "full": 3.181865} == parse_pressure(data)


def test_pressure_of_an_older_kernel_has_no_full_line() -> None:
    assert {"some": 0.000005} == parse_pressure(b"some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n")


@pytest.mark.parametrize("text", [b"some 12345\n", b"some total=\n", b"total=5\n", b"half avg10=0 total=5\n"])
def test_pressure_in_another_shape_is_not_measured(text: bytes) -> None:
    assert {} == parse_pressure(text)


def test_io_is_by_device() -> None:
    data = (
        b"254:0 rbytes=50176 wbytes=1716224 rios=13 wios=67 dbytes=0 dios=0\n"
        b"8:16 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n"
    )
    expected = {
        "254:0": BlockUse(read_bytes=50176, write_bytes=1716224, reads=13, writes=67),
        "8:16": BlockUse(read_bytes=1, write_bytes=2, reads=3, writes=4),
    }
    assert expected == parse_io(data)


def test_devices_without_numbers_are_left_out() -> None:
    data = b"7:0 \n7:1 7:2 8:0 rbytes=1 wbytes=2 rios=3 wios=4\n9:0 rbytes=5\n"
    assert {"8:0": BlockUse(read_bytes=1, write_bytes=2, reads=3, writes=4)} == parse_io(data)


def test_blkio_is_by_device_and_totals_are_left_out() -> None:
    service_bytes = b"8:0 Read 10\n8:0 Write 20\n8:0 Sync 30\n8:0 Async 0\n8:0 Total 30\nTotal 30\n"
    serviced = b"8:0 Read 1\n8:0 Write 2\n8:0 Total 3\nTotal 3\n"
    assert {"8:0": BlockUse(read_bytes=10, write_bytes=20, reads=1, writes=2)} == parse_blkio(service_bytes, serviced)


def test_blkio_with_one_of_its_files_is_not_measured() -> None:
    assert {} == parse_blkio(b"8:0 Read 10\n8:0 Write 20\n", b"")


def test_process_of_another_namespace_is_skipped() -> None:
    assert [12, 3] == parse_pids(b"12\n0\n3\n")
