# SPDX-License-Identifier: Apache-2.0
"""The ledger tells what questions cost, by kind."""

from __future__ import annotations

from slurmscope.sources.prometheus.query_counters import QueryCount, QueryCounters, QueryCounts


def test_nothing_is_known_before_the_first_question() -> None:
    assert QueryCounts(by_kind={}, is_up=None) == QueryCounters().snapshot()


def test_questions_are_summed_by_kind() -> None:
    ledger = QueryCounters()
    ledger.note_answer("curves", 0.5, points=10, received_bytes=100)
    ledger.note_answer("curves", 0.25, points=1, received_bytes=30)
    ledger.note_failure("curves", 1.0, "timeout", is_up=False)
    ledger.note_retry("curves")
    ledger.note_split("curves")
    ledger.note_split("totals")

    curves = QueryCount(
        questions=3, retries=1, splits=1, points=11, received_bytes=130, seconds=1.75, failures={"timeout": 1}
    )
    assert {"curves": curves, "totals": QueryCount(splits=1)} == ledger.snapshot().by_kind


def test_last_answer_tells_whether_the_server_is_up() -> None:
    ledger = QueryCounters()
    ledger.note_failure("totals", 1.0, "refused", is_up=False)
    was_up = ledger.snapshot().is_up
    ledger.note_answer("totals", 1.0, points=0, received_bytes=2)

    assert (False, True) == (was_up, ledger.snapshot().is_up)


def test_snapshot_does_not_change_later() -> None:
    ledger = QueryCounters()
    ledger.note_failure("totals", 1.0, "refused", is_up=False)
    before = ledger.snapshot()
    ledger.note_failure("totals", 1.0, "refused", is_up=False)

    assert {"refused": 1} == before.by_kind["totals"].failures
