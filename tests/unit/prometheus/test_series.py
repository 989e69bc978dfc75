# SPDX-License-Identifier: Apache-2.0
"""Check that answers are cut to their runs, merged from parts, and marked as partial."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from slurmscope.core.errors import ServerRefused
from slurmscope.http.client.address import parse_address
from slurmscope.jobs.series import Aggregation, JobSpan, Series, SeriesQuery
from slurmscope.prometheus.client import Prometheus
from slurmscope.prometheus.responses import Reply
from slurmscope.prometheus.series import PrometheusSeries
from slurmscope.prometheus.settings import Matcher, PrometheusSettings
from tests.fakes.prometheus_server import FakePrometheus, failure, matrix
from tests.fakes.scripted_server import GENEROUS_SECONDS, scripted_server
from tests.fakes.series_client import (
    COUNTER,
    GAUGE,
    MEAN,
    NO_LIMIT,
    TOTAL,
    FakeClient,
    SentQuery,
    found,
    level,
    opened,
    reply,
)


def test_curves_are_cut_to_their_runs() -> None:
    _, source = opened(level(5.0))
    curves = source.read_curves(GAUGE, [JobSpan(1, 10.0, 70.0), JobSpan(2, 40.0, 100.0)], points=300, until=NO_LIMIT)

    first, second = (
        Series(("n1",), (15, 30, 45, 60, 70), (5.0,) * 5),
        Series(("n1",), (45, 60, 75, 90, 100), (5.0,) * 5),
    )
    assert {1: (first,), 2: (second,)} == curves.by_job
    assert not curves.is_partial


@pytest.mark.parametrize(("cluster", "value"), [("alpha", "alpha"), ("", ""), ('a"b\\c', 'a\\"b\\\\c')])
def test_every_query_is_for_series_of_the_cluster_of_its_jobs(cluster: str, value: str) -> None:
    client = FakeClient(level(-5.0))
    source = PrometheusSeries(client, PrometheusSettings(matchers=(Matcher("site", "x"),), cluster_label="slurm"))
    runs = [JobSpan(1, 10.0, 70.0), JobSpan(2, 40.0, 100_000.0)]

    for wanted in (GAUGE, COUNTER, TOTAL, MEAN):
        source.read_curves(replace(wanted, cluster=cluster), runs, points=300, until=NO_LIMIT)
        source.read_totals(replace(wanted, cluster=cluster), runs, until=NO_LIMIT)

    selectors = [text for query in client.queries for text in re.findall(r"\{[^}]*\}", query.query)]
    assert len(client.queries) >= 8
    assert {f'site="x",slurm="{value}"'} == {text.partition(",")[2].rstrip("}") for text in selectors}


def test_run_that_ends_on_a_step_has_one_point_there() -> None:
    _, source = opened(level(5.0))
    curves = source.read_curves(GAUGE, [JobSpan(1, 0.0, 30.0), JobSpan(2, 0.0, 90.0)], points=300, until=NO_LIMIT)

    assert (15.0, 30.0) == curves.by_job[1][0].times


def test_point_far_after_the_end_is_dropped() -> None:
    _, source = opened(lambda _: reply(found(1, (30.0, 75.0), (1.0, 9.0))))
    curves = source.read_curves(GAUGE, [JobSpan(1, 0.0, 40.0), JobSpan(2, 0.0, 90.0)], points=300, until=NO_LIMIT)

    assert {1: (Series(("n1",), (30.0,), (1.0,)),)} == curves.by_job


def test_growth_is_divided_by_the_part_of_the_window_in_which_the_job_ran() -> None:
    # Two cores from 0 to 100; the window is 60 seconds.
    growth = {15.0: 30.0, 30.0: 60.0, 45.0: 90.0, 60.0: 120.0, 75.0: 120.0, 90.0: 120.0, 105.0: 110.0}
    _, source = opened(lambda _: reply(found(1, tuple(growth), tuple(growth.values()))))
    (curve,) = source.read_curves(COUNTER, [JobSpan(1, 0.0, 100.0)], points=300, until=NO_LIMIT).by_job[1]

    # A quarter of a window is too little to tell.
    assert (30.0, 45.0, 60.0, 75.0, 90.0, 100.0) == curve.times
    assert [pytest.approx(2.0)] * 6 == list(curve.values)


DAY = 86400.0


def of_two_runs(wanted: SeriesQuery) -> Callable[[SentQuery], Reply]:
    """Answer with 60 where a window reaches before 100 or after the day after it, else with 2."""

    def answer(query: SentQuery) -> Reply:
        (window,) = query.windows_seconds
        times = query.times if query.step else [float(query.query.split("@ ")[1].split(")")[0])]
        values = tuple(2.0 if at - window >= 100.0 and at <= 100.0 + DAY else 60.0 for at in times)
        return reply(found(1, tuple(times), tuple(v * window if wanted.how is Aggregation.RATE else v for v in values)))

    return answer


@pytest.mark.parametrize("wanted", [GAUGE, COUNTER, MEAN])
def test_long_windows_do_not_reach_into_other_runs_of_the_job(wanted: SeriesQuery) -> None:
    client, source = opened(of_two_runs(wanted))
    (curve,) = source.read_curves(wanted, [JobSpan(1, 100.0, 100.0 + DAY)], points=300, until=NO_LIMIT).by_job[1]

    # A day in steps of 480 seconds; the first one lasts 380, the last one 100.
    assert (480.0, *(480.0 * step for step in range(2, 181)), 100.0 + DAY) == curve.times
    assert [pytest.approx(2.0)] * 181 == list(curve.values)
    assert 3 == len(client.queries)


def test_first_seconds_of_a_long_window_give_no_rate() -> None:
    client, source = opened(level(960.0))
    (curve,) = source.read_curves(COUNTER, [JobSpan(1, 400.0, 400.0 + DAY)], points=300, until=NO_LIMIT).by_job[1]

    # From 400 to 480 are less than half of a window.
    assert (960.0, 2.0) == (curve.times[0], curve.values[0])
    assert 2 == len(client.queries)


def test_ends_of_many_long_runs_take_two_more_queries() -> None:
    client, source = opened(level(2.0))
    spans = [JobSpan(number, 100.0 + number, 100.0 + number + DAY) for number in range(1, 51)]
    curves = source.read_curves(GAUGE, spans, points=300, until=NO_LIMIT)

    assert 50 == len(curves.by_job)
    assert 3 == len(client.queries)


def test_total_of_a_counter_that_never_fell_takes_one_query() -> None:
    client, source = opened(level(900.0))

    assert {1: {("n1",): 900.0}} == source.read_totals(TOTAL, [JobSpan(1, 0.0, 600.0)], until=NO_LIMIT).by_job
    assert 1 == len(client.queries)


def test_total_of_a_counter_that_fell_is_the_sum_of_its_rises() -> None:
    # 900 at the first four points; then it begins anew, and grows to 800.
    course = (900.0, 900.0, 900.0, 900.0, 0.0, 800.0)

    def answer(query: SentQuery) -> Reply:
        if query.step:
            return reply(*(found(1, tuple(query.times[1:7]), course, node) for node in ("n1", "n2", "n3")))
        values = {"n1": -900.0, "n2": 900.0}
        return reply(*(found(1, (query.first,), (value,), node) for node, value in values.items()))

    _, source = opened(answer)
    totals = source.read_totals(TOTAL, [JobSpan(1, 0.0, 600.0)], until=NO_LIMIT)

    assert {1: {("n1",): 1700.0, ("n2",): 900.0}} == totals.by_job


def test_labels_that_an_answer_does_not_have_are_empty() -> None:
    wanted = SeriesQuery(metric="m", how=Aggregation.MAX, each=("slurm_node", "mig"), by=("slurm_node", "mig"))
    _, source = opened(level(1.0))

    assert ("n1", "") == source.read_curves(wanted, [JobSpan(1, 0.0, 60.0)], points=9, until=NO_LIMIT).by_job[1][
        0
    ].labels


@pytest.mark.parametrize("job", [2, "01", "1 ", "", "x"])
def test_series_of_other_jobs_are_dropped(job: int | str) -> None:
    _, source = opened(lambda _: reply(found(job, (15.0,), (1.0,))))

    assert {} == source.read_curves(GAUGE, [JobSpan(1, 0.0, 60.0)], points=300, until=NO_LIMIT).by_job
    assert {} == source.read_totals(GAUGE, [JobSpan(1, 0.0, 60.0)], until=NO_LIMIT).by_job


def test_series_without_a_point_in_the_run_is_dropped() -> None:
    _, source = opened(lambda _: reply(found(1, (), ()), found(1, (900.0,), (1.0,), "n2")))

    assert {} == source.read_curves(GAUGE, [JobSpan(1, 0.0, 60.0)], points=300, until=NO_LIMIT).by_job


def test_higher_of_two_copies_of_a_series_is_used() -> None:
    twice = reply(found(1, (15.0, 30.0), (1.0, 5.0)), found(1, (30.0, 45.0), (3.0, 4.0)))
    _, source = opened(lambda _: twice)
    spans = [JobSpan(1, 0.0, 60.0)]

    assert (Series(("n1",), (15.0, 30.0, 45.0), (1.0, 5.0, 4.0)),) == source.read_curves(
        GAUGE, spans, points=300, until=NO_LIMIT
    ).by_job[1]
    assert {1: {("n1",): 5.0}} == source.read_totals(GAUGE, spans, until=NO_LIMIT).by_job
    assert {1: {("n1",): 5.0 / 60}} == source.read_totals(COUNTER, spans, until=NO_LIMIT).by_job


def test_empty_runs_are_not_queried() -> None:
    client, source = opened(level(1.0))
    spans = [JobSpan(1, 5.0, 5.0), JobSpan(2, 9.0, 3.0)]

    assert {} == source.read_curves(GAUGE, spans, points=300, until=NO_LIMIT).by_job
    assert {} == source.read_totals(GAUGE, spans, until=NO_LIMIT).by_job
    assert [] == client.queries


def test_two_runs_of_one_job_are_rejected() -> None:
    _, source = opened(level(1.0))
    spans = [JobSpan(1, 0.0, 60.0), JobSpan(1, 90.0, 120.0)]

    with pytest.raises(ValueError, match="two runs"):
        source.read_totals(GAUGE, spans, until=NO_LIMIT)
    with pytest.raises(ValueError, match="two runs"):
        source.read_curves(GAUGE, spans, points=300, until=NO_LIMIT)


def test_many_jobs_take_few_queries() -> None:
    client, source = opened(level(2.0))
    spans = [JobSpan(10_000_000 + number, number * 10.0, number * 10.0 + 1000) for number in range(100)]

    curves = source.read_curves(GAUGE, spans, points=300, until=NO_LIMIT)
    totals = source.read_totals(GAUGE, spans, until=NO_LIMIT)

    assert (100, 100) == (len(curves.by_job), len(totals.by_job))
    assert len(client.queries) <= 3
    assert all(len(query.query) < 16_384 for query in client.queries)
    assert all('cluster="lab"' in query.query for query in client.queries)


def test_totals_of_many_counters_take_few_queries() -> None:
    client, source = opened(level(2.0))
    spans = [JobSpan(10_000_000 + number, 1.7e9 + number, 1.7e9 + number + 86400) for number in range(100)]

    assert 100 == len(source.read_totals(TOTAL, spans, until=NO_LIMIT).by_job)
    assert 2 == len(client.queries)
    assert all(len(query.query) < 16_384 for query in client.queries)


def test_total_growth_is_a_mean_rate() -> None:
    _, source = opened(level(300.0))

    assert {1: {("n1",): 2.5}} == source.read_totals(COUNTER, [JobSpan(1, 100.0, 220.0)], until=NO_LIMIT).by_job


def test_other_failures_are_raised() -> None:
    def answer(query: SentQuery) -> Reply:
        raise ServerRefused("down")

    _, source = opened(answer)
    with pytest.raises(ServerRefused):
        source.read_totals(GAUGE, [JobSpan(1, 0.0, 60.0)], until=NO_LIMIT)


def test_unusual_answers_become_curves() -> None:
    points = [(-5.0, "9"), (15.0, "1"), (30.0, "NaN"), (45.0, "+Inf"), (45.0, "2"), (60.0, "3"), (9e9, "4")]
    fake = FakePrometheus(
        [
            failure(503, "timeout", "query timed out in query execution"),
            matrix(({"slurm_job": "1", "slurm_node": "n1"}, points)),
            matrix(),
        ]
    )
    with scripted_server(fake.handle) as url:
        settings = PrometheusSettings(url=parse_address(url))
        source = PrometheusSeries(Prometheus(settings), settings)
        spans = [JobSpan(1, 0.0, 60.0), JobSpan(2, 0.0, 60.0)]
        curves = source.read_curves(GAUGE, spans, points=300, until=time.monotonic() + GENEROUS_SECONDS)

    assert {1: (Series(("n1",), (15.0, 45.0, 60.0), (1.0, 2.0, 3.0)),)} == curves.by_job
    assert not curves.is_partial
