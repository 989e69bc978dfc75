# SPDX-License-Identifier: Apache-2.0
"""Whatever a time series server did for days, in the end all jobs have the numbers of a server that never failed.

Servers fail at random, and the reporter is restarted meanwhile. Some failures are silent: stores are missing, as with
Thanos, which reports errors before it drops a store, and nothing when it has it again. The failures of a test are those
of its seed.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.core.clock import Clock
from slurmscope.core.errors import ServerError, ServerRefused, ServerTimedOut
from slurmscope.http.client.address import parse_address
from slurmscope.http.client.request import HttpAnswer
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.prometheus.query_counters import QueryCounters
from slurmscope.prometheus.responses import Reply, parse_answer
from slurmscope.prometheus.series import PrometheusSeries
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.reporter.reporter import Reporter
from slurmscope.reporter.retention import ReporterSettings
from slurmscope.reports.make import ReportMaker
from slurmscope.reports.sources import open_archive
from tests.fakes.reporting import FakeAccounting
from tests.fakes.reports import START, make_record
from tests.fakes.series_engine import MESSAGES

NODES = ("n1", "n2", "n3", "n4")
FAILING_ROUNDS = 10
HOUR = 3600.0
_JOB = re.compile(r'slurm_job=~?"([0-9|]+)"')
_METRIC = re.compile(r"\b(jobs_[a-z_]+)\{")
_MEASURED = {"jobs_cpu_seconds_total", "jobs_memory_anon_bytes"}


def _refused(status: int, error: str, kind: str = "execution") -> HttpAnswer:
    return HttpAnswer(status=status, body=json.dumps({"status": "error", "errorType": kind, "error": error}).encode())


def _raise(error: Exception) -> HttpAnswer:
    raise error


LOUD: list[Callable[[bytes], HttpAnswer]] = [
    *(
        lambda body, more=more: HttpAnswer(status=200, body=json.dumps({**json.loads(body), **more}).encode())
        for more in MESSAGES["partial"].values()
    ),
    lambda body: HttpAnswer(status=200, body=body[: len(body) // 2]),
    lambda _: HttpAnswer(status=200, body=b"<html>Sign in</html>"),
    lambda _: HttpAnswer(status=302, body=b""),
    lambda _: HttpAnswer(status=401, body=b"no org id"),
    lambda _: HttpAnswer(status=404, body=b"404 page not found"),
    lambda _: HttpAnswer(status=504, body=b"<html>504 Gateway Time-out</html>"),
    lambda _: HttpAnswer(status=502, body=b""),
    lambda _: _refused(422, "expanding series: something new"),
    lambda _: _refused(422, MESSAGES["limits"]["VictoriaMetrics memory"]),
    lambda _: _refused(429, "too many outstanding requests"),
    lambda _: _refused(500, "too many open files"),
    lambda _: _refused(503, "query timed out in expression evaluation", "timeout"),
    lambda _: _raise(ServerTimedOut("timed out before its answer was complete")),
    lambda _: _raise(ServerRefused("it is unreachable: Connection refused")),
]
"""What a failing server answers instead of series, of which it has some."""


def whole_answer(body: bytes) -> HttpAnswer:
    return HttpAnswer(status=200, body=body)


def whole_stores() -> set[str]:
    return {*NODES}


@dataclass
class FlakyClient:
    """Have CPU time and memory of jobs on their nodes; ``answer`` changes what a query returns."""

    jobs: dict[int, JobRecord]
    stores: Callable[[], set[str]] = whole_stores
    """Nodes whose series a query finds."""
    answer: Callable[[bytes], HttpAnswer] = whole_answer
    bad_job: int = 0
    """Every query about this job fails."""
    counters: QueryCounters = field(default_factory=QueryCounters)

    def query_instant(self, query: str, at_seconds: float, *, kind: str, until: float) -> Reply:
        found = [{"metric": labels, "value": [at_seconds, str(7000 + number)]} for labels, number in self._find(query)]
        return self._send("vector", found)

    def query_range(
        self, query: str, times: tuple[float, float], step_seconds: float, *, kind: str, until: float
    ) -> Reply:
        steps = [times[0] + step_seconds * step for step in range(round((times[1] - times[0]) / step_seconds) + 1)]
        found = [
            {"metric": labels, "values": [(time, str(number + time % 7)) for time in self._within(labels, steps)]}
            for labels, number in self._find(query)
        ]
        return self._send("matrix", found)

    def _find(self, query: str) -> Iterator[tuple[dict[str, str], int]]:
        stores = self.stores()
        if not _MEASURED & {*_METRIC.findall(query)}:
            return
        jobs = {int(text) for group in _JOB.findall(query) for text in group.split("|")}
        if self.bad_job in jobs:
            raise ServerError("it answered 500: corrupt chunk")
        for job in sorted(jobs):
            for node in self.jobs[job].nodes:
                if node in stores:
                    yield {"slurm_job": str(job), "slurm_node": node}, job * 10 + NODES.index(node)

    def _within(self, labels: dict[str, str], times: list[float]) -> list[float]:
        job = self.jobs[int(labels["slurm_job"])]
        end = float("inf") if job.end_seconds is None else job.end_seconds + 60
        return [time for time in times if (job.start_seconds or 0) < time <= end]

    def _send(self, kind: str, result: Sequence[Mapping[str, object]]) -> Reply:
        body = json.dumps({"status": "success", "data": {"resultType": kind, "result": result}}).encode()
        return parse_answer(self.answer(body))


class Site:
    """Hold a reporter, an archive and a server; the clock stands until a test moves it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = START + 20_000.0
        self.client = FlakyClient({})
        self.accounting = FakeAccounting([])
        self.archive: SqlArchive = open_archive(ArchiveSettings(url=f"sqlite:///{folder}/archive.db"))
        self.restart()

    def restart(self) -> None:
        maker = ReportMaker(self.series(self.client), wall_clock=lambda: self.now, timeout_seconds=600.0)
        clock = Clock(wall=lambda: self.now, monotonic=lambda: self.now)
        parts = (self.archive, Checkpoints(self.archive.database), ReporterSettings())
        self.reporter = Reporter(self.accounting, maker, *parts, cluster="lab", clock=clock)

    def series(self, client: FlakyClient) -> PrometheusSeries:
        return PrometheusSeries(client, PrometheusSettings(url=parse_address("http://localhost:9090"), max_queries=1))

    def end_jobs(self, count: int) -> None:
        """Let jobs end that ran for a while on some of the nodes."""
        end = int(self.now) - 600
        for _ in range(count):
            number = 100 + len(self.client.jobs)
            nodes = tuple(sorted(self.random.sample(NODES, self.random.randint(1, 3))))
            start = end - self.random.choice((900, 3600, 40_000))
            times = {"submit_seconds": start - 60, "start_seconds": start, "end_seconds": end}
            record = make_record(number, nodes=nodes, node_count=len(nodes), cpu_seconds=None, **times)
            self.client.jobs[number] = record
            self.accounting.records.append(record)

    def fail(self) -> None:
        """Choose how the server fails in this round."""
        chance, failure = self.random.choice((0.05, 0.3, 1.0)), self.random.choice((None, *LOUD))
        lost = {*self.random.sample(NODES, self.random.randint(0, 4))}
        # Apart from the other choices, because how many queries there are depends on threads.
        answers = random.Random(self.random.random())
        queries_left = self.random.choice((20, 200, 10**9))

        def answer(body: bytes) -> HttpAnswer:
            chosen = failure or answers.choice(LOUD)
            return chosen(body) if answers.random() < chance else HttpAnswer(status=200, body=body)

        def stores() -> set[str]:
            nonlocal queries_left
            queries_left -= 1
            return {*NODES} - lost if queries_left > 0 else {*NODES}

        kinds = self.random.choice(("loud", "silent", "both"))
        self.client.stores = whole_stores if kinds == "loud" else stores
        self.client.answer = whole_answer if kinds == "silent" else answer

    def recover(self) -> None:
        """Let the server have everything again."""
        self.client.stores, self.client.answer = whole_stores, whole_answer

    def expected(self) -> list[JobReport]:
        """Return the reports by a server that never failed."""
        maker = ReportMaker(self.series(FlakyClient(self.client.jobs)), wall_clock=lambda: self.now)
        return maker.make([*self.client.jobs.values()])


@pytest.fixture
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    made = Site(tmp_path, request.param)
    yield made
    made.archive.close()


@pytest.mark.no_cover
@pytest.mark.parametrize("site", range(4), indirect=True)
def test_all_jobs_have_their_numbers_in_the_end(site: Site) -> None:
    site.end_jobs(12)
    site.reporter.work()
    assert 12 == site.reporter.progress.jobs_archived
    for _ in range(FAILING_ROUNDS):
        site.now += site.random.choice((60, 600, HOUR, 6 * HOUR, 26 * HOUR))
        site.end_jobs(site.random.randint(0, 12))
        site.fail()
        if site.random.random() < 0.3:
            site.restart()
        site.reporter.work()
    site.recover()
    for _ in range(8):
        site.now += 7 * HOUR
        site.reporter.work()

    for expected in site.expected():
        (report,) = site.archive.find(EVERYTHING, expected.record.job_id)
        assert (expected.summary.nodes, expected.summary, ()) == (report.summary.nodes, report.summary, report.missing)
        assert expected.charts == report.charts
