# SPDX-License-Identifier: Apache-2.0
"""Lookups in accounting are few at a time, shared fairly between people, and not repeated after a failure."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from slurmscope.reports.find import BURST, MAX_CONCURRENT, MAX_CONCURRENT_QUERIES, PER_SECOND, TooManyLookups
from slurmscope.reports.live_cache import FAILED_SECONDS
from tests.fakes.report_finding import ADA, ARCHIVED_SECONDS, BOB, TIMED_OUT, Bench, person
from tests.fakes.reports import make_record, make_report
from tests.processes import until


def test_only_four_questions_to_accounting_are_under_way(bench: Bench) -> None:
    bench.accounting.gate.clear()
    with ThreadPoolExecutor(12) as pool:
        lookups = [pool.submit(bench.finder.report, person(number), str(5000 + number)) for number in range(12)]
        until(lambda: bench.accounting.busy == MAX_CONCURRENT_QUERIES)
        bench.accounting.gate.set()
        assert [None] * 12 == [lookup.result(60) for lookup in lookups]
    assert (4, 12) == (bench.accounting.busiest, len(bench.accounting.read_ids))


def test_query_without_a_free_slot_fails_and_succeeds_later() -> None:
    bench = Bench(queue_timeout_seconds=0.01)
    bench.archive.save([make_report(make_record(state="RUNNING", end_seconds=None))])
    bench.accounting.gate.clear()
    busy = "too many accounting queries are running; try again in a moment"
    with ThreadPoolExecutor(MAX_CONCURRENT_QUERIES) as pool:
        lookups = [
            pool.submit(bench.finder.report, person(number), str(5000 + number))
            for number in range(MAX_CONCURRENT_QUERIES)
        ]
        until(lambda: bench.accounting.busy == MAX_CONCURRENT_QUERIES)
        bench.now += ARCHIVED_SECONDS
        report = bench.finder.report(ADA, "4711")
        messages = bench.outages.problems()
        bench.accounting.gate.set()
        assert [None] * MAX_CONCURRENT_QUERIES == [lookup.result(60) for lookup in lookups]
    assert (f"Accounting could not be read: {busy}", (busy,)) == (report and report.missing[-1], messages)
    bench.now += FAILED_SECONDS
    bench.finder.report(ADA, "4711")
    assert (4711, ()) == (bench.accounting.read_ids[-1], bench.outages.problems())


def test_failed_lookup_is_not_repeated_at_once(bench: Bench) -> None:
    bench.accounting.error = TIMED_OUT
    assert [None, None] == [bench.finder.report(BOB, "4712") for _ in range(2)]
    bench.now += FAILED_SECONDS
    bench.finder.report(BOB, "4712")

    assert [4712, 4712] == bench.accounting.read_ids


def test_those_who_wait_for_a_failing_lookup_do_not_repeat_it(bench: Bench) -> None:
    bench.accounting.gate.clear()
    bench.accounting.error = TIMED_OUT
    with ThreadPoolExecutor(8) as pool:
        lookups = [pool.submit(bench.finder.report, person(number), "4712") for number in range(8)]
        until(lambda: bench.accounting.busy == 1)
        bench.accounting.gate.set()
        assert [None] * 8 == [lookup.result(60) for lookup in lookups]

    assert [4712] == bench.accounting.read_ids


def test_one_person_leaves_accounting_queries_for_others(bench: Bench) -> None:
    bench.accounting.gate.clear()
    with ThreadPoolExecutor(12) as pool:
        lookups = [pool.submit(bench.finder.report, BOB, str(5000 + number)) for number in range(11)]
        until(lambda: bench.accounting.busy == MAX_CONCURRENT)
        other = pool.submit(bench.finder.report, ADA, "4711")
        until(lambda: 4711 in bench.accounting.read_ids)
        assert MAX_CONCURRENT + 1 == bench.accounting.busy
        bench.accounting.gate.set()
        assert [None] * 12 == [lookup.result(60) for lookup in [*lookups, other]]


def test_person_who_looks_up_many_jobs_waits_and_others_do_not(bench: Bench) -> None:
    for number in range(BURST):
        bench.finder.report(BOB, str(5000 + number))
    with pytest.raises(TooManyLookups):
        bench.finder.report(BOB, "6000")
    assert bench.finder.report(ADA, "6001") is None
    # What is cached costs nothing, for whom it is.
    assert bench.finder.report(BOB, "6001") is None
    bench.now += 1 / PER_SECOND
    assert bench.finder.report(BOB, "6000") is None

    assert [*range(5000, 5000 + BURST), 6001, 6000] == bench.accounting.read_ids


def test_person_who_looks_up_many_jobs_still_sees_what_is_archived(bench: Bench) -> None:
    bench.archive.save([make_report(make_record(state="RUNNING", end_seconds=None))])
    bench.now += ARCHIVED_SECONDS
    for number in range(BURST):
        bench.finder.report(ADA, str(5000 + number))
    report = bench.finder.report(ADA, "4711")

    assert "too many jobs were looked up" in (report.missing[-1] if report else "")
