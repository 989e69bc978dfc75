# SPDX-License-Identifier: Apache-2.0
"""Store the numbers of ended jobs in Slurm's AdminComment, where reportseff, seff-array and others read them.

sacctmgr of Slurm 22.05.8 writes comments in lower case, which cannot be decoded. So the first one is read again; if it
was changed, none is written any more by this release of sacctmgr.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Iterable, Sequence, Sized
from itertools import islice
from typing import NamedTuple

from slurmscope.core.errors import SlurmscopeError, SourceError
from slurmscope.core.log import fields
from slurmscope.jobs.js1 import FROM_COMMENT, write_js1
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.runs import RunId, newest_runs, run_of
from slurmscope.reporter.retention import ReporterCheckpoints
from slurmscope.slurm.command import RunCommand

logger = logging.getLogger(__name__)

MAX_WAITING = 20_000
"""Comments that wait for slurmdbd; while it fails, those of further jobs are dropped."""
ROUND_SECONDS = 20.0
"""Time for comments in one round, so that they do not delay the archive."""
MAX_TRIES = 5
"""How often a job is tried, each time in another round."""
_MAX_FAILURES = 3
"""After so many failures in one round, slurmdbd is probably unreachable."""


_BATCH_JOBS = 50
"""Jobs whose newest runs are read at once."""
CHANGED_CHECKPOINT = "AdminComment changed by: "
"""Under this name and the cluster the archive has the release of sacctmgr that changed a comment."""
ADVICE = "disable reporter.admin-comment, or update sacctmgr of this host and restart the portal"

ReadJobs = Callable[[Sequence[int]], Iterable[JobRecord]]


class _Comment(NamedTuple):
    shown_id: str
    text: str
    tries: int


class AdminComments:
    """The comments of one cluster that are still to be written. Not thread-safe.

    sacctmgr writes to the newest run of an ID, so the comment of a run that was requeued is dropped. The ID of an array
    or heterogeneous job, which one of its parts has too, stands for all of them: parts have the ID that users write.
    """

    def __init__(
        self,
        run: RunCommand,
        read_jobs: ReadJobs,
        checkpoints: ReporterCheckpoints,
        cluster: str,
        clock: Callable[[], float] = time.monotonic,
        *,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        """Take what runs a command of Slurm and what reads all runs of jobs; nothing is run yet."""
        self._run, self._read_jobs, self._max_waiting = run, read_jobs, max_waiting
        self._checkpoints = checkpoints
        self._cluster = cluster
        self._clock = clock
        self._waiting: dict[RunId, _Comment] = {}
        self._is_proven = False
        """Whether a comment was read again as it was written."""
        self.is_stopped: bool | None = None
        """Whether nothing is written, because sacctmgr changes comments; None before the first one."""

    def add(self, reports: Iterable[JobReport]) -> None:
        """Take the jobs that have ended and are measured; one that jobstats commented on keeps its comment."""
        dropped = 0
        for report in reports:
            record = report.record
            is_done = record.has_ended and record.start_seconds is not None and not report.is_incomplete
            if not is_done or FROM_COMMENT in report.missing:
                continue
            if run_of(record) in self._waiting or len(self._waiting) < self._max_waiting:
                self._waiting[run_of(record)] = _Comment(record.shown_id, write_js1(report.summary), MAX_TRIES)
            else:
                dropped += 1
        if dropped:
            logger.warning(
                "jobs get no AdminComment: too many comments wait for slurmdbd",
                extra=fields(
                    f"comments {self._cluster}", cluster=self._cluster, jobs=dropped, waiting=len(self._waiting)
                ),
            )

    def write(self) -> None:
        """Write what waits, the oldest first; what fails is tried again in the next round, after the others."""
        if self._waiting and self.is_stopped is None:
            self.is_stopped = self._was_changed()
            if self.is_stopped is None:
                return
        until, failed = self._clock() + ROUND_SECONDS, dict[RunId, _Comment]()
        while self._waiting and not self._is_over(until, failed):
            batch = list(islice(self._waiting, _BATCH_JOBS))
            newest = self._find_newest(batch)
            if newest is None:
                break
            for run in batch:
                if self._is_over(until, failed):
                    break
                comment = self._waiting.pop(run)
                if run in newest and not self._write(comment) and comment.tries > 1:
                    failed[run] = comment._replace(tries=comment.tries - 1)
        self._waiting = {} if self.is_stopped else self._waiting | failed

    def _was_changed(self) -> bool | None:
        """Return whether this release of sacctmgr changed a comment; None where that cannot be read."""
        try:
            return is_changed_by(self._checkpoints.read_checkpoint(self._checkpoint), self._run)
        except SlurmscopeError as error:
            logger.warning(
                "no AdminComment is written: the release of sacctmgr could not be read",
                extra=fields(f"comments {self._cluster}", cluster=self._cluster, reason=str(error)),
            )
            return None

    def _is_over(self, until: float, failed: Sized) -> bool:
        most_failures = _MAX_FAILURES if self._is_proven else 1
        return bool(self.is_stopped) or self._clock() >= until or len(failed) >= most_failures

    @property
    def _checkpoint(self) -> str:
        return CHANGED_CHECKPOINT + self._cluster

    def _find_newest(self, runs: Sequence[RunId]) -> Container[RunId] | None:
        """Return the newest runs of these IDs, also those that have not ended; None if accounting cannot be read."""
        try:
            found = self._read_jobs(sorted({run.job_id for run in runs}))
        except SlurmscopeError as error:
            logger.warning(
                "no AdminComment is written: the runs of their jobs could not be read",
                extra=fields(f"comments {self._cluster}", cluster=self._cluster, reason=str(error)),
            )
            return None
        return {run_of(run) for run in newest_runs(found)}

    def _write(self, comment: _Comment) -> bool:
        which = ("where", f"jobid={comment.shown_id}", f"cluster={self._cluster}")
        try:
            self._run("sacctmgr", ("-i", "-Q", "update", "job", *which, "set", f"AdminComment={comment.text}"))
            if not self._is_proven:
                self._prove(comment)
        except SlurmscopeError as error:
            logger.warning(
                "an AdminComment could not be written",
                extra=fields(
                    f"comments {self._cluster}", cluster=self._cluster, job=comment.shown_id, reason=str(error)
                ),
            )
            return False
        return True

    def _prove(self, comment: _Comment) -> None:
        """Read a comment that was written; if sacctmgr changed it, write no other one. Raise SlurmscopeError."""
        which = ("--allusers", f"--clusters={self._cluster}", f"--jobs={comment.shown_id}", "--allocations")
        answer = self._run("sacct", (*which, "--noheader", "--parsable2", "--format=AdminComment"))
        found = answer.decode("utf-8", "replace").strip()
        if found == comment.text:
            self._is_proven = True
        elif found and comment.text.lower().startswith(found.lower()):
            self.is_stopped = True
            logger.error(
                "no AdminComment is written any more: sacctmgr changed the first one, so that it cannot be decoded",
                extra=fields(cluster=self._cluster, job=comment.shown_id, advice=ADVICE),
            )
            self._checkpoints.write_checkpoint(self._checkpoint, read_release(self._run))
        else:
            raise SourceError("sacct returns another comment, or none")


def read_release(run: RunCommand) -> str:
    """Return the release of sacctmgr, such as ``slurm-wlm 22.05.8``."""
    return run("sacctmgr", ("--version",)).decode("utf-8", "replace").strip()


def is_changed_by(release: str | None, run: RunCommand) -> bool:
    """Return whether sacctmgr still is of the release that changed a comment, as the archive has it."""
    return bool(release) and release == read_release(run)
