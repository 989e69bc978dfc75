# SPDX-License-Identifier: Apache-2.0
"""Queries that a server finds too large or too slow are split, and what stays partial is no total."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from slurmscope.core.errors import ServerTimedOut
from slurmscope.jobs.series import JobSpan, SeriesQuery
from slurmscope.prometheus.responses import QueryTimedOut, QueryTooLarge, Reply
from tests.fakes.series_client import COUNTER, GAUGE, MEAN, NO_LIMIT, TOTAL, SentQuery, found, level, opened, reply


def too_much_over(limit: int, answer: Callable[[SentQuery], Reply]) -> Callable[[SentQuery], Reply]:
    """Reject ranges of more points over all jobs."""

    def limited(query: SentQuery) -> Reply:
        if len(query.times) * len(query.job_ids) > limit:
            raise QueryTooLarge("too many samples")
        return answer(query)

    return limited


def test_range_is_split_until_the_server_answers() -> None:
    client, source = opened(too_much_over(51, level(3.0)))
    curves = source.read_curves(GAUGE, [JobSpan(1, 0.0, 3000.0)], points=300, until=NO_LIMIT)

    assert not curves.is_partial
    assert tuple(15.0 * index for index in range(1, 201)) == curves.by_job[1][0].times
    assert 3 == client.counters.snapshot().by_kind["curves"].splits


def test_jobs_are_split_until_the_server_answers() -> None:
    client, source = opened(too_much_over(450, level(3.0)))
    spans = [JobSpan(number, 0.0, 3000.0) for number in range(1, 5)]
    curves = source.read_curves(GAUGE, spans, points=300, until=NO_LIMIT)

    assert not curves.is_partial
    assert {1, 2, 3, 4} == set(curves.by_job)
    assert [[1, 2, 3, 4], [1, 2], [3, 4]] == [query.job_ids for query in client.queries]


def test_one_job_that_is_too_large_affects_no_other() -> None:
    def answer(query: SentQuery) -> Reply:
        if 2 in query.job_ids:
            raise QueryTooLarge("too many series")
        return level(3.0)(query)

    client, source = opened(answer)
    spans = [JobSpan(number, 0.0, 3000.0) for number in range(1, 5)]
    curves = source.read_curves(GAUGE, spans, points=300, until=NO_LIMIT)
    totals = source.read_totals(GAUGE, spans, until=NO_LIMIT)

    assert (True, {1, 3, 4}) == (curves.is_partial, set(curves.by_job))
    assert (True, {1, 3, 4}) == (totals.is_partial, set(totals.by_job))
    assert len(client.queries) < 100


def test_server_that_is_too_slow_for_all_jobs_answers_for_fewer() -> None:
    def answer(query: SentQuery) -> Reply:
        if len(query.job_ids) > 1:
            raise QueryTimedOut("query timed out in expression evaluation")
        return level(3.0)(query)

    _, source = opened(answer)
    spans = [JobSpan(number, 0.0, 3000.0) for number in range(1, 5)]
    totals = source.read_totals(GAUGE, spans, until=NO_LIMIT)

    assert (False, {1, 2, 3, 4}) == (totals.is_partial, set(totals.by_job))


def test_server_that_is_too_slow_for_a_part_of_one_job_has_timed_out() -> None:
    def answer(query: SentQuery) -> Reply:
        raise QueryTimedOut("query timed out in expression evaluation")

    client, source = opened(answer)
    with pytest.raises(ServerTimedOut, match="query timed out"):
        source.read_totals(GAUGE, [JobSpan(1, 0.0, 3000.0)], until=NO_LIMIT)
    assert len(client.queries) > 1


def test_number_of_splits_is_limited() -> None:
    def answer(query: SentQuery) -> Reply:
        raise QueryTooLarge("too much")

    client, source = opened(answer)
    spans = [JobSpan(number, 0.0, 3000.0) for number in range(100)]

    assert source.read_curves(GAUGE, spans, points=300, until=NO_LIMIT).is_partial
    assert len(client.queries) <= 130


def test_server_that_answers_for_single_jobs_is_queried_for_fewer_instead_of_losing_some() -> None:
    def answer(query: SentQuery) -> Reply:
        if len(set(query.job_ids)) > 1:
            raise QueryTooLarge("too many series")
        return level(3.0)(query)

    _, source = opened(answer)
    spans = [JobSpan(number, 0.0, 3000.0) for number in range(1, 101)]
    for read in (source.read_totals, partial(source.read_curves, points=300)):
        with pytest.raises(ServerTimedOut, match="too many series"):
            read(GAUGE, spans, until=NO_LIMIT)
        assert set(range(1, 51)) == set(read(GAUGE, spans[:50], until=NO_LIMIT).by_job)


@pytest.mark.parametrize("wanted", [GAUGE, COUNTER, MEAN, TOTAL], ids=lambda wanted: wanted.how)
def test_total_of_which_the_server_returns_only_a_part_is_none(wanted: SeriesQuery) -> None:
    """The first half of a run alone would give half of its cores, or the peak before the higher one."""

    def answer(query: SentQuery) -> Reply:
        if max(query.windows_seconds) > 800 or query.first > 600:
            raise QueryTooLarge("too many samples")
        return reply(found(1, (query.first,), (7.0,)))

    _, source = opened(answer)
    totals = source.read_totals(wanted, [JobSpan(1, 0.0, 1000.0)], until=NO_LIMIT)

    assert (True, {}) == (totals.is_partial, totals.by_job)


def test_total_of_a_counter_that_fell_is_none_without_its_whole_curve() -> None:
    def answer(query: SentQuery) -> Reply:
        if query.step:
            raise QueryTooLarge("too many samples")
        return reply(found(1, (query.first,), (-7.0,)), found(2, (query.first,), (7.0,)))

    _, source = opened(answer)
    totals = source.read_totals(TOTAL, [JobSpan(1, 0.0, 1000.0), JobSpan(2, 0.0, 1000.0)], until=NO_LIMIT)

    assert (True, {2: {("n1",): 7.0}}) == (totals.is_partial, totals.by_job)


def test_total_of_a_counter_that_fell_between_two_halves_is_the_sum_of_its_rises() -> None:
    """As where an agent was restarted at the middle of a run: neither half has a fall."""

    def answer(query: SentQuery) -> Reply:
        if query.step:
            return reply(found(1, tuple(query.times[1:5]), (400.0, 900.0, 0.0, 800.0)))
        if max(query.windows_seconds) > 800:
            raise QueryTooLarge("too many samples")
        return reply(found(1, (query.first,), (900.0 if query.first < 600 else 800.0,)))

    _, source = opened(answer)
    totals = source.read_totals(TOTAL, [JobSpan(1, 0.0, 1000.0)], until=NO_LIMIT)

    assert (False, {1: {("n1",): 1700.0}}) == (totals.is_partial, totals.by_job)


@pytest.mark.parametrize(("wanted", "expected"), [(GAUGE, 8.0), (COUNTER, 15.0 / 1000), (MEAN, 7.5), (TOTAL, 8.0)])
def test_halves_of_a_total_are_combined(wanted: SeriesQuery, expected: float) -> None:
    def answer(query: SentQuery) -> Reply:
        window = max(query.windows_seconds)
        if window > 800:
            raise QueryTooLarge("too many samples")
        return reply(found(1, (query.first,), (7.0 if query.first < 600 else 8.0,)))

    _, source = opened(answer)

    assert (
        pytest.approx(expected)
        == source.read_totals(wanted, [JobSpan(1, 0.0, 1000.0)], until=NO_LIMIT).by_job[1]["n1",]
    )
