# SPDX-License-Identifier: Apache-2.0
"""Several clusters share an archive: each is read at its own pace, and none loses jobs to another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from sqlalchemy import text

from slurmscope.archive import engine
from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.election import Election, record_name
from slurmscope.archive.interface import JobFilter
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.core.clock import Clock
from slurmscope.core.errors import ArchiveError, CommandTimedOut
from slurmscope.jobs.record import JobAccounting, JobRecord
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.reporter import reporters as reporters_module
from slurmscope.reporter.reporter import CLUSTER_CHECKPOINT, ReporterProgress
from slurmscope.reporter.reporters import LeaderArchive, OpenLeaderArchive, Reporters
from slurmscope.reporter.retention import ReporterSettings
from slurmscope.reports.make import ReportMaker
from slurmscope.reports.sources import open_archive
from tests.contracts.election import until_elected
from tests.fakes.no_election import open_alone
from tests.fakes.reporting import FakeAccounting, FakeSeries
from tests.fakes.reports import START, make_record, make_report

HOUR = 3600
JOBS = 120
"""Jobs of each cluster, with the same IDs in all of them; one ends every six minutes."""


class Clusters(FakeAccounting):
    """Hold the accounting of several clusters, each of which may fail alone."""

    def __init__(self, **members: FakeAccounting) -> None:
        super().__init__()
        self.members = dict(members)

    def clusters(self) -> tuple[str, ...]:
        if self.error:
            raise self.error
        return tuple(self.members)

    def of(self, cluster: str) -> FakeAccounting:
        return self.members[cluster]


class Site:
    """Hold a portal's reporters, with a clock that differs from that of others."""

    def __init__(self, archive: SqlArchive, accounting: JobAccounting, *, ahead_seconds: float = 0.0) -> None:
        self.now = float(START)
        self.series = FakeSeries()
        clock = Clock(wall=lambda: self.now + ahead_seconds, monotonic=lambda: self.now)
        maker = ReportMaker(self.series, wall_clock=clock.wall)
        alone = open_alone(archive)
        self.reporters = Reporters(accounting, maker, alone, ReporterSettings(), clock=clock)

    def work(self, now: float) -> None:
        self.now = now
        for reporter in self.reporters.find():
            reporter.work()

    def measured(self) -> list[int]:
        """Return the jobs that were measured, as often as they were."""
        return sorted(job for metric, jobs in self.series.queried if metric == "jobs_busy_cores" for job in jobs)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[SqlArchive]:
    made = open_archive(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db"))
    yield made
    made.close()


def jobs_of(cluster: str, *, ahead_seconds: int = 0) -> list[JobRecord]:
    """Return jobs as the accounting of a cluster has them whose clock is ahead."""
    ends = [START + 360 * number + ahead_seconds for number in range(JOBS)]
    return [
        make_record(1 + number, cluster=cluster, submit_seconds=end - 900, start_seconds=end - 600, end_seconds=end)
        for number, end in enumerate(ends)
    ]


def archived(archive: SqlArchive, cluster: str) -> list[int]:
    rows = archive.list_jobs(EVERYTHING, JobFilter(cluster=cluster), limit=1000).rows
    return sorted(row.job_id for row in rows)


def test_no_job_is_lost_or_measured_twice_if_clusters_are_read_at_different_times(archive: SqlArchive) -> None:
    everything = [*range(1, JOBS + 1)]
    alpha = FakeAccounting(jobs_of("alpha"))
    # The records of the second cluster arrive half a day later than those of the first, from a clock that is two hours
    # behind; its portal's clock is six hours ahead, and its slurmdbd is unreachable for 40 hours.
    late = jobs_of("beta", ahead_seconds=-2 * HOUR)
    beta = FakeAccounting(error=CommandTimedOut(["sacct"], "was killed"))
    first = Site(archive, Clusters(alpha=alpha))
    second = Site(archive, Clusters(beta=beta), ahead_seconds=6.0 * HOUR)

    for hour in range(0, 60, 4):
        now = START + hour * HOUR
        if hour == 40:
            beta.error = None
        beta.records = [record for record in late if (record.end_seconds or 0) + 12 * HOUR < now]
        first.work(now)
        second.work(now)

    assert (everything, everything) == (archived(archive, "alpha"), archived(archive, "beta"))
    assert (everything, everything) == (first.measured(), second.measured())
    assert (0, 10) == (first.reporters.progress.failures, second.reporters.progress.failures)


def test_cluster_that_cannot_be_read_costs_no_other(archive: SqlArchive) -> None:
    beta = FakeAccounting(jobs_of("beta"), error=CommandTimedOut(["sacct"], "was killed"))
    site = Site(archive, Clusters(alpha=FakeAccounting(jobs_of("alpha")), beta=beta))

    site.work(START + 20 * HOUR)
    progress = site.reporters.progress
    assert (JOBS, 1, 1, "beta: was killed") == (
        progress.jobs_archived, progress.rounds, progress.failures, progress.problem,
    )  # fmt: skip
    assert progress.read_until_seconds is None

    beta.error = None
    site.work(START + 21 * HOUR)
    progress = site.reporters.progress
    assert (2 * JOBS, "") == (progress.jobs_archived, progress.problem)
    assert START + 21 * HOUR - 120 == progress.read_until_seconds
    known = Checkpoints(archive.database).list_checkpoints(CLUSTER_CHECKPOINT)
    assert {"alpha": str(START + 21 * HOUR - 120), "beta": str(START + 21 * HOUR - 120)} == known


def test_clusters_that_cannot_be_listed_are_read_as_before(archive: SqlArchive) -> None:
    accounting = Clusters(alpha=FakeAccounting(jobs_of("alpha")))
    site = Site(archive, accounting)
    accounting.error = CommandTimedOut(["scontrol"], "was killed")
    site.work(START)
    assert (0, 1, "was killed") == (
        site.reporters.progress.rounds, site.reporters.progress.failures, site.reporters.progress.problem,
    )  # fmt: skip
    accounting.error = None
    site.work(START + 10 * HOUR)
    accounting.error = CommandTimedOut(["scontrol"], "was killed")
    site.work(START + 20 * HOUR)
    assert [*range(1, JOBS + 1)] == archived(archive, "alpha")


def test_more_clusters_than_reporters_are_named(archive: SqlArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporters_module, "MAX_CLUSTERS", 1)
    accounting = Clusters(alpha=FakeAccounting())
    site = Site(archive, accounting)
    site.work(START)
    assert "" == site.reporters.progress.problem

    accounting.members["beta"] = FakeAccounting()
    site.work(START)
    assert ("alpha",) == site.reporters.clusters
    assert (
        "accounting has 2 clusters, but a portal archives at most 1; not archived: beta; select"
        in site.reporters.progress.problem
    )


def test_reporters_run_until_they_are_ended(archive: SqlArchive) -> None:
    accounting = Clusters(alpha=FakeAccounting(jobs_of("alpha")))
    alone = open_alone(archive)
    parts = (ReportMaker(None), alone, ReporterSettings(interval=0.01))
    reporters = Reporters(accounting, *parts, clock=Clock(wall=lambda: START + 20.0 * HOUR))
    until = time.monotonic() + 60
    with reporters.running():
        while reporters.progress.jobs_archived < JOBS and time.monotonic() < until:
            time.sleep(0.01)
        # One that is added later is read too, and one that was removed no longer.
        accounting.members = {"beta": FakeAccounting(jobs_of("beta"))}
        while reporters.progress.jobs_archived < 2 * JOBS and time.monotonic() < until:
            time.sleep(0.01)
        alpha = reporters.find()[0]
        assert "beta" == alpha.cluster
    assert 2 * JOBS == reporters.progress.jobs_archived
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("reporter")]


def open_elected(archive: SqlArchive) -> OpenLeaderArchive:
    """Open the archive for a portal that is one of several."""

    def open_for(role: str) -> LeaderArchive:
        election = Election(archive.database, role)
        return LeaderArchive(election, SqlArchive(election.database), Checkpoints(election.database))

    return open_for


class Portal:
    """Run the reporters of one portal of several, with series of its own by which its work is known."""

    def __init__(self, archive: SqlArchive, accounting: JobAccounting, **settings: float) -> None:
        self.series = FakeSeries()
        self.now = START + 20.0 * HOUR
        maker = ReportMaker(self.series, wall_clock=lambda: self.now)
        clock = Clock(wall=lambda: self.now)
        given = ReporterSettings(interval=0.01, **settings)  # type: ignore[arg-type]
        self.reporters = Reporters(accounting, maker, open_elected(archive), given, clock=clock)


def wait_for(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_one_of_two_portals_archives_and_the_other_takes_over(
    archive: SqlArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporters_module, "ELECTION_SECONDS", 0.05)
    alpha = FakeAccounting(jobs_of("alpha"))
    first, second = (Portal(archive, Clusters(alpha=alpha)) for _ in range(2))
    with ExitStack() as ours:
        with first.reporters.running():
            wait_for(lambda: first.reporters.progress.jobs_archived == JOBS)
            ours.enter_context(second.reporters.running())
            wait_for(lambda: second.reporters.elected)
            before = first.reporters.progress.rounds
            wait_for(lambda: first.reporters.progress.rounds > before + 3)
            assert ({"alpha": True}, {"alpha": False}) == (first.reporters.elected, second.reporters.elected)
            assert ReporterProgress() == second.reporters.progress
        second.now += HOUR
        alpha.records.append(make_record(1000, cluster="alpha", end_seconds=START + 20 * HOUR))
        wait_for(lambda: second.reporters.progress.jobs_archived)

        assert {"alpha": True} == second.reporters.elected
    assert [*range(1, JOBS + 1), 1000] == archived(archive, "alpha")
    assert [1000] == sorted({job for _, jobs in second.series.queried for job in jobs})


def test_portal_that_fails_for_long_lets_another_archive(archive: SqlArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporters_module, "ELECTION_SECONDS", 0.05)
    monkeypatch.setattr(reporters_module, "FAILING_SECONDS", 0.2)
    blind = FakeAccounting(jobs_of("alpha"))
    blind.error = CommandTimedOut("sacct", "did not answer")
    first = Portal(archive, Clusters(alpha=blind))
    second = Portal(archive, Clusters(alpha=FakeAccounting(jobs_of("alpha"))))
    with first.reporters.running():
        wait_for(lambda: first.reporters.progress.failures)
        with second.reporters.running():
            wait_for(lambda: second.reporters.progress.jobs_archived == JOBS)

            assert ({"alpha": False}, {"alpha": True}) == (first.reporters.elected, second.reporters.elected)


def test_portal_that_no_longer_reads_a_cluster_lets_another_archive(
    archive: SqlArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a cluster moves to another slurmdbd, which another portal of the archive reads."""
    monkeypatch.setattr(reporters_module, "ELECTION_SECONDS", 0.05)
    old = Clusters(alpha=FakeAccounting(jobs_of("alpha")), beta=FakeAccounting())
    first = Portal(archive, old)
    second = Portal(archive, Clusters(beta=FakeAccounting(jobs_of("beta"))))
    second.now += HOUR  # the first may have read until its own time
    with first.reporters.running():
        wait_for(lambda: first.reporters.elected == {"alpha": True, "beta": True})
        with second.reporters.running():
            wait_for(lambda: second.reporters.elected)
            del old.members["beta"]
            wait_for(lambda: second.reporters.progress.jobs_archived == JOBS)
            assert ({"alpha": True}, {"beta": True}) == (first.reporters.elected, second.reporters.elected)


def test_success_between_failures_keeps_the_reporter(archive: SqlArchive) -> None:
    site = Site(archive, Clusters(alpha=(alpha := FakeAccounting(jobs_of("alpha")))))
    (reporter,) = site.reporters.find()
    found = []
    for error in (
        CommandTimedOut("sacct", "did not answer"),
        None,
        CommandTimedOut("sacct", "again"),
        CommandTimedOut("sacct", "again"),
    ):
        alpha.error = error
        reporter.work()
        found.append(reporter.has_failed_for(500.0))
        site.now += 600.0

    assert [False, False, False, True] == found


def test_reporter_that_was_replaced_says_nothing_of_its_failure(archive: SqlArchive) -> None:
    portal = Portal(archive, Clusters(alpha=FakeAccounting(jobs_of("alpha"))))
    (reporter,) = portal.reporters.find()
    with closing(Election(archive.database, "reporter of alpha")) as other:
        other.hold_lock()
        reporter.work()

    assert (1, "") == (reporter.progress.failures, portal.reporters.progress.problem)
    assert "elected" in reporter.progress.problem
    assert [] == archived(archive, "alpha")


def test_only_the_elected_process_deletes_old_rows(archive: SqlArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporters_module, "ELECTION_SECONDS", 0.05)
    archive.save(
        [make_report(make_record(1, submit_seconds=START - 400 * 24 * HOUR, end_seconds=START - 399 * 24 * HOUR))]
    )
    archive.save([make_report(make_record(2, submit_seconds=START + 19 * HOUR))])
    portal = Portal(archive, Clusters(), keep_jobs=30.0 * 24 * HOUR)
    other = Election(archive.database, "retention")
    other.hold_lock()
    with portal.reporters.running():
        time.sleep(0.3)
        assert [1, 2] == archived(archive, "lab")
        other.close()
        wait_for(lambda: archived(archive, "lab") == [2])


def test_portal_whose_deletions_fail_lets_another_delete(archive: SqlArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporters_module, "ELECTION_SECONDS", 0.05)
    archive.save([make_report(make_record(1))])
    tries: list[str] = []

    class Failing(SqlArchive):
        def prepare_weeks(self) -> None:
            tries.append("partitions")
            raise ArchiveError("the database was too slow")

    def stand_failing(role: str) -> LeaderArchive:
        election = Election(archive.database, role)
        return LeaderArchive(election, Failing(election.database), Checkpoints(election.database))

    kept = ReporterSettings(interval=0.01, keep_curves=0.0, keep_audit=0.0)
    reporters = Reporters(Clusters(), ReportMaker(None), stand_failing, kept)
    with reporters.running(), closing(Election(archive.database, "retention")) as other:
        wait_for(lambda: tries)
        until_elected(other)


def test_portal_of_an_earlier_release_lets_a_later_one_archive_and_delete(
    archive: SqlArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporters_module, "ELECTION_SECONDS", 0.05)
    monkeypatch.setattr(engine, "SCHEMA_SECONDS", 0.0)
    archive.save([make_report(make_record(1))])
    portal = Portal(archive, Clusters(alpha=FakeAccounting(jobs_of("alpha"))))
    retention, reporter = (archive.database.make_lock(record_name(role)) for role in ("retention", "reporter of alpha"))
    with portal.reporters.running():
        wait_for(lambda: portal.reporters.progress.rounds and retention.is_taken())
        with archive.database.writing() as connection:
            connection.execute(text("UPDATE slurmscope_schema SET version = 99"))
        # Long before rounds have failed for ten minutes, and before the next day of retention.
        wait_for(retention.hold)
        wait_for(reporter.hold)
    retention.release()
    reporter.release()
