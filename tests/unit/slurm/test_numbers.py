# SPDX-License-Identifier: Apache-2.0
"""A number is read in every shape, and one that is not set is none."""

from __future__ import annotations

import math

import pytest

from slurmscope.slurm.json_response import JsonNumber, OptionalJsonNumber, whole


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (0, 0),
        (7, 7),
        (2.9, 2),
        (OptionalJsonNumber(set=True, infinite=False, number=7), 7),
        (OptionalJsonNumber(set=True, infinite=False, number=7.0), 7),
        (0xFFFFFFFD, 0xFFFFFFFD),
    ],
)
def test_number_is_read(value: JsonNumber, number: int) -> None:
    assert number == whole(value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "Infinity",
        "12",
        -2,
        0xFFFFFFFE,
        0xFFFFFFFF,
        2**64 - 2,
        math.inf,
        math.nan,
        OptionalJsonNumber(set=False, infinite=False, number=0),
        OptionalJsonNumber(set=True, infinite=True, number=0),
        OptionalJsonNumber(set=None),
        OptionalJsonNumber(),
    ],
)
def test_what_is_not_set_is_no_number(value: JsonNumber) -> None:
    assert whole(value) is None
