# SPDX-License-Identifier: Apache-2.0
"""Check that queries are counted by kind."""

from __future__ import annotations

from slurmscope.prometheus.query_counters import QueryCount, QueryCounters, QueryCounts


def test_counters_are_empty_before_the_first_query() -> None:
    assert QueryCounts(by_kind={}, is_up=None) == QueryCounters().snapshot()


def test_queries_are_counted_by_kind() -> None:
    counters = QueryCounters()
    counters.note_answer("curves", 0.5, points=10, received_bytes=100)
    counters.note_answer("curves", 0.25, points=1, received_bytes=30)
    counters.note_failure("curves", 1.0, "timeout", is_up=False)
    counters.note_retry("curves")
    counters.note_split("curves")
    counters.note_split("totals")

    curves = QueryCount(
        queries=3, retries=1, splits=1, points=11, received_bytes=130, seconds=1.75, failures={"timeout": 1}
    )
    assert {"curves": curves, "totals": QueryCount(splits=1)} == counters.snapshot().by_kind


def test_last_query_decides_whether_the_server_is_up() -> None:
    counters = QueryCounters()
    counters.note_failure("totals", 1.0, "refused", is_up=False)
    was_up = counters.snapshot().is_up
    counters.note_answer("totals", 1.0, points=0, received_bytes=2)

    assert (False, True) == (was_up, counters.snapshot().is_up)


def test_snapshot_does_not_change_later() -> None:
    counters = QueryCounters()
    counters.note_failure("totals", 1.0, "refused", is_up=False)
    before = counters.snapshot()
    counters.note_failure("totals", 1.0, "refused", is_up=False)

    assert {"refused": 1} == before.by_kind["totals"].failures
