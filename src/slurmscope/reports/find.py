# SPDX-License-Identifier: Apache-2.0
"""Find the report of a job for a viewer: in the archive, or made now while the job runs.

Each lookup in accounting starts an sacct, or queries Slurm's database. A user who tries many job IDs gets an error
early, and leaves queries for others.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import NamedTuple

from slurmscope.archive.interface import Archive, JobFilter
from slurmscope.archive.job_columns import JobRow
from slurmscope.core.cache import Cache
from slurmscope.core.clock import Clock
from slurmscope.core.errors import AmbiguousName, ArchiveError, MalformedAnswer, ServerBusy, SourceError
from slurmscope.core.log import fields
from slurmscope.core.rate_limit import TokenBuckets
from slurmscope.jobs.record import JobAccounting, JobRecord, is_one_job
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.runs import run_order
from slurmscope.jobs.viewer import Viewer
from slurmscope.reports.live_cache import LiveCache
from slurmscope.reports.make import ReportMaker
from slurmscope.slurm.states import REVOKED

MAX_CONCURRENT = 2
"""Lookups of one user at the same time; half of the concurrent accounting queries."""
BURST, PER_SECOND = 20, 1.0
"""Lookups of one user: so many at once, then so many per second."""
ALL_BURST, ALL_PER_SECOND = 100, 10.0
"""Lookups of all users together."""
MAX_USERS = 10_000
MESSAGE = "too many jobs were looked up in accounting; try again in a few seconds"


class TooManyLookups(ServerBusy):
    """Too many jobs were looked up in accounting, by this user or by all."""


class LookupLimits:
    """Count lookups by user; thread-safe."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        queue_timeout_seconds: float = 10.0,
        message: str = MESSAGE,
    ) -> None:
        """Start with full bursts; ``message`` is for users beyond a limit."""
        self._queue_timeout_seconds = queue_timeout_seconds
        self._message = message
        self._all = TokenBuckets(ALL_PER_SECOND, ALL_BURST, clock=clock)
        self._users = TokenBuckets(PER_SECOND, BURST, max_keys=MAX_USERS, clock=clock)
        self._running: Counter[str] = Counter()
        self._ended = threading.Condition()

    @contextmanager
    def turn(self, user: str) -> Iterator[None]:
        """Wait until this user has less than two lookups under way; raise TooManyLookups after the timeout."""
        with self._ended:
            if not self._ended.wait_for(lambda: self._running[user] < MAX_CONCURRENT, self._queue_timeout_seconds):
                raise TooManyLookups(self._message)
            self._running[user] += 1
        try:
            yield
        finally:
            with self._ended:
                self._running[user] -= 1
                # Without those that are 0.
                self._running += Counter()
                self._ended.notify_all()

    def count(self, user: str) -> None:
        """Count one lookup; raise TooManyLookups if there were too many."""
        # In this order: a user beyond their own limit takes nothing from the others.
        if self._users.take(user) or self._all.take():
            raise TooManyLookups(self._message)


logger = logging.getLogger(__name__)


KEPT_SECONDS = 60.0


class KnownClusters:
    """Return the names of the clusters, read again after a minute; call it as a function, from any thread."""

    def __init__(self, archive: Archive | None, clock: Clock | None = None) -> None:
        """Take the archive; without one, no cluster is known."""
        self._archive = archive
        self._cache = Cache[tuple[str, ...]](
            KEPT_SECONDS, retry_seconds=KEPT_SECONDS, serves_old=True, clock=(clock or Clock()).monotonic
        )

    def __call__(self) -> tuple[str, ...]:
        """Return the last known clusters in order; while the archive cannot be read, those known before."""
        try:
            return self._cache.get(None, self._archive.clusters) if self._archive else ()
        except ArchiveError:  # what reads jobs reports it
            return ()


MAX_CONCURRENT_QUERIES = 4
"""Limit of concurrent accounting queries: a client that tries many job IDs must not start a sacct for each."""
QUEUE_TIMEOUT_SECONDS = 10.0
"""How long an accounting query waits while there are too many others."""
OUTAGE_SECONDS = 300.0
"""An outage that was not seen again for this long is considered over."""


_SHOWN_ID = re.compile(r"(?P<base>[1-9][0-9]{0,9})(?:(?P<mark>[_+])(?P<part>[0-9]{1,9}))?", re.ASCII)


def is_shown_id(text: str) -> bool:
    """Return whether this is a job ID as users write it: 12, 12_3 or 12+1."""
    return _SHOWN_ID.fullmatch(text) is not None


class Outages:
    """Keep the last problem with each server, for a banner on every page; thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without outages."""
        self._clock = clock
        self._known: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    def note(self, server: str, message: str) -> None:
        """Record a problem with a server."""
        with self._lock:
            self._known[server] = (message, self._clock())

    def clear(self, server: str) -> None:
        """Record that a server has responded."""
        with self._lock:
            self._known.pop(server, None)

    def problems(self) -> tuple[str, ...]:
        now = self._clock()
        with self._lock:
            return tuple(message for message, at in self._known.values() if now - at < OUTAGE_SECONDS)


class _Records(NamedTuple):
    """The newest run of a job in each cluster, and one task of each array whose ID it is."""

    jobs: tuple[JobRecord, ...]
    tasks: tuple[JobRecord, ...]


class ReportFinder:
    """Find reports of single jobs; thread-safe."""

    def __init__(  # noqa: PLR0913 - three sources and their limits
        self,
        archive: Archive | None,
        accounting: JobAccounting | None,
        maker: ReportMaker,
        outages: Outages | None = None,
        *,
        archived_seconds: float = 0.0,
        queue_timeout_seconds: float = QUEUE_TIMEOUT_SECONDS,
        clock: Clock | None = None,
        clusters: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """Take the archive, the source of running jobs, and the maker of their reports.

        ``clusters`` returns the known clusters: with several, an ID without a cluster may mean several jobs.
        ``archived_seconds`` is how old an archived report of a running job may be to be shown while a new one is made:
        the page loads at once, but the job may have ended meanwhile.
        """
        self._archive = archive
        self._accounting = accounting
        self._maker = maker
        self._outages = outages or Outages()
        self._archived_seconds = archived_seconds
        self._clusters = clusters
        self._queue_timeout_seconds = queue_timeout_seconds
        self._slots = threading.Semaphore(MAX_CONCURRENT_QUERIES)
        self._clock = clock or Clock()
        self._lookups = LookupLimits(self._clock.monotonic, queue_timeout_seconds=queue_timeout_seconds)
        self._records = LiveCache(self._read_records, self._clock.monotonic)
        self._reports = LiveCache(self._make_report, self._clock.monotonic)

    def know_clusters(self, clusters: Callable[[], Sequence[str]]) -> None:
        """Replace what returns the known clusters: a portal also knows those that have no archived job yet."""
        self._clusters = clusters

    def report(self, viewer: Viewer, shown_id: str, cluster: str = "") -> JobReport | None:
        """Return the newest run of a job by its id as users write it; None if there is none that the viewer may see.

        Raises ArchiveError when the archive could not be read, SourceError when there is none and accounting could not
        be read, TooManyLookups when the viewer looked up too many jobs: whether this one exists is unknown then. Raises
        AmbiguousName without a cluster if the viewer may see jobs of several clusters by this id, or an array in
        another one.
        """
        if not is_shown_id(shown_id):
            return None
        report = self._find(viewer, shown_id, cluster)
        if report and not cluster and shown_id.isdecimal():
            tasks = tuple(self._find_tasks(viewer, shown_id, report.record.cluster))
            if not is_one_job(shown_id, [report.record.user, *(task.user for task in tasks)]):
                require_unambiguous("job", shown_id, {report.record.cluster, *(task.cluster for task in tasks)})
        return report

    def _find(self, viewer: Viewer, shown_id: str, cluster: str) -> JobReport | None:
        archived, archive_error = self._find_archived(viewer, shown_id, cluster)
        may_be_several = not cluster and len(self._clusters()) > 1
        # A requeued run has a successor, which may not be archived yet.
        if archived and not may_be_several and (_is_ended(archived) or self._begin_to_renew(archived, shown_id)):
            return archived
        try:
            live, live_error = self._find_live(viewer, shown_id, cluster, archived)
        except TooManyLookups as error:
            if archived is None:
                raise
            live, live_error = None, str(error)
        if live:
            return replace(live, missing=(*live.missing, archive_error)) if archive_error else live
        if archived:
            return replace(archived, missing=(*archived.missing, live_error)) if live_error else archived
        if archive_error:
            raise ArchiveError(archive_error)
        if live_error and self._archive is None:
            raise SourceError(live_error)
        return None

    def _find_tasks(self, viewer: Viewer, array_id: str, but_cluster: str) -> Iterator[JobRecord | JobRow]:
        """Yield a task of the array with this id in each other cluster: the id of an array means all its tasks."""
        with suppress(SourceError):
            # Accounting was read for the report of the job, if it is needed at all.
            found = self._records.get(array_id) if self._records.is_ready(array_id) else None
            for task in found.tasks if found else ():
                if task.cluster != but_cluster and viewer.sees(task.user, task.account, task.cluster):
                    yield task
        if self._archive is None:
            return
        with suppress(ArchiveError):
            for cluster in self._clusters():
                if cluster != but_cluster:
                    wanted = JobFilter(cluster=cluster, array_job_id=int(array_id))
                    yield from self._archive.list_jobs(viewer, wanted, limit=1).rows

    def _begin_to_renew(self, archived: JobReport, shown_id: str) -> bool:
        """Return whether the archived report of a running job may be shown while the next one is made."""
        return self._may_show(archived) and self._reports.begin(_cache_key(shown_id, archived.record.cluster))

    def _may_show(self, archived: JobReport) -> bool:
        is_recent = self._clock.wall() - archived.made_seconds < self._archived_seconds
        return is_recent and not archived.record.has_ended

    def _find_archived(self, viewer: Viewer, shown_id: str, cluster: str) -> tuple[JobReport | None, str]:
        if self._archive is None:
            return None, ""
        try:
            rows = self._archive.find_shown(viewer, shown_id, cluster=cluster)
            if not is_one_job(shown_id, [row.user for row in rows]):
                require_unambiguous("job", shown_id, {row.cluster for row in rows})
            newest = max(rows, key=_run_key, default=None)
            reports = self._archive.find(viewer, newest.job_id, cluster=newest.cluster) if newest else ()
        except ArchiveError as error:
            self._outages.note("archive", str(error))
            return None, str(error)
        self._outages.clear("archive")
        return max(reports, key=lambda report: run_order(report.record), default=None), ""

    def _find_live(
        self, viewer: Viewer, shown_id: str, cluster: str, archived: JobReport | None
    ) -> tuple[JobReport | None, str]:
        """Return a current report of a job; one that the viewer may not see is treated like one that does not exist."""
        if self._accounting is None:
            return None, ""
        try:
            records = self._look_up(viewer, shown_id)
            found = [
                record
                for record in (records.jobs if records else ())
                if cluster in {"", record.cluster} and viewer.sees(record.user, record.account, record.cluster)
            ]
            chosen = _choose_cluster(shown_id, found, archived)
            if not chosen:
                return None, ""
            report = self._reports.get(_cache_key(shown_id, chosen))
        except TooManyLookups:
            raise
        except SourceError as error:
            # What is archived of an ended job is complete without it.
            return None, "" if _is_ended(archived) else f"Accounting could not be read: {error}"
        # The cached report may be of another job with this id: job IDs are used again.
        record = report.record if report else None
        return (report if record and viewer.sees(record.user, record.account, record.cluster) else None), ""

    def _look_up(self, viewer: Viewer, shown_id: str) -> _Records | None:
        """Return the records of a job of any user; only what is not cached counts for the viewer."""
        if self._records.is_ready(shown_id):
            return self._records.get(shown_id)
        with self._lookups.turn(viewer.name):
            # Another request of this page may have read it meanwhile.
            if not self._records.is_ready(shown_id):
                self._lookups.count(viewer.name)
            return self._records.get(shown_id)

    def _read_records(self, shown_id: str) -> _Records | None:
        """Query accounting for the newest run in each cluster, and note whether it is reachable."""
        found = _SHOWN_ID.fullmatch(shown_id)
        if not found or self._accounting is None:
            return None
        try:
            with self._query_slot():
                records = self._accounting.read_jobs([int(found["base"])])
        except MalformedAnswer as error:
            # Whose job it is is not known. The response is that for a job that does not exist.
            logger.warning("record of a job cannot be read", extra=fields("record", job=shown_id, error=str(error)))
            return None
        except SourceError as error:
            self._outages.note("accounting", str(error))
            raise
        self._outages.clear("accounting")
        return _newest(records, shown_id)

    @contextmanager
    def _query_slot(self) -> Iterator[None]:
        if not self._slots.acquire(timeout=self._queue_timeout_seconds):
            raise ServerBusy("too many accounting queries are running; try again in a moment")
        try:
            yield
        finally:
            self._slots.release()

    def _make_report(self, key: str) -> JobReport | None:
        shown_id, _, cluster = key.partition(" ")
        records = self._records.get(shown_id)
        record = next((each for each in (records.jobs if records else ()) if each.cluster == cluster), None)
        return self._maker.make([record])[0] if record else None


def _cache_key(shown_id: str, cluster: str) -> str:
    return f"{shown_id} {cluster}"


def require_unambiguous(kind: str, name: str, clusters: set[str]) -> None:
    """Let the viewer choose if a name exists in several clusters."""
    if len(clusters) > 1:
        raise AmbiguousName(kind, name, clusters)


def _choose_cluster(shown_id: str, found: Sequence[JobRecord], archived: JobReport | None) -> str:
    """Return the cluster of a job's newest run; empty if there is none, or if what is archived of it is complete."""
    archived_in = {archived.record.cluster} if archived else set()
    clusters = _find_clusters(found, archived_in)
    runs = [*(record for record in found if record.cluster in clusters), *([archived.record] if archived else [])]
    if is_one_job(shown_id, [run.user for run in runs]):
        clusters = {max(runs, key=_run_key).cluster}
        archived_in &= clusters
    require_unambiguous("job", shown_id, clusters | archived_in)
    return "" if archived_in and _is_ended(archived) else next(iter(clusters), "")


def _find_clusters(found: Sequence[JobRecord], archived_in: set[str]) -> set[str]:
    """Return the clusters of a job; one that another cluster of the federation ran is revoked in all others."""
    clusters = {record.cluster for record in found if record.state != REVOKED or record.cluster in archived_in}
    return clusters if clusters or archived_in else {record.cluster for record in found}


def _is_ended(report: JobReport | None) -> bool:
    return report is not None and report.record.has_ended and report.record.state != "REQUEUED"


def _newest(records: Iterable[JobRecord], shown_id: str) -> _Records:
    jobs: dict[str, JobRecord] = {}
    tasks: dict[str, JobRecord] = {}
    for record in sorted(records, key=run_order):
        # One task of an array has the id of the array itself: that id means all tasks.
        if shown_id == record.shown_id or (shown_id == str(record.job_id) and record.job_id != record.array_job_id):
            jobs[record.cluster] = record
        elif shown_id == str(record.array_job_id):
            tasks[record.cluster] = record
    return _Records(tuple(jobs.values()), tuple(tasks.values()))


def _run_key(job: JobRecord | JobRow) -> tuple[bool, int, int]:
    """Order runs in several clusters: a revoked copy has the times of the run in another cluster."""
    return job.state != REVOKED, *run_order(job)
