# SPDX-License-Identifier: Apache-2.0
"""A time is parted into whole units and what is left, without a gap and without an overlap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slurmscope.store.archive.totals import SubmitRange, split

BOUND = st.none() | st.integers(0, 60)


@given(since=BOUND, until=BOUND)
def test_every_second_is_in_exactly_one_part(since: int | None, until: int | None) -> None:
    whole, rest = split(SubmitRange(since, until), 10)

    seconds = [second for times in (*whole, *rest) for second in range(80) if _is_in(second, times)]

    assert [second for second in range(80) if _is_in(second, SubmitRange(since, until))] == sorted(seconds)


@given(since=BOUND, until=BOUND)
def test_whole_units_begin_and_end_at_units(since: int | None, until: int | None) -> None:
    whole, rest = split(SubmitRange(since, until), 10)

    assert all(bound is None or bound % 10 == 0 for times in whole for bound in times)
    assert all(len([second for second in range(80) if _is_in(second, times)]) < 20 for times in rest)


def _is_in(second: int, times: SubmitRange) -> bool:
    return (times.since is None or times.since <= second) and (times.until is None or second < times.until)
