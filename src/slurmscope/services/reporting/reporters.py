# SPDX-License-Identifier: Apache-2.0
"""Run one reporter for each cluster, each in a thread of its own: a cluster that cannot be read delays no other.

Deleting old rows concerns all clusters together, and is done beside them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Protocol

from slurmscope.errors import SourceError
from slurmscope.model.job_record import JobAccounting
from slurmscope.services.reporting.report_maker import ReportMaker
from slurmscope.services.reporting.reporter import Progress, Reporter, ReporterArchive, ReporterSettings
from slurmscope.services.reporting.retention import ReporterCheckpoints, Retention, RetentionTask
from slurmscope.services.runtime.clock import Clock
from slurmscope.services.runtime.periodic import run_periodically

MAX_CLUSTERS = 64
"""Most clusters of one process; each has a thread."""


class KeptArchive(ReporterArchive, Protocol):
    """Store reports, and delete a part of what is older than a time; returns the number of rows."""

    def newest_submit_seconds(self) -> int | None:
        """Return when the newest job was submitted."""
        ...

    def delete_curves(self, before_seconds: int) -> int:
        """Delete curves of jobs that ended before this time."""
        ...

    def delete_jobs(self, before_seconds: int) -> int:
        """Delete jobs that ended before this time."""
        ...

    def delete_audit_entries(self, before_seconds: int) -> int:
        """Delete audit entries from before this time."""
        ...


class Reporters:
    """Hold the reporters of all clusters that accounting reads; a new cluster gets one when it is found."""

    def __init__(
        self,
        accounting: JobAccounting,
        maker: ReportMaker,
        archive: KeptArchive,
        checkpoints: ReporterCheckpoints,
        settings: ReporterSettings,
        *,
        clock: Clock | None = None,
    ) -> None:
        """Take the parts of the reporters; nothing is read yet."""
        self._accounting = accounting
        self._parts = (maker, archive, checkpoints, settings)
        self._clock = clock or Clock()
        self._interval_seconds = settings.interval
        self._reporters: dict[str, Reporter] = {}
        self._names: tuple[str, ...] = ()
        self._started: set[str] = set()
        self._own = Progress()
        self._loops = ExitStack()
        self._stopping = threading.Event()
        self.retention = make_retention(archive, checkpoints, settings, self._clock)

    @property
    def progress(self) -> Progress:
        """Return the progress of all clusters together: that of the slowest, and the problems of each."""
        return join_progress([*self._reporters.values()], self._own)

    @property
    def clusters(self) -> tuple[str, ...]:
        """Return the clusters that were found; none before the first time."""
        return self._names

    def find(self) -> tuple[Reporter, ...]:
        """Return the reporters of the clusters that accounting has now, with new ones for new clusters."""
        try:
            names = self._accounting.clusters()[:MAX_CLUSTERS]
        except SourceError as error:
            self._own = replace(self._own, failures=self._own.failures + 1, problem=str(error))
            return tuple(self._reporters[name] for name in self._names)
        self._own = replace(self._own, problem="")
        for name in names:
            if name not in self._reporters:
                made = Reporter(self._accounting.of(name), *self._parts, cluster=name, clock=self._clock)
                self._reporters = {**self._reporters, name: made}
        self._names = names
        return tuple(self._reporters[name] for name in names)

    @contextmanager
    def running(self, first: Callable[[], None] | None = None) -> Iterator[None]:
        """Run every reporter periodically, and look for new clusters in between, until the block ends; only once.

        ``first`` runs before, in the same thread.
        """
        with self._loops, self._repeat("reporters", self._start_new, first):
            yield

    def _start_new(self) -> None:
        for reporter in self.find():
            if reporter.cluster not in self._started:
                self._started.add(reporter.cluster)
                self._loops.enter_context(self._repeat(f"reporter {reporter.cluster}", partial(self._work, reporter)))
        self.retention.work()

    def _work(self, reporter: Reporter) -> None:
        """Do one round of a reporter, unless its cluster was removed."""
        if reporter.cluster in self._names:
            reporter.work()

    def _repeat(
        self, name: str, action: Callable[[], None], first: Callable[[], None] | None = None
    ) -> AbstractContextManager[None]:
        return run_periodically(name, self._interval_seconds, action, first=first, stopping=self._stopping)


def join_progress(reporters: Sequence[Reporter], own: Progress) -> Progress:
    """Add up the progress of several reporters; a problem names its cluster if there are several."""
    each = {reporter.cluster: reporter.progress for reporter in reporters}
    problems = [(f"{name}: " if len(each) > 1 else "") + found.problem for name, found in each.items() if found.problem]
    known = [found.read_until_seconds for found in each.values() if found.read_until_seconds is not None]
    return Progress(
        jobs_archived=sum(found.jobs_archived for found in each.values()),
        rounds=sum(found.rounds for found in each.values()),
        failures=own.failures + sum(found.failures for found in each.values()),
        # One that was never read has no time yet, so neither have all together.
        read_until_seconds=min(known) if known and len(known) == len(each) else None,
        problem="; ".join(filter(None, (own.problem, *problems))),
    )


def make_retention(
    archive: KeptArchive, checkpoints: ReporterCheckpoints, settings: ReporterSettings, clock: Clock
) -> Retention:
    """Make what deletes old rows of all clusters."""
    tasks = (
        RetentionTask(name="jobs", delete=archive.delete_jobs, keep_seconds=settings.keep_jobs),
        RetentionTask(name="curves", delete=archive.delete_curves, keep_seconds=settings.keep_curves),
        RetentionTask(name="audit", delete=archive.delete_audit_entries, keep_seconds=settings.keep_audit),
    )
    return Retention(tasks, clock, checkpoints=checkpoints, newest=archive.newest_submit_seconds)
