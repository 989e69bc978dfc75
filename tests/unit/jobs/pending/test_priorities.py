# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.errors import MalformedAnswer
from slurmscope.jobs.pending.blockers import SPRIO_ARGUMENTS, parse_priorities

ROWS = b"".join(
    b"\x1f".join(fields) + b"\n"
    for fields in (
        [b"  17", b"batch", b"1550", b"50", b"0", b"1000", b"0", b"300", b"200", b"0", b"cpu=10,mem=20", b"30"],
        [b"18", b"gpu", b"20", b"20", b"0", b"0", b"0", b"0", b"0", b"0", b"", b"0"],
    )
)


def test_factors_are_weighted_and_those_without_weight_are_left_out() -> None:
    first, second = parse_priorities(ROWS).priorities
    assert (17, "batch", 1550.0) == (first.job_id, first.partition, first.total)
    assert {"age": 50.0, "fairshare": 1000.0, "partition": 300.0, "qos": 200.0, "tres": 30.0, "nice": -30.0} == (
        first.factors
    )
    assert first.total == sum(first.factors.values())
    assert {"age": 20.0} == second.factors


def test_unreadable_row_is_counted() -> None:
    found = parse_priorities(ROWS + b"x\x1fy\n")
    assert (2, 1) == (len(found.priorities), found.unreadable_rows)


def test_queue_without_jobs_has_no_priorities() -> None:
    assert () == parse_priorities(b"").priorities


@pytest.mark.parametrize("answer", [ROWS[:-1], b"This cluster has no priorities\n"])
def test_other_answer_is_a_failure(answer: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        parse_priorities(answer)


@given(st.binary())
def test_any_answer_is_read_or_refused(answer: bytes) -> None:
    with contextlib.suppress(MalformedAnswer):
        parse_priorities(answer)


def test_one_call_asks_for_all_jobs() -> None:
    assert not any("job" in argument for argument in SPRIO_ARGUMENTS)
