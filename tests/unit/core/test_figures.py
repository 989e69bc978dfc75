# SPDX-License-Identifier: Apache-2.0
"""Numbers of lists and files have sensible digits."""

from __future__ import annotations

import math

import pytest

from slurmscope.core.units import round_number


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, 0.0), (3.0, 3.0), (1073741824.0, 1073741824.0), (1 / 3, 0.3333), (2 / 3, 0.6667), (100 / 3, 33.333),
        (1234567.891234, 1234567.891), (0.000012345678, 0.00001235), (-1 / 3, -0.3333), (0.99999, 1.0),
        (math.inf, math.inf),
    ],
)  # fmt: skip
def test_numbers_are_rounded_and_whole_ones_kept(value: float, expected: float) -> None:
    assert expected == round_number(value)


def test_not_a_number_stays_so() -> None:
    assert math.isnan(round_number(math.nan))
