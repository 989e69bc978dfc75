# SPDX-License-Identifier: Apache-2.0
"""Pauses double up to a limit, and differ between clients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.rate_limit import backoff_seconds, random_share


@pytest.mark.parametrize(
    ("random", "expected"), [(1.0, [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]), (0.0, [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0])]
)
def test_pause_doubles_up_to_the_longest(random: float, expected: list[float]) -> None:
    pauses = [backoff_seconds(failures, 0.5, 10.0, lambda: random) for failures in range(1, 8)]

    assert expected == pauses


@given(st.integers(1, 10**9), st.floats(0.001, 100.0), st.floats(1.0, 1000.0))
def test_pause_is_between_half_of_the_longest_and_the_longest(failures: int, first: float, factor: float) -> None:
    longest = first * factor
    pause = backoff_seconds(failures, first, longest)

    assert min(first, longest / 2) / 2 <= pause <= longest


def test_random_share_is_spread_over_0_to_1() -> None:
    drawn = {random_share() for _ in range(1000)}

    assert len(drawn) > 900
    assert 0 <= min(drawn) < 0.1
    assert 0.9 < max(drawn) < 1
