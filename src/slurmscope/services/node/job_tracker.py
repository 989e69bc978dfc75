# SPDX-License-Identifier: Apache-2.0
"""Miss no job: one thread hears of jobs as they come and go, and gives the numbers of all of them when asked.

All jobs belong to this thread, so nothing is read twice at a time and nothing needs a lock. It sleeps until the kernel
tells that a job's folder has changed or the first process of a task has ended. Slurm removes a job's cgroups some
milliseconds later: long enough to read the last numbers. These are served until the grace period is over.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from slurmscope.errors import SourceError
from slurmscope.log import fields
from slurmscope.model.job_use import NodeJobs
from slurmscope.services.node.cpu_budget import CpuBudget
from slurmscope.services.node.job_registry import JobRegistry, JobSource
from slurmscope.services.node.tracked_job import TrackedJob
from slurmscope.sources.machine.changes import ChangeWatcher, WakeUp
from slurmscope.sources.machine.inotify import Change, Event

logger = logging.getLogger(__name__)

# Also without any sign: the first slurmd of a machine makes folders that nobody watches yet, and on a node that is so
# full that we wake up too late for the end of a job, no more than this is lost of it.
LOOK_SECONDS = 10.0
# Where nothing is told we look this often, or so often that it costs half a percent of a core.
POLL_SECONDS = 0.25
POLL_COST_FACTOR = 200.0
# A look waits for the end of the flurry in which slurmstepd makes folder after folder, and this long after another.
FLURRY_SECONDS = 0.01
LOOK_GAP_SECONDS = 0.05
# What a storm of steps may cost: one second at once, a twentieth of a core for as long as it lasts. Then new jobs are
# found later, but those that end are still read, many at a time.
STORM_SHARE = 0.05
STORM_BURST_SECONDS = 1.0
STORM_GAP_SECONDS = 0.02
# Something of a job goes away: a folder, or the last process of a cgroup.
LEAVING = Change.DELETED | Change.MOVED_FROM | Change.SELF_DELETED | Change.MODIFIED
# Watching a folder may show further ones to watch: user, job, step.
LOOKS_AT_ONCE = 4
ANSWER_SECONDS = 60.0
END_SECONDS = 5.0
FAILED_PAUSE_SECONDS = 1.0


class TrackerFinder(JobSource, Protocol):
    """Find jobs, and tell how and where."""

    @property
    def uses_processes(self) -> bool:
        """Tell whether jobs are found by processes, which nothing tells of."""
        ...

    @property
    def layout(self) -> str:
        """Tell how jobs are found, in the words of ``NodeJobs.layout``."""
        ...

    @property
    def stale_cgroups(self) -> int:
        """Tell how many cgroups of ended jobs were left behind."""
        ...

    def watch_paths(self) -> list[Path]:
        """Return where jobs come and go."""
        ...


class JobTracker:
    """Run the thread; ``with`` starts and ends it. Without it each snapshot still reads all jobs of that moment."""

    def __init__(
        self,
        finder: TrackerFinder,
        book: JobRegistry,
        changes: ChangeWatcher,
        *,
        available: Callable[[], dict[str, bool]] = dict,
        credit: CpuBudget | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take over the changes, which are closed at the end; ``available`` tells which sources can be read.

        ``credit`` says what may be used while jobs and steps come and go without end.
        """
        self._finder = finder
        self._book = book
        self._changes = changes
        self._available = available
        self._clock = clock
        self._credit = credit or CpuBudget(STORM_SHARE, STORM_BURST_SECONDS)
        self._look_at = self._looked_at = self._read_at = 0.0
        self._unwatched: set[TrackedJob] = set()
        self._job_of: dict[int, TrackedJob] = {}
        self._requests: queue.SimpleQueue[Future[NodeJobs]] = queue.SimpleQueue()
        self._is_stopping = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start the thread; jobs that are here already are read at once."""
        self._thread = threading.Thread(target=self._run, name="job-tracker", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and give all watches back; closing twice is fine."""
        if self._is_stopping:
            return
        self._is_stopping = True
        if self._thread is not None:
            self._changes.wake()
            self._thread.join(END_SECONDS)
            if self._thread.is_alive():  # it reads from a kernel that does not answer: it has to keep what it has open
                logger.error("the job tracker does not end")
                return
        for request in self._take_requests():
            request.cancel()
        self._changes.close()

    def snapshot(self) -> NodeJobs:
        """Read all jobs now, and add those that ended a short time ago; raise SourceError when that fails."""
        if self._is_stopping:
            raise SourceError("jobs are not tracked any more: the agent ends")
        if self._thread is None:
            return self._snapshot()
        request: Future[NodeJobs] = Future()
        self._requests.put(request)
        self._changes.wake()
        try:
            return request.result(ANSWER_SECONDS)
        except FutureTimeout:
            raise SourceError(f"the jobs could not be read within {ANSWER_SECONDS:g} s") from None
        except CancelledError:
            raise SourceError("jobs are not tracked any more: the agent ends") from None

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                self._turn()
            except SourceError as error:
                logger.error("tracking jobs failed", extra=fields(error=str(error)))
                self._changes.rest(FAILED_PAUSE_SECONDS)
            except Exception:  # a bug in one turn must not end the tracking
                logger.exception("tracking jobs failed")
                self._changes.rest(FAILED_PAUSE_SECONDS)

    def _turn(self) -> None:
        """Sleep, do what there is to do, and answer who asks."""
        began = time.thread_time()
        with self._credit.charged():
            self._hear(self._changes.wait(self._sleep_seconds()))
        if self._credit.low_seconds() > 0:
            # What happens meanwhile waits in the kernel and is handled all at once.
            self._changes.rest(max(STORM_GAP_SECONDS, (time.thread_time() - began) / self._credit.share))
        else:
            with self._credit.charged():
                self._read_young()
                if self._clock() >= self._look_at:
                    self._look()
        self._answer()

    def _sleep_seconds(self) -> float:
        due = self._book.next_due_seconds()
        until = self._look_at if due is None else min(due, self._look_at)
        return max(until - self._clock(), self._credit.low_seconds(), 0.0)

    def _hear(self, heard: WakeUp) -> None:
        """Read at once the jobs of which something went away, and see to it that the others are looked at soon."""
        if not heard.events and not heard.ended_pids:
            return
        ended = [self._job_of.pop(pid, None) for pid in heard.ended_pids]
        gone = [event for event in heard.events if event.change & LEAVING]
        told = self._book.jobs_at({name for event in gone for name in _names(event)})
        leaving = {tracked.key: tracked for tracked in (*ended, *told) if tracked is not None}
        for tracked in leaving.values():
            self._book.read_cgroup(tracked)
        for tracked in leaving.values():
            if not tracked.has_many_processes and self._credit.low_seconds() == 0:
                self._book.read(tracked)
        self._unwatched.update(leaving.values())
        self._unwatched.update(self._book.jobs_at({name for event in heard.events for name in _names(event)}))
        self._look_soon()

    def _look_soon(self) -> None:
        """Look when the flurry is over in which slurmstepd makes or removes folders, and not too often."""
        now = self._clock()
        self._look_at = min(self._look_at, max(now + FLURRY_SECONDS, self._looked_at + LOOK_GAP_SECONDS))

    def _read_young(self) -> None:
        young = self._book.take_due()
        if any(tracked.job.uid is None for tracked in young):
            self._look()  # v2 shows whose a job is only by its processes, and a look asks them
        for tracked in young:
            self._book.read(tracked)
        if young:
            self._watch(young)

    def _look(self) -> None:
        """Find jobs that came and went, until all their folders are watched."""
        began = time.thread_time()
        for _ in range(LOOKS_AT_ONCE):
            begun = self._book.look()
            unwatched, self._unwatched = self._unwatched, set()
            if not self._watch({*begun, *unwatched}):
                break
        is_told = not (self._changes.is_polling or self._finder.uses_processes)
        if not is_told or self._clock() >= self._read_at + LOOK_SECONDS:
            self._read_at = self._clock()
            for tracked in self._book.live:
                self._book.read_cgroup(tracked)
        cost = time.thread_time() - began
        self._looked_at = self._clock()
        self._look_at = self._looked_at + (LOOK_SECONDS if is_told else max(POLL_SECONDS, POLL_COST_FACTOR * cost))

    def _watch(self, tracked_jobs: Iterable[TrackedJob]) -> bool:
        """Watch the folders of all jobs, and the tasks of these; tell whether a folder is new."""
        for tracked in tracked_jobs:
            if self._book.is_live(tracked):
                self._book.look_into(tracked)
                self._watch_leaders(tracked)
        for pid in [pid for pid, tracked in self._job_of.items() if not self._book.is_live(tracked)]:
            del self._job_of[pid]
            self._changes.forget_process(pid)
        paths = (path for tracked in self._book.live for path in tracked.watched)
        return self._changes.watch({*self._finder.watch_paths(), *paths})

    def _watch_leaders(self, tracked: TrackedJob) -> None:
        pids = tracked.leaders()
        self._job_of.update(dict.fromkeys(self._changes.watch_processes(pids), tracked))

    def _snapshot(self) -> NodeJobs:
        self._read_at = self._clock()
        self._look()
        for tracked in self._book.live:
            # Reading hundreds of processes takes its time; a job that ends meanwhile comes first.
            self._hear(self._changes.wait(0.0))
            if self._book.is_live(tracked):
                self._book.read(tracked)
        return NodeJobs(
            jobs=self._book.uses(),
            layout=self._finder.layout,
            available={**self._available(), "inotify": not self._changes.is_polling},
            stale_cgroups=self._finder.stale_cgroups,
        )

    def _answer(self) -> None:
        requests = self._take_requests()
        if not requests:
            return
        try:
            jobs = self._snapshot()
        except Exception as error:  # noqa: BLE001 - whoever asked gets it
            for request in requests:
                request.set_exception(error)
        else:
            for request in requests:
                request.set_result(jobs)

    def _take_requests(self) -> list[Future[NodeJobs]]:
        requests: list[Future[NodeJobs]] = []
        while not self._requests.empty():
            requests.append(self._requests.get_nowait())
        return requests


def _names(event: Event) -> tuple[str, ...]:
    return (*event.path.parts, event.name) if event.path is not None else ()
