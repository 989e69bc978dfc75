# SPDX-License-Identifier: Apache-2.0
"""Track jobs in one thread, so that even short ones are seen and the final values of ended ones are kept.

All jobs belong to this thread, so nothing is read twice at a time and nothing needs a lock. It sleeps until the kernel
reports that a job's cgroup directory has changed or the first process of a task has ended. Slurm removes a job's
cgroups some milliseconds later: long enough to read the final values, which are served for the grace period.
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from typing import Self

from slurmscope.core.errors import SourceError
from slurmscope.core.log import fields
from slurmscope.core.rate_limit import TokenBuckets
from slurmscope.node.changes import Change, ChangeWatcher, Event, WakeUp
from slurmscope.node.job_finder import JobFinder
from slurmscope.node.job_registry import JobRegistry
from slurmscope.node.job_use import NodeJobs, Roster
from slurmscope.node.tracked_job import TrackedJob

logger = logging.getLogger(__name__)


LOW_SHARE = 0.1
# One very long task must not block the next one for too long.
DEBT_SHARE = 0.2


class CpuBudget:
    """Charge the CPU time of one thread against its budget; for that thread only."""

    def __init__(
        self,
        share: float,
        burst_seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """Take the share of a core that may be used permanently, and the CPU time that may be used at once."""
        self.share = share
        self.cpu_clock = cpu_clock
        self._burst_seconds = burst_seconds
        self._seconds = TokenBuckets(share, burst_seconds, clock=clock)

    @contextmanager
    def charged(self) -> Iterator[None]:
        """Charge the CPU time of the block."""
        began = self.cpu_clock()
        try:
            yield
        finally:
            self._seconds.spend(self.cpu_clock() - began, most_debt=self._burst_seconds * DEBT_SHARE)

    def low_seconds(self) -> float:
        """Return for how long only urgent work should be done; 0 most of the time."""
        return max(0.0, (self._burst_seconds * LOW_SHARE - self._seconds.left()) / self.share)


# Also without any event: the first slurmd of a machine creates directories that are not watched yet, and on a node so
# busy that this thread wakes up too late for the end of a job, no more than this much of its usage is lost.
SCAN_SECONDS = 10.0
# Without events, jobs are polled at this interval, or so that polling costs half a percent of a core.
POLL_SECONDS = 0.25
POLL_COST_FACTOR = 200.0
# On an idle node without cgroups: intervals of the check whether a job may have started, also if the kernel reports
# every slurmstepd that is executed, and of scans.
QUIET_POLL_SECONDS = 0.4
WATCHED_POLL_SECONDS = 5.0
QUIET_SCAN_SECONDS = 60.0
# A scan waits until slurmstepd has created or removed all directories, and this long after another scan.
SETTLE_SECONDS = 0.01
SCAN_GAP_SECONDS = 0.05
# CPU time for a storm of steps: one second at once, a twentieth of a core while it lasts. New jobs are then found
# later, but ending ones are still read, many at a time.
STORM_SHARE = 0.05
STORM_BURST_SECONDS = 1.0
STORM_GAP_SECONDS = 0.02
# Events at the end of a job or step: a directory is removed, or the last process of a cgroup ends.
ENDING = Change.DELETED | Change.MOVED_FROM | Change.SELF_DELETED | Change.MODIFIED
# Watching a directory may reveal further ones to watch: user, job, step.
MAX_SCANS = 4
SNAPSHOT_SECONDS = 60.0
# For the processes of all jobs together, whatever they do: a scrape waits for about ten seconds.
READING_SECONDS = 5.0
LONG_SECONDS = 0.25
END_SECONDS = 5.0
FAILED_PAUSE_SECONDS = 1.0
STOPPING = "jobs are no longer tracked: the agent is stopping"


class JobTracker:
    """Run the tracking thread; ``with`` starts and ends it. Without it, snapshots read the current jobs only."""

    def __init__(
        self,
        finder: JobFinder,
        registry: JobRegistry,
        changes: ChangeWatcher,
        *,
        available: Callable[[], dict[str, bool]] = dict,
        budget: CpuBudget | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take ownership of ``changes``; ``available`` returns which sources can be read.

        ``budget`` limits the CPU time while jobs and steps start and end in rapid succession.
        """
        self._finder = finder
        self._registry = registry
        self._changes = changes
        self._available = available
        self._clock = clock
        self._budget = budget or CpuBudget(STORM_SHARE, STORM_BURST_SECONDS)
        self._next_scan = self._last_scan = 0.0
        self._last_read = clock()  # jobs found by the first scan are read when they are found
        self._poll_cost_seconds = 0.0
        self._are_starts_reported = False
        self._has_start = False
        self._unwatched: set[TrackedJob] = set()
        self._job_of: dict[int, TrackedJob] = {}
        self._requests: queue.SimpleQueue[Future[NodeJobs]] = queue.SimpleQueue()
        self._is_stopping = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the thread; existing jobs are read at once."""
        self._thread = threading.Thread(target=self._run, name="job-tracker", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and release all watches; closing twice is fine."""
        if self._is_stopping:
            return
        self._is_stopping = True
        if self._thread is not None:
            self._changes.wake()
            self._thread.join(END_SECONDS)
            if self._thread.is_alive():  # blocked in a kernel read: its descriptors must stay open
                logger.error("job tracker did not stop")
                return
        for request in self._take_requests():
            request.cancel()
        self._changes.close()

    @property
    def roster(self) -> Roster:
        """Return which jobs run, as far as the thread knows now; costs nothing."""
        return self._registry.roster

    def snapshot(self) -> NodeJobs:
        """Read all jobs now, and add those that ended recently; raise SourceError if that fails."""
        if self._is_stopping:
            raise SourceError(STOPPING)
        if self._thread is None:
            return self._snapshot()
        request: Future[NodeJobs] = Future()
        self._requests.put(request)
        self._changes.wake()
        try:
            return request.result(SNAPSHOT_SECONDS)
        except FutureTimeout:
            raise SourceError(f"jobs could not be read within {SNAPSHOT_SECONDS:g} s") from None
        except CancelledError:
            raise SourceError(STOPPING) from None

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                self._run_once()
            except SourceError as error:
                logger.error("job tracking failed", extra=fields(error=str(error)))
                self._refuse(self._take_requests(), error)
                self._changes.rest(FAILED_PAUSE_SECONDS)
            except Exception as error:  # a bug in one round must not end the tracking
                logger.exception("job tracking failed")
                self._refuse(self._take_requests(), error)
                self._changes.rest(FAILED_PAUSE_SECONDS)

    def _run_once(self) -> None:
        """Sleep, handle events, scan if due, and answer snapshot requests."""
        began = self._budget.cpu_clock()
        with self._budget.charged():
            self._handle(self._sleep())
        if self._budget.low_seconds() > 0:
            # Events are queued in the kernel meanwhile and handled all at once.
            self._changes.rest(max(STORM_GAP_SECONDS, (self._budget.cpu_clock() - began) / self._budget.share))
        else:
            with self._budget.charged():
                self._read_new_jobs()
                if self._clock() >= self._next_scan:
                    self._scan()
        self._answer()

    def _sleep(self) -> WakeUp:
        """Wait for events or the next scan; on an idle node without cgroups, for a sign that a job has started."""
        until = self._last_scan + QUIET_SCAN_SECONDS
        poll_seconds = WATCHED_POLL_SECONDS if self._are_starts_reported else QUIET_POLL_SECONDS
        while self._may_rest() and self._clock() < until and self._finder.is_quiet():
            if self._changes.has_any(poll_seconds):
                return self._changes.wait(0.0)
            self._next_scan = 0.0  # as soon as it is not quiet any more
        return self._changes.wait(self._sleep_seconds())

    def _may_rest(self) -> bool:
        return not self._has_start and self._requests.empty()

    def _sleep_seconds(self) -> float:
        due = self._registry.next_due_seconds()
        until = self._next_scan if due is None else min(due, self._next_scan)
        return max(until - self._clock(), self._budget.low_seconds(), 0.0)

    def _handle(self, wake_up: WakeUp) -> None:
        """Read jobs that may be ending at once, and schedule a scan for the others."""
        if not wake_up.events and not wake_up.ended_pids:
            return
        self._has_start |= any(Change.OPENED in event.change for event in wake_up.events)
        with_ended_task = [self._job_of.pop(pid, None) for pid in wake_up.ended_pids]
        removals = [event for event in wake_up.events if event.change & ENDING]
        with_removal = self._registry.jobs_at({name for event in removals for name in _names(event)})
        ending = {tracked.key: tracked for tracked in (*with_ended_task, *with_removal) if tracked is not None}
        for tracked in ending.values():
            self._registry.read_cgroup(tracked)
        for tracked in ending.values():
            self._registry.check_end(tracked)
            if not tracked.has_many_processes and self._budget.low_seconds() == 0:
                self._registry.read(tracked)
        self._unwatched.update(ending.values())
        self._unwatched.update(self._registry.jobs_at({name for event in wake_up.events for name in _names(event)}))
        self._scan_soon()

    def _scan_soon(self) -> None:
        """Schedule a scan for when slurmstepd has settled, but not too soon after the last one."""
        now = self._clock()
        self._next_scan = min(self._next_scan, max(now + SETTLE_SECONDS, self._last_scan + SCAN_GAP_SECONDS))

    def _read_new_jobs(self) -> None:
        due = self._registry.take_due()
        if any(tracked.job.uid is None for tracked in due):
            self._scan()  # in v2 the user of a job is only known from its processes, which a scan reads
        for tracked in self._while_running(due):
            self._registry.read(tracked)
        if due:
            self._watch(due)

    def _scan(self) -> None:
        """Find new and ended jobs, and read the cgroups of all if there are no events, or not for a while."""
        began = self._budget.cpu_clock()
        self._find()
        if not self._has_events or self._clock() >= self._last_read + SCAN_SECONDS:
            self._last_read = self._clock()
            for tracked in self._while_running(self._registry.live):
                self._registry.read_cgroup(tracked)
        self._poll_cost_seconds = self._budget.cpu_clock() - began
        self._schedule_scan()

    def _find(self) -> None:
        """Find new and ended jobs, until all their directories are watched."""
        self._has_start = False
        for _ in range(MAX_SCANS):
            new = self._registry.scan()
            unwatched, self._unwatched = self._unwatched, set()
            if not self._watch({*new, *unwatched}):
                break

    @property
    def _has_events(self) -> bool:
        return not (self._changes.is_polling or self._finder.uses_processes)

    def _schedule_scan(self) -> None:
        self._last_scan = self._clock()
        poll_seconds = max(POLL_SECONDS, POLL_COST_FACTOR * self._poll_cost_seconds)
        self._next_scan = self._last_scan + (SCAN_SECONDS if self._has_events else poll_seconds)

    def _while_running(self, jobs: Iterable[TrackedJob]) -> Iterator[TrackedJob]:
        """Yield jobs until the tracker is closed: reading thousands may take longer than closing waits."""
        return itertools.takewhile(lambda _: not self._is_stopping, jobs)

    def _watch(self, tracked_jobs: Iterable[TrackedJob]) -> bool:
        """Watch the directories of all jobs, and the tasks of these; return whether a directory is new."""
        for tracked in self._while_running(tracked_jobs):
            if self._registry.is_live(tracked):
                self._registry.update_steps(tracked)
                self._watch_leaders(tracked)
        for pid in [pid for pid, tracked in self._job_of.items() if not self._registry.is_live(tracked)]:
            del self._job_of[pid]
            self._changes.unwatch_process(pid)
        paths = (path for tracked in self._registry.live for path in tracked.watched)
        programs = self._finder.watch_programs()
        has_new = self._changes.watch({*self._finder.watch_paths(), *paths}, programs or (), self._finder.watch_roots())
        self._are_starts_reported = programs is not None and all(map(self._changes.is_watched, programs))
        return has_new

    def _watch_leaders(self, tracked: TrackedJob) -> None:
        pids = self._registry.leaders(tracked)
        self._job_of.update(dict.fromkeys(self._changes.watch_processes(pids), tracked))

    def _snapshot(self) -> NodeJobs:
        self._last_read = self._clock()
        self._find()
        self._schedule_scan()
        until = self._clock() + READING_SECONDS
        for tracked in self._while_running(sorted(self._registry.live, key=_turn)):
            # Reading hundreds of processes takes a while; a job that ends meanwhile is read first.
            self._handle(self._changes.wait(0.0))
            if self._registry.is_live(tracked):
                read = self._registry.read if self._clock() < until else self._registry.read_late
                read(tracked)
        if self._is_stopping:
            raise SourceError(STOPPING)
        self._registry.keep_totals()
        return NodeJobs(
            jobs=self._registry.uses(),
            layout=self._finder.layout,
            available={**self._available(), "inotify": not self._changes.is_polling},
            stale_cgroups=self._finder.stale_cgroups,
            read_errors=self._registry.errors.totals(),
        )

    def _answer(self) -> None:
        requests = self._take_requests()
        if not requests:
            return
        try:
            jobs = self._snapshot()
        except Exception as error:  # noqa: BLE001 - passed on to the callers
            self._refuse(requests, error)
        else:
            for request in requests:
                request.set_result(jobs)

    def _refuse(self, requests: Iterable[Future[NodeJobs]], error: Exception) -> None:
        for request in requests:
            request.set_exception(error)

    def _take_requests(self) -> list[Future[NodeJobs]]:
        requests: list[Future[NodeJobs]] = []
        while not self._requests.empty():
            requests.append(self._requests.get_nowait())
        return requests


def _turn(tracked: TrackedJob) -> tuple[bool, bool, float]:
    """Sort jobs that take long to the end, new ones before them, and among equals those read longest ago first."""
    return tracked.cost_seconds > LONG_SECONDS, tracked.read_at == 0, tracked.read_at


def _names(event: Event) -> tuple[str, ...]:
    return (*event.path.parts, event.name) if event.path is not None else ()
