# SPDX-License-Identifier: Apache-2.0
"""Whatever an engine of time series answers while it fails, all jobs have their numbers after it is back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.core.clock import Clock
from slurmscope.http.client.address import parse_address
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.prometheus.client import Prometheus
from slurmscope.prometheus.series import PrometheusSeries
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.reporter.measure import BATCH_JOBS
from slurmscope.reporter.reporter import Reporter
from slurmscope.reporter.retention import ReporterSettings
from slurmscope.reports.make import ReportMaker
from slurmscope.reports.sources import open_archive
from tests.fakes.prometheus_server import ReceivedQuery, failure
from tests.fakes.reporting import FakeAccounting
from tests.fakes.reports import START, make_record
from tests.fakes.scripted_server import http_answer, scripted_server
from tests.fakes.series_engine import (
    CPU_SECONDS,
    FAILURES,
    LIMIT_JOBS,
    LIMITS,
    Answer,
    FakeEngine,
    always,
    empty,
    partial,
    whole,
)

pytestmark = [pytest.mark.scaling, pytest.mark.no_cover]

DAY = 86400
JOBS = BATCH_JOBS + 20
"""More than one query is about."""
FIRST = 1000
"""ID of the first of the jobs that end while the engine fails."""


class Site:
    """Hold a reporter, an archive and an engine; the clock stands until a test moves it."""

    def __init__(self, url: str, folder: Path, engine: FakeEngine) -> None:
        self.now = START + 20_000.0
        self.engine = engine
        running = make_record(1, state="RUNNING", end_seconds=None, cpu_seconds=None)
        self.accounting = FakeAccounting([running, *(make_record(number, cpu_seconds=None) for number in (2, 3, 4))])
        self.archive: SqlArchive = open_archive(ArchiveSettings(url=f"sqlite:///{folder}/archive.db"))
        settings = PrometheusSettings(url=parse_address(url))
        series = PrometheusSeries(Prometheus(settings, sleep=lambda _: None), settings)
        self.reporter = Reporter(
            self.accounting,
            ReportMaker(series, wall_clock=lambda: self.now, timeout_seconds=600.0),
            self.archive,
            Checkpoints(self.archive.database),
            ReporterSettings(),
            cluster="lab",
            clock=Clock(wall=lambda: self.now, monotonic=lambda: self.now),
        )

    def end_jobs(self, count: int) -> None:
        """Let jobs end."""
        self.now += 3600
        end = int(self.now) - 600
        self.accounting.records += [
            make_record(FIRST + number, cpu_seconds=None, start_seconds=end - 7200, end_seconds=end)
            for number in range(count)
        ]

    def measured(self) -> list[float | None]:
        """Return the CPU time of each of the many jobs that is archived."""
        numbers = range(FIRST, FIRST + JOBS)
        reports = [report for number in numbers for report in self.archive.find(EVERYTHING, number)]
        return [report.summary.cpu.time.used for report in reports]


@pytest.fixture
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    engine = FakeEngine()
    with scripted_server(engine.handle) as url:
        made = Site(url, tmp_path, engine)
        made.reporter.work()
        assert (3, "") == (made.reporter.progress.jobs_archived, made.reporter.progress.problem)
        made.end_jobs(getattr(request, "param", JOBS))
        yield made
        made.archive.close()


@pytest.mark.parametrize("fails", FAILURES.values(), ids=FAILURES)
def test_jobs_are_archived_at_once_and_measured_when_a_failing_engine_is_back(site: Site, fails: Answer) -> None:
    site.engine.answer = fails
    for _ in range(3):
        site.reporter.work()
        assert [None] * JOBS == site.measured()
        assert JOBS == len(site.archive.incomplete_runs(cluster="lab"))
        site.now += 60
    assert bool(site.reporter.progress.series_problem) == (fails is not empty)

    site.engine.answer = whole
    for _ in range(3):
        site.now += 600
        site.reporter.work()
    assert [CPU_SECONDS] * JOBS == site.measured()
    assert {} == site.archive.incomplete_runs(cluster="lab")


@pytest.mark.parametrize("name", ["Mimir chunks", "Thanos", "VictoriaMetrics memory", "too slow"])
def test_engine_with_limits_is_queried_for_fewer_jobs(site: Site, name: str) -> None:
    site.engine.answer = LIMITS[name]
    site.reporter.work()

    assert [CPU_SECONDS] * JOBS == site.measured()
    assert LIMIT_JOBS < max(site.engine.sizes)


def test_jobs_of_a_time_without_prometheus_are_archived_at_once_and_tried_again_later(site: Site) -> None:
    """As after a night in which Prometheus did not run: the series of that time may or may not come."""
    site.engine.answer = lambda query, jobs: whole(query, [job for job in jobs if int(job) < FIRST])
    site.reporter.work()
    assert ([None] * JOBS, "") == (site.measured(), site.reporter.progress.problem)

    queries = len(site.engine.sizes)
    site.now += 60
    site.reporter.work()
    assert 1 == max(site.engine.sizes[queries:]), "jobs are not measured again in every round"
    site.engine.answer = whole
    site.now += 3600
    site.reporter.work()
    assert [CPU_SECONDS] * JOBS == site.measured()


@pytest.mark.parametrize("site", [10], indirect=True)
def test_jobs_are_not_measured_again_for_ever(site: Site) -> None:
    site.engine.answer = lambda query, jobs: whole(query, [job for job in jobs if int(job) < FIRST])
    site.reporter.work()
    hours = []
    for hour in range(0, 9 * 24, 6):
        before = len(site.engine.sizes)
        site.now += 6 * 3600
        site.reporter.work()
        if max(site.engine.sizes[before:]) > 1:
            hours.append(hour)

    assert len(hours) <= 12
    assert max(hours) <= 7 * 24


@pytest.mark.parametrize("site", [10], indirect=True)
def test_jobs_that_never_get_their_numbers_do_not_delay_those_of_others(site: Site) -> None:
    """As where samples of one job arrive late, days after jobs of which none will."""
    lost = {str(FIRST + number) for number in range(10)}
    site.engine.answer = lambda query, jobs: whole(query, [job for job in jobs if job not in lost])
    for _ in range(10):
        site.now += 6 * 3600
        site.reporter.work()
    late = FIRST + 50
    site.now += 600
    end = int(site.now) - 600
    site.accounting.records.append(make_record(late, cpu_seconds=None, start_seconds=end - 7200, end_seconds=end))
    lost.add(str(late))
    site.reporter.work()
    assert [None] == [report.summary.cpu.time.used for report in site.archive.find(EVERYTHING, late)]

    lost.discard(str(late))
    tries = 0
    for _ in range(3):
        site.now += 3600
        site.engine.queried.clear()
        site.reporter.work()
        tries += str(FIRST) in site.engine.queried
    assert [CPU_SECONDS] == [report.summary.cpu.time.used for report in site.archive.find(EVERYTHING, late)]
    assert tries <= 1, "the others are not measured again each time"


def _rejected_by_second_storage(query: ReceivedQuery, jobs: list[str]) -> bytes:
    warning = "remote_read: remote server http://lts/read returned http status 400 Bad Request: exceeded sample limit"
    return partial({"warnings": [warning]})(query, jobs)


@pytest.mark.parametrize(
    "fails",
    [
        always(failure(422, "execution", "expanding series: something new")),
        always(failure(500, "execution", "expanding series: something new")),
        always(http_answer(502, b"<html>502 Bad Gateway</html>")),
        always(http_answer(503, b"upstream connect error or disconnect/reset before headers")),
        _rejected_by_second_storage,
    ],
    ids=["422", "500", "502", "503", "warning"],
)
@pytest.mark.parametrize("site", [10], indirect=True)
def test_one_job_for_which_alone_the_engine_fails_costs_its_own_numbers_only(site: Site, fails: Answer) -> None:
    bad_queries = 0

    def without_one(query: ReceivedQuery, jobs: list[str]) -> bytes:
        nonlocal bad_queries
        if str(FIRST + 3) not in jobs:
            return whole(query, jobs)
        bad_queries += 1
        return fails(query, jobs)

    site.engine.answer = without_one
    site.reporter.work()
    assert ({CPU_SECONDS: 9, None: 1}, "") == (Counter(site.measured()), site.reporter.progress.problem)

    for _ in range(3):
        bad_queries = 0
        site.now += 60
        site.reporter.work()
    assert 0 == bad_queries, "it is not measured again in every round"

    site.engine.answer = whole
    site.now += 3600
    site.reporter.work()
    assert [CPU_SECONDS] * 10 == site.measured()


def test_jobs_for_which_the_engine_fails_do_not_keep_later_ones_from_being_measured_again(site: Site) -> None:
    """As with Mimir, which answers 500 for a time of which it has lost a block, for as long as it is lost."""
    site.engine.answer = lambda query, jobs: whole(query, [job for job in jobs if int(job) < FIRST])
    site.reporter.work()
    assert [None] * JOBS == site.measured()
    lost = {str(FIRST + number) for number in range(BATCH_JOBS)}

    def without_block(query: ReceivedQuery, jobs: list[str]) -> bytes:
        is_lost = not lost.isdisjoint(jobs)
        return failure(500, "internal", "some blocks were not queried") if is_lost else whole(query, jobs)

    site.engine.answer = without_block
    site.now += 3600
    for _ in range(3):
        site.now += 60
        site.reporter.work()
    assert {None: BATCH_JOBS, CPU_SECONDS: JOBS - BATCH_JOBS} == Counter(site.measured())


@pytest.mark.parametrize("site", [BATCH_JOBS], indirect=True)
def test_jobs_that_fail_in_every_round_do_not_keep_others_from_being_measured_again(site: Site) -> None:
    bad, late = {str(FIRST + number) for number in range(BATCH_JOBS)}, {str(FIRST + BATCH_JOBS)}
    site.engine.answer = lambda query, jobs: whole(query, [job for job in jobs if int(job) < FIRST])
    site.reporter.work()
    assert [None] * BATCH_JOBS == site.measured()

    def answer(query: ReceivedQuery, jobs: list[str]) -> bytes:
        has_failed = not bad.isdisjoint(jobs)
        return (
            failure(500, "internal", "lost") if has_failed else whole(query, [job for job in jobs if job not in late])
        )

    def end(job: int) -> None:
        end_seconds = int(site.now) - 300
        times = {"start_seconds": end_seconds - 7200, "end_seconds": end_seconds}
        site.accounting.records.append(make_record(job, cpu_seconds=None, **times))

    site.engine.answer = answer
    site.now += 600
    end(FIRST + BATCH_JOBS)
    site.reporter.work()
    assert BATCH_JOBS + 1 == len(site.archive.incomplete_runs(cluster="lab"))
    late.clear()
    site.now += 3600
    for number in range(4):
        site.now += 60
        end(FIRST + 500 + number)
        end(FIRST + 600 + number)
        bad.add(str(FIRST + 600 + number))
        site.engine.queried.clear()
        site.reporter.work()
    (report,) = site.archive.find(EVERYTHING, FIRST + BATCH_JOBS)
    assert CPU_SECONDS == report.summary.cpu.time.used
    assert str(FIRST) not in site.engine.queried, "older ones are not measured again in every round"


def test_only_job_of_a_period_for_which_the_engine_fails_does_not_delay_later_ones(site: Site) -> None:
    """As in the backlog of a night, which is read a few hours at a time."""
    site.reporter.work()
    site.now += 16 * 3600
    ends = [int(site.now) - 15 * 3600, *(int(site.now) - 3600 - 60 * number for number in range(20))]
    site.accounting.records += [
        make_record(FIRST + 500 + number, cpu_seconds=None, start_seconds=end - 3000, end_seconds=end)
        for number, end in enumerate(ends)
    ]

    def fails_for_first(query: ReceivedQuery, jobs: list[str]) -> bytes:
        is_bad = str(FIRST + 500) in jobs
        return failure(500, "execution", "corrupt chunk") if is_bad else whole(query, jobs)

    site.engine.answer = fails_for_first
    site.reporter.work()
    reports = [report for number in range(21) for report in site.archive.find(EVERYTHING, FIRST + 500 + number)]
    assert [None, *[CPU_SECONDS] * 20] == [report.summary.cpu.time.used for report in reports]
    assert reports[0].is_incomplete


@pytest.mark.parametrize("site", [0], indirect=True)
def test_running_job_for_which_alone_the_engine_fails_does_not_keep_others_from_being_measured_again(
    site: Site,
) -> None:
    start = int(site.now) - 1800
    site.accounting.records += [
        make_record(FIRST + number, state="RUNNING", end_seconds=None, cpu_seconds=None, start_seconds=start)
        for number in range(JOBS)
    ]
    site.reporter.work()
    bad = str(FIRST + 7)

    def without_one(query: ReceivedQuery, jobs: list[str]) -> bytes:
        return failure(500, "execution", "corrupt chunk") if bad in jobs else whole(query, jobs)

    site.engine.answer = without_one
    site.now += 60
    site.reporter.work()
    reports = [report for number in range(JOBS) for report in site.archive.find(EVERYTHING, FIRST + number)]
    assert [bad] == [str(report.record.job_id) for report in reports if report.made_seconds < site.now]
    assert [CPU_SECONDS] * JOBS == site.measured()

    for seconds, is_queried in ((60, False), (3600, True)):
        site.engine.queried.clear()
        site.now += seconds
        site.reporter.work()
        assert is_queried == (bad in site.engine.queried)
