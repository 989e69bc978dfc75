# SPDX-License-Identifier: Apache-2.0
"""Curves and totals out of a real Prometheus and a real VictoriaMetrics are the ones worked out by hand."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator
from statistics import fmean

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.prometheus import Sample, Server
from slurmscope.http.client.address import parse_address
from slurmscope.jobs.series import Aggregation, JobSpan, Series, SeriesQuery, SeriesSource
from slurmscope.prometheus.client import Prometheus
from slurmscope.prometheus.promql import curves_expression, quote, quote_regex
from slurmscope.prometheus.series import PrometheusSeries
from slurmscope.prometheus.settings import Matcher, PrometheusSettings
from tests.e2e.job_history import SCRAPE_SECONDS, History, prometheus_with, victoria_metrics_with

GENEROUS_SECONDS = 60.0
# Not a multiple of the scrape interval: scrapes come at their own times.
START = int(time.time()) // 7200 * 7200 - 86400 + 7
TWO_NODES, GAPPED, WIDE, HUGE = 101, 102, 103, 104
GRACE_SECONDS = 60
REQUEUED, REQUEUED_SHORT, REQUEUED_SLOW, RESTARTED, HARDLY_FELL, SECOND_COPY = 105, 106, 107, 108, 109, 110
GIB, GB = float(1 << 30), 1e9

CPU = SeriesQuery(metric="jobs_cpu_seconds_total", how=Aggregation.RATE)
CPU_TOTAL = SeriesQuery(metric="jobs_cpu_seconds_total", how=Aggregation.MAX)
MEMORY = SeriesQuery(metric="jobs_memory_anon_bytes", how=Aggregation.MAX)
MEMORY_MEAN = SeriesQuery(metric="jobs_memory_anon_bytes", how=Aggregation.MEAN)
TWO_NODES_RUN = JobSpan(TWO_NODES, START, START + 1200)
GAPPED_RUN = JobSpan(GAPPED, START + 300, START + 900)
GAP_SECONDS = (500, 700)
# Slurm starts a requeued job 121 seconds after its run before has ended.
LONG_AGO = START - 2 * 86400
BEFORE = JobSpan(REQUEUED, LONG_AGO, LONG_AGO + 7200)
AGAIN = JobSpan(REQUEUED, BEFORE.end_seconds + 121, BEFORE.end_seconds + 121 + 86400)
WRITTEN = SeriesQuery(metric="jobs_io_write_bytes_total", how=Aggregation.TOTAL)


def scrapes(start: float, end: float) -> list[float]:
    return [START + second for second in range(0, 100_000, SCRAPE_SECONDS) if start < START + second <= end]


def make_history() -> History:
    history = History()
    times = scrapes(START, START + 1200 + GRACE_SECONDS)
    for replica, lag in (("a", 0), ("b", 1)):
        # The second server is one scrape behind the first.
        for node, value in (("n1", _two_cores), ("n2", _half_a_core_with_a_reset)):
            labels = {"slurm_job": str(TWO_NODES), "slurm_node": node, "cluster": "lab", "replica": replica}
            points = {at: value(before) for at, before in zip(times[lag:], times, strict=False)}
            history.add("jobs_cpu_seconds_total", labels, points)
    foreign = {"slurm_job": str(TWO_NODES), "slurm_node": "n1", "cluster": "other"}
    history.add("jobs_cpu_seconds_total", foreign, {at: 1e6 * (at - START) for at in times})
    labels = {"slurm_job": str(GAPPED), "slurm_node": "n1", "cluster": "lab"}
    history.add("jobs_memory_anon_bytes", labels, gapped_samples())
    # The job was put back into the queue, and its second run took far more.
    history.add("jobs_memory_anon_bytes", labels, dict.fromkeys(scrapes(START + 1050, START + 1200), 1e9))
    for job, nodes, seconds in ((WIDE, 100, 300 * SCRAPE_SECONDS), (HUGE, 2600, 10 * SCRAPE_SECONDS)):
        for number in range(nodes):
            labels = {"slurm_job": str(job), "slurm_node": f"n{number}", "cluster": "lab"}
            points = dict.fromkeys(scrapes(START, START + seconds), float(number))
            history.add("jobs_memory_anon_bytes", labels, points)
    for job, seconds, every in ((REQUEUED, 86400, 15), (REQUEUED_SHORT, 40, 15), (REQUEUED_SLOW, 150, 60)):
        add_two_runs(history, job, seconds, every)
    add_written(history)
    return history


def add_two_runs(history: History, job: int, seconds: float, every: int) -> None:
    """Add a run with 60 GiB and 16 cores, and the run after it with 2 GiB and 4 cores.

    The second one has 3 GiB in its second minute and 4 GiB in its last half minute.
    """
    labels = {"slurm_job": str(job), "slurm_node": "n1", "cluster": "lab"}
    memory, cpu = {}, {}
    for at in range(LONG_AGO + 5, LONG_AGO + 7200 + GRACE_SECONDS, every):
        memory[float(at)], cpu[float(at)] = 60 * GIB, 16.0 * min(at - LONG_AGO, 7200)
    begin = LONG_AGO + 7200 + 121
    for since in range(7, int(seconds) + 1, every):
        used = 3 if seconds > 150 and 60 <= since < 120 else 4 if seconds > 150 and since > seconds - 30 else 2
        memory[float(begin + since)], cpu[float(begin + since)] = used * GIB, 4.0 * since
    history.add("jobs_memory_anon_bytes", labels, memory)
    history.add("jobs_cpu_seconds_total", labels, cpu)


def add_written(history: History) -> None:
    """Add three jobs whose agent was started anew in the middle.

    Before, all wrote 900 GB in 1200 seconds, and after it 800 GB. Of two jobs the agent forgot everything, because all
    their processes had ended; of the other 0.1 GB, because most of it was written by a process that goes on. Of the
    last one a second server has a copy, from after the restart on.
    """
    for job, forgotten in ((RESTARTED, 900.0), (HARDLY_FELL, 0.1), (SECOND_COPY, 900.0)):
        labels = {"slurm_job": str(job), "slurm_node": "n1", "cluster": "lab"}
        points = {}
        for at in scrapes(START, START + 2400):
            since = at - START
            gigabytes = 0.75 * since if since <= 1200 else 900 - forgotten + (since - 1200) / 1.5
            points[at] = gigabytes * GB
        history.add(WRITTEN.metric, labels, points)
        if job == SECOND_COPY:
            copied = {at: written for at, written in points.items() if at > START + 1200}
            history.add(WRITTEN.metric, {**labels, "replica": "b"}, copied)


def _two_cores(at: float) -> float:
    return 2.0 * min(at - START, 1200)


def _half_a_core_with_a_reset(at: float) -> float:
    since = START if at < START + 600 else START + 600
    return 0.5 * (min(at, START + 1200) - since)


def gapped_samples() -> dict[float, float]:
    """The agent was down for 200 seconds."""
    samples = {}
    for at in scrapes(*GAPPED_RUN[1:]):
        if not GAP_SECONDS[0] < at - START <= GAP_SECONDS[1]:
            samples[at] = 1000.0 + at - START
    return samples


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    history, folder = make_history(), tmp_path_factory.mktemp("series")
    with (
        prometheus_with(history, folder / "prometheus") as prometheus,
        victoria_metrics_with(history, folder / "victoria") as victoria,
    ):
        yield {"prometheus": prometheus, "victoria": victoria}


@pytest.fixture(params=["prometheus", "victoria"])
def server(request: pytest.FixtureRequest, servers: dict[str, Server]) -> Server:
    return servers[request.param]


@pytest.fixture
def source(server: Server) -> SeriesSource:
    return open_source(server)


def open_source(server: Server, scrape_interval: float = SCRAPE_SECONDS) -> PrometheusSeries:
    known = PrometheusSettings(
        url=parse_address(server.url), matchers=(Matcher("cluster", "lab"),), scrape_interval=scrape_interval
    )
    return PrometheusSeries(Prometheus(known), known)


def until() -> float:
    return time.monotonic() + GENEROUS_SECONDS


def by_labels(curves: tuple[Series, ...]) -> dict[tuple[str, ...], Series]:
    return {curve.labels: curve for curve in curves}


def test_rates_are_right_from_start_to_end_over_a_reset_and_with_replicas(source: SeriesSource) -> None:
    answer = source.read_curves(CPU, [TWO_NODES_RUN, GAPPED_RUN], points=300, until=until())

    assert {TWO_NODES} == set(answer.by_job)
    assert not answer.is_partial
    for (node,), curve in by_labels(answer.by_job[TWO_NODES]).items():
        expected = {"n1": 2.0, "n2": 0.5}[node]
        points = [(at - START, value) for at, value in zip(curve.times, curve.values, strict=True)]
        settled = [value for second, value in points if 60 < second < 600 or 675 < second < 1185]
        over_the_reset = [value for second, value in points if 600 <= second <= 675]
        edges = [value for second, value in points if second <= 60 or second >= 1185]
        assert [pytest.approx(expected)] * 70 == settled
        # Of the growth around a reset, a server sees no more than its two neighbouring samples show.
        assert all(0.6 * expected <= value <= 1.3 * expected for value in over_the_reset)
        # VictoriaMetrics counts up to the last sample only, which is up to one scrape older than the point.
        assert [pytest.approx(expected, rel=0.3)] * len(edges) == edges
        assert (30 <= points[0][0] <= 60, 1200) == (True, points[-1][0])


def test_sum_over_nodes_is_made_by_the_server(source: SeriesSource) -> None:
    summed = SeriesQuery(metric=CPU.metric, how=Aggregation.RATE, by=())
    (curve,) = source.read_curves(summed, [TWO_NODES_RUN], points=300, until=until()).by_job[TWO_NODES]

    at_minute_five = dict(zip(curve.times, curve.values, strict=True))[(START + 300) // 15 * 15]
    assert () == curve.labels
    assert pytest.approx(2.5) == at_minute_five


def test_totals_are_those_of_the_whole_run(source: SeriesSource) -> None:
    highest = source.read_totals(CPU_TOTAL, [TWO_NODES_RUN], until=until())
    rates = source.read_totals(CPU, [TWO_NODES_RUN], until=until())

    assert {TWO_NODES: {("n1",): 2400.0, ("n2",): 300.0}} == highest.by_job
    assert pytest.approx({("n1",): 2.0, ("n2",): 0.5}, rel=0.02) == rates.by_job[TWO_NODES]
    assert not highest.is_partial


def test_requeued_run_has_only_its_own_numbers(source: SeriesSource) -> None:
    samples = gapped_samples()
    spans = [GAPPED_RUN, TWO_NODES_RUN, JobSpan(WIDE, START, START + 4500)]

    highest = source.read_totals(MEMORY, spans, until=until())
    mean = source.read_totals(MEMORY_MEAN, spans, until=until())
    again = source.read_totals(MEMORY, [JobSpan(GAPPED, START + 1050, START + 1200)], until=until())

    assert {("n1",): max(samples.values())} == highest.by_job[GAPPED]
    assert pytest.approx({("n1",): fmean(samples.values())}) == mean.by_job[GAPPED]
    assert {("n1",): 1e9} == again.by_job[GAPPED]
    assert {GAPPED, WIDE} == set(highest.by_job)


def test_run_after_a_requeue_has_nothing_of_the_run_before(source: SeriesSource) -> None:
    (memory,) = source.read_curves(MEMORY, [AGAIN], points=300, until=until()).by_job[REQUEUED]
    (cores,) = source.read_curves(CPU, [AGAIN], points=300, until=until()).by_job[REQUEUED]

    # What is highest in the first and the last minutes is there all the same.
    assert (3 * GIB, 4 * GIB) == (memory.values[0], memory.values[-1])
    assert {2 * GIB} == set(memory.values[1:-1])
    assert AGAIN.end_seconds == memory.times[-1] == cores.times[-1]
    # VictoriaMetrics counts up to the last sample only.
    assert [pytest.approx(4.0, rel=0.05)] * len(cores.values) == list(cores.values)
    assert len(memory.values) in {180, 181}


def test_run_before_a_requeue_has_nothing_of_the_run_after(source: SeriesSource) -> None:
    (memory,) = source.read_curves(MEMORY_MEAN, [BEFORE], points=10, until=until()).by_job[REQUEUED]
    (cores,) = source.read_curves(CPU, [BEFORE], points=10, until=until()).by_job[REQUEUED]

    assert {60 * GIB} == set(memory.values)
    assert [pytest.approx(16.0, rel=0.05)] * len(cores.values) == list(cores.values)
    assert BEFORE.end_seconds == memory.times[-1] == cores.times[-1]


def test_totals_of_a_requeued_run_are_its_own(source: SeriesSource) -> None:
    assert {("n1",): 4 * GIB} == source.read_totals(MEMORY, [AGAIN], until=until()).by_job[REQUEUED]
    assert {("n1",): 60 * GIB} == source.read_totals(MEMORY, [BEFORE], until=until()).by_job[REQUEUED]
    # The last sample is 8 seconds before the end.
    assert {("n1",): 4.0 * (86400 - 8)} == source.read_totals(CPU_TOTAL, [AGAIN], until=until()).by_job[REQUEUED]
    assert {("n1",): 16.0 * 7200} == source.read_totals(CPU_TOTAL, [BEFORE], until=until()).by_job[REQUEUED]


@pytest.mark.parametrize(("job", "seconds", "every"), [(REQUEUED_SHORT, 40, 15.0), (REQUEUED_SLOW, 150, 60.0)])
def test_short_run_after_a_requeue_is_known(server: Server, job: int, seconds: float, every: float) -> None:
    source = open_source(server, scrape_interval=every)
    span = JobSpan(job, AGAIN.start_seconds, AGAIN.start_seconds + seconds)
    (memory,) = source.read_curves(MEMORY, [span], points=300, until=until()).by_job[job]
    (cores,) = source.read_curves(CPU, [span], points=300, until=until()).by_job[job]

    assert {2 * GIB} == set(memory.values)
    assert [pytest.approx(4.0, rel=0.35)] * len(cores.values) == list(cores.values)
    assert span.end_seconds == memory.times[-1] == cores.times[-1]


@pytest.mark.parametrize(
    ("job", "expected"), [(RESTARTED, 1700 * GB), (HARDLY_FELL, 1700 * GB), (SECOND_COPY, 1700 * GB)]
)
def test_total_goes_on_where_an_agent_was_started_anew(source: SeriesSource, job: int, expected: float) -> None:
    totals = source.read_totals(WRITTEN, [JobSpan(job, START, START + 2400)], until=until())

    # What was written within the step of the restart is lost: 15 seconds of 1200 in which 800 GB were written.
    assert pytest.approx({("n1",): expected}, rel=0.01) == totals.by_job[job]
    assert totals.by_job[job]["n1",] <= expected


def test_gap_stays_a_gap(source: SeriesSource) -> None:
    (curve,) = source.read_curves(MEMORY, [GAPPED_RUN], points=300, until=until()).by_job[GAPPED]
    seconds = [at - START for at in curve.times]

    assert [] == [second for second in seconds if 535 < second < 700]
    assert 300 < seconds[0] <= 330
    assert 900 == seconds[-1]
    assert 1900.0 == curve.values[-1]
    samples = gapped_samples().items()
    last_two = [max(value for at, value in samples if time - 30 <= at <= time) for time in curve.times]
    assert last_two == list(curve.values)


def test_curve_has_no_more_points_than_asked_and_loses_no_peak(source: SeriesSource) -> None:
    (curve,) = source.read_curves(MEMORY, [GAPPED_RUN], points=10, until=until()).by_job[GAPPED]

    assert len(curve.times) <= 10
    assert 1900.0 == max(curve.values)


def test_unknown_jobs_and_metrics_are_not_in_the_answer(source: SeriesSource) -> None:
    nothing = SeriesQuery(metric="jobs_nothing", how=Aggregation.MEAN)

    assert {} == source.read_curves(nothing, [TWO_NODES_RUN], points=300, until=until()).by_job
    assert {} == source.read_totals(CPU, [JobSpan(999, START, START + 60)], until=until()).by_job


def test_too_many_samples_are_asked_for_in_parts(servers: dict[str, Server]) -> None:
    known = PrometheusSettings(url=parse_address(servers["prometheus"].url))
    client = Prometheus(known)
    source = PrometheusSeries(client, known)

    answer = source.read_curves(MEMORY, [JobSpan(WIDE, START, START + 4500)], points=400, until=until())

    counts = client.counters.snapshot().by_kind["curves"]
    curves = by_labels(answer.by_job[WIDE])
    assert {(f"n{node}",) for node in range(100)} == set(curves)
    assert {300} == {len(curve.times) for curve in curves.values()}
    assert {float(node) for node in range(100)} == {value for curve in curves.values() for value in curve.values}
    assert not answer.is_partial
    assert 1 <= counts.splits == counts.failures["too_much"]
    assert all(a < b for curve in curves.values() for a, b in itertools.pairwise(curve.times))


def test_what_is_too_much_even_in_parts_is_partial(servers: dict[str, Server]) -> None:
    source = open_source(servers["prometheus"])

    answer = source.read_curves(MEMORY, [JobSpan(HUGE, START, START + 150)], points=300, until=until())
    totals = source.read_totals(MEMORY, [JobSpan(HUGE, START, START + 150)], until=until())

    assert answer.is_partial
    assert not totals.is_partial
    assert 2600 == len(totals.by_job[HUGE])


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
SEVERAL_TEXTS = st.lists(ANY_TEXT, min_size=2, max_size=5, unique=True)
with_server = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@with_server
@given(text=ANY_TEXT)
def test_any_text_is_read_back_by_a_real_parser(server: Server, text: str) -> None:
    # Two labels that are not there, joined: what is between them is all there is.
    (sample,) = server.query(f'label_join(vector(1), "found", {quote(text)}, "nothing_a", "nothing_b")')

    assert {"found": text} == sample.labels


@with_server
@given(texts=SEVERAL_TEXTS)
def test_pattern_matches_its_texts_and_no_other(servers: dict[str, Server], texts: list[str]) -> None:
    pattern = quote_regex(texts[1:])

    matched = []
    for text in texts:
        joined = f'label_join(vector(1), "found", {quote(text)}, "nothing_a", "nothing_b")'
        (sample,) = servers["prometheus"].query(f'label_replace({joined}, "is_hit", "yes", "found", {pattern})')
        matched.append(("is_hit" in sample.labels, bool(match_in_victoria(servers["victoria"], joined, pattern))))

    assert [(False, False), *((True, True) for _ in texts[1:])] == matched


def match_in_victoria(server: Server, series: str, pattern: str) -> list[Sample]:
    # Its label_replace looks for the pattern anywhere in the text; this function is as strict as a selector.
    return server.query(f'label_match({series}, "found", {pattern})')


@with_server
@given(text=ANY_TEXT)
def test_text_in_a_selector_stays_one_value(servers: dict[str, Server], text: str) -> None:
    def formatted(value: str) -> str:
        wanted = SeriesQuery(metric="jobs_threads", how=Aggregation.MEAN, by=(), where=(("state", value),))
        query = curves_expression(wanted, [1, 2], window_seconds=60)
        told: str = json.loads(servers["prometheus"].get("/api/v1/format_query", query=query))["data"]
        # Where it breaks lines depends on their length.
        return "".join(line.strip() for line in told.split("\n"))

    before, after = formatted("harmless").split('"harmless"')
    hostile = formatted(text)

    assert hostile.startswith(before)
    assert hostile.endswith(after)
    assert re.fullmatch(r'"(?:[^"\\]|\\.)*"', hostile[len(before) : len(hostile) - len(after)])
