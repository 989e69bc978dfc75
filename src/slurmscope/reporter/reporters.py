# SPDX-License-Identifier: Apache-2.0
"""Run one reporter for each cluster, each in a thread of its own: a cluster that cannot be read delays no other.

Deleting old rows concerns all clusters together, and is done separately. Several portals may share an archive: one of
them is elected for each cluster, and one for deleting. One that fails for long resigns: another may reach the servers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from slurmscope.core.clock import Clock, attempt, run_periodically
from slurmscope.core.errors import SourceError
from slurmscope.jobs.record import JobAccounting
from slurmscope.reporter.admin_comments import AdminComments
from slurmscope.reporter.reporter import Reporter, ReporterProgress
from slurmscope.reporter.retention import ReporterCheckpoints, ReporterSettings, Retention, RetentionTask
from slurmscope.reports.make import ReportMaker
from slurmscope.slurm.command import RunCommand

if TYPE_CHECKING:
    from slurmscope.archive.election import Election
    from slurmscope.archive.sql_archive import SqlArchive

ELECTION_SECONDS = 10.0
"""Interval between attempts to be elected; a process that was killed is replaced after at most this time."""
RESIGN_SECONDS = 1.5 * ELECTION_SECONDS
"""For how long a process that resigned lets others be elected: each of them tries once meanwhile."""
RETENTION, DIGESTS, STUCK_MAILS = "retention", "sender of digests", "sender of mails about stuck jobs"
REPORTER = "reporter of"
"""Names of roles; the name of the cluster is appended to that of a reporter."""
THINNED_POINTS = 60
"""Points of a thinned curve; each is a mean, for memory the maximum."""
_LONGEST_PAUSE_SECONDS = 1.0


class ElectedWork:
    """Work once in an interval, from the moment this process is elected until it is not."""

    def __init__(self, election: Election, interval_seconds: float, work: Callable[[], None]) -> None:
        """Take the work, and the interval between two starts of it."""
        self._election = election
        self._interval_seconds = interval_seconds
        self._work = work
        self._due_seconds = float("-inf")
        self.pause_seconds = min(interval_seconds, _LONGEST_PAUSE_SECONDS)
        """How often to call ``run_if_due``."""

    def run_if_due(self) -> None:
        """Work if it is due; wait briefly for the election, so that work starts as soon as this process is elected."""
        if not self._election.elected.wait(self.pause_seconds):
            self._due_seconds = float("-inf")
        elif time.monotonic() >= self._due_seconds:
            self._due_seconds = time.monotonic() + self._interval_seconds
            self._work()


FAILING_SECONDS = 600.0
"""After this time without a successful round, the process resigns, so that another portal can be elected."""
MAX_CLUSTERS = 64
"""Maximum number of clusters of one process; each has a thread."""


class LeaderArchive(NamedTuple):
    """An election for a role, and what the elected process writes to."""

    election: Election
    archive: SqlArchive
    checkpoints: ReporterCheckpoints


OpenLeaderArchive = Callable[[str], LeaderArchive]
"""Open the archive for the role of this name."""


class Reporters:
    """The reporters of all clusters that accounting reads; a new cluster gets one when it is found."""

    def __init__(
        self,
        accounting: JobAccounting,
        maker: ReportMaker,
        open_for: OpenLeaderArchive,
        settings: ReporterSettings,
        *,
        clock: Clock | None = None,
        run: RunCommand | None = None,
    ) -> None:
        """Take the parts of the reporters, and what opens the archive for a role; nothing is read yet.

        ``run`` runs a command of Slurm.
        """
        self._run = run if settings.admin_comment else None
        self._accounting = accounting
        self._maker, self._settings = maker, settings
        self._open_for = open_for
        self._clock = clock or Clock()
        self._interval_seconds = settings.interval
        self._reporters: dict[str, Reporter] = {}
        self._leaders: dict[str, LeaderArchive] = {}
        self._names: tuple[str, ...] = ()
        self._started: set[str] = set()
        self._own = ReporterProgress()
        self._loops = ExitStack()
        self._stopping = threading.Event()
        self._deleting = open_for(RETENTION)
        self.retention = make_retention(self._deleting.archive, self._deleting.checkpoints, settings, self._clock)

    @property
    def progress(self) -> ReporterProgress:
        """Return the progress of all clusters together: that of the slowest, and the problems of each."""
        elected = self.elected
        return join_progress([*self._reporters.values()], self._own, {name for name in elected if elected[name]})

    @property
    def elected(self) -> dict[str, bool]:
        """Return for each cluster whether this process is its reporter; not for those that were removed."""
        return {name: leader.election.elected.is_set() for name, leader in self._leaders.items() if name in self._names}

    @property
    def stopped_comments(self) -> dict[str, bool]:
        """Return for each cluster whether no AdminComment is written any more; nothing before the first one."""
        found = {reporter.cluster: reporter.comments for reporter in self._reporters.values()}
        known = {name: comments.is_stopped for name, comments in found.items() if comments and name in self._names}
        return {name: is_stopped for name, is_stopped in known.items() if is_stopped is not None}

    @property
    def clusters(self) -> tuple[str, ...]:
        """Return the clusters that were found; none before the first time."""
        return self._names

    def find(self) -> tuple[Reporter, ...]:
        """Return the reporters of the clusters that accounting has now, with new ones for new clusters."""
        try:
            found = self._accounting.clusters()
        except SourceError as error:
            self._own = replace(self._own, failures=self._own.failures + 1, problem=str(error))
            return tuple(self._reporters[name] for name in self._names)
        names = found[:MAX_CLUSTERS]
        self._own = replace(self._own, problem=_too_many(found))
        for name in names:
            if name not in self._reporters:
                leader = self._open_for(f"{REPORTER} {name}")
                self._leaders = {**self._leaders, name: leader}
                self._reporters = {**self._reporters, name: self._make(name, leader)}
        self._names = names
        return tuple(self._reporters[name] for name in names)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run every reporter periodically, and look for new clusters in between, until the block ends; only once."""
        self._loops.callback(self._deleting.election.close)
        every = self._interval_seconds
        with (
            self._loops,
            run_periodically("election", ELECTION_SECONDS, self._hold_locks, stopping=self._stopping),
            run_periodically("reporters", every, self._start_new, stopping=self._stopping),
        ):
            yield

    def _make(self, name: str, leader: LeaderArchive) -> Reporter:
        parts = (self._maker, leader.archive, leader.checkpoints, self._settings)
        accounting = self._accounting.of(name)
        comments = AdminComments(self._run, accounting.read_jobs, leader.checkpoints, name) if self._run else None
        return Reporter(accounting, *parts, cluster=name, clock=self._clock, comments=comments)

    def _start_new(self) -> None:
        for reporter in self.find():
            if reporter.cluster not in self._started:
                self._started.add(reporter.cluster)
                self._start(reporter, self._leaders[reporter.cluster].election)
        deleting = self._deleting.election
        if deleting.elected.is_set() and not self.retention.work():
            deleting.resign(RESIGN_SECONDS)

    def _start(self, reporter: Reporter, election: Election) -> None:
        self._loops.callback(election.close)
        work = ElectedWork(election, self._interval_seconds, partial(self._work, reporter, election))
        name = f"reporter {reporter.cluster}"
        self._loops.enter_context(run_periodically(name, work.pause_seconds, work.run_if_due, stopping=self._stopping))
        attempt("election", election.hold_lock)

    def _hold_locks(self) -> None:
        """Take part in all elections, but for those of clusters that were removed: another portal may read these."""
        attempt("election", self._deleting.election.hold_lock)
        for name, (election, *_) in self._leaders.items():
            if name in self._names:
                attempt("election", election.hold_lock)
            elif election.elected.is_set():
                attempt("election", partial(election.resign, 0.0))

    def _work(self, reporter: Reporter, election: Election) -> None:
        """Do one round of a reporter, unless its cluster was removed; if rounds fail, let another process try."""
        if reporter.cluster not in self._names:
            return
        try:
            reporter.work()
        finally:
            if reporter.has_failed_for(FAILING_SECONDS):
                election.resign(RESIGN_SECONDS)


def _too_many(clusters: Sequence[str]) -> str:
    """Return a message if there are more clusters than reporters; else an empty text."""
    if len(clusters) <= MAX_CLUSTERS:
        return ""
    left_out = clusters[MAX_CLUSTERS:]
    more = f" and {len(left_out) - 3} more" if len(left_out) > 3 else ""
    return (
        f"accounting has {len(clusters)} clusters, but a portal archives at most {MAX_CLUSTERS}; not archived: "
        f"{', '.join(left_out[:3])}{more}; select clusters with accounting.clusters"
    )


def join_progress(reporters: Sequence[Reporter], own: ReporterProgress, elected: Set[str]) -> ReporterProgress:
    """Add up the progress of several reporters; a problem names its cluster if there are several.

    How far a cluster was read, and why not further, is known by the process that is elected for it.
    """
    each = {reporter.cluster: reporter.progress for reporter in reporters}
    ours = {name: found for name, found in each.items() if name in elected}
    prefixes = {name: f"{name}: " if len(each) > 1 else "" for name in ours}
    problems = [prefixes[name] + found.problem for name, found in ours.items() if found.problem]
    series_problems = [prefixes[name] + found.series_problem for name, found in ours.items() if found.series_problem]
    known = [found.read_until_seconds for found in ours.values() if found.read_until_seconds is not None]
    return ReporterProgress(
        jobs_archived=sum(found.jobs_archived for found in each.values()),
        rounds=sum(found.rounds for found in each.values()),
        failures=own.failures + sum(found.failures for found in each.values()),
        # One that was never read has no time yet, so neither have all together.
        read_until_seconds=min(known) if known and len(known) == len(ours) else None,
        problem="; ".join(filter(None, (own.problem, *problems))),
        series_problem="; ".join(series_problems),
    )


def make_retention(
    archive: SqlArchive, checkpoints: ReporterCheckpoints, settings: ReporterSettings, clock: Clock
) -> Retention:
    """Make what creates partitions and deletes old rows of all clusters."""
    thin = partial(archive.thin_curves, points=THINNED_POINTS)
    tasks = (
        RetentionTask(name="jobs", delete=archive.delete_jobs, keep_seconds=settings.keep_jobs),
        RetentionTask(name="curves", delete=archive.delete_curves, keep_seconds=settings.keep_curves),
        RetentionTask(name="thinned_curves", delete=thin, keep_seconds=settings.thin_curves_after),
        RetentionTask(name="audit", delete=archive.delete_audit_entries, keep_seconds=settings.keep_audit),
    )
    return Retention(
        tasks,
        clock,
        prepare=archive.prepare_weeks,
        checkpoints=checkpoints,
        newest=archive.newest_submit_seconds,
    )
