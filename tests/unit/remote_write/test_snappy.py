# SPDX-License-Identifier: Apache-2.0
"""Blocks of snappy decode to what was written."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slurmscope.remote_write.encoding import SnappyWriter, encode_varint
from tests.fakes.remote_write import decompress

PIECES = st.lists(st.tuples(st.booleans(), st.binary(max_size=200)), max_size=60)


def compress(pieces: list[tuple[bool, bytes]]) -> bytes:
    writer = SnappyWriter()
    for is_piece, data in pieces:
        (writer.add_piece if is_piece else writer.add)(data)
    return writer.finish()


@given(PIECES, st.lists(st.integers(0, 59), max_size=60))
@example([(True, b"x" * 100_000), (True, b"x" * 100_000)], [])
@example([(False, b"x" * 60), (False, b"y")], [])
@example([(True, b"abcdefgh"), (False, bytes(70_000)), (True, b"abcdefgh")], [])
def test_any_pieces_in_any_order_are_restored(pieces: list[tuple[bool, bytes]], repeated: list[int]) -> None:
    given_pieces = pieces + [pieces[place % len(pieces)] for place in repeated if pieces]

    assert b"".join(data for _, data in given_pieces) == decompress(compress(given_pieces))


@pytest.mark.parametrize(("length", "tag"), [(60, 1), (61, 2), (256, 2), (257, 3), (65_536, 3)])
def test_tag_of_a_literal_is_as_short_as_the_format_allows(length: int, tag: int) -> None:
    data = bytes(number % 251 for number in range(length))
    block = compress([(False, data)])

    assert len(encode_varint(length)) + tag + length == len(block)
    assert data == decompress(block)


def test_repeated_piece_is_a_copy() -> None:
    # 64 bytes are one copy element of three bytes; 65 are two.
    assert 3 == len(compress([(True, bytes(64))] * 2)) - len(compress([(True, bytes(64))])) - 1
    assert 6 == len(compress([(True, bytes(65))] * 2)) - len(compress([(True, bytes(65))])) - 1


def test_small_block_is_as_worked_by_hand() -> None:
    # Worked by hand: length 10, literal of 5, copy of 5 from 5 before.
    assert bytes([10, 4 << 2]) + b"abcde" + bytes([4 << 2 | 2, 5, 0]) == compress([(True, b"abcde"), (True, b"abcde")])


@pytest.mark.parametrize(("number", "encoded"), [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02")])
def test_varint_is_that_of_protobuf(number: int, encoded: bytes) -> None:
    assert encoded == encode_varint(number)
