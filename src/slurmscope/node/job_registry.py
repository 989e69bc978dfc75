# SPDX-License-Identifier: Apache-2.0
"""Keep all jobs of a node: which are running, which have ended, and their last values.

For one thread; nothing here blocks.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from slurmscope.core.errors import SourceError
from slurmscope.core.log import fields
from slurmscope.core.rate_limit import TokenBuckets
from slurmscope.node.job_finder import JobFinder, JobMeter, LiveJob
from slurmscope.node.job_use import GroupKey, JobKey, JobUse, NodeJobs, Roster
from slurmscope.node.kept_totals import KeptJob, TotalsFile
from slurmscope.node.tracked_job import EarlierSteps, TrackedJob

logger = logging.getLogger(__name__)

JOB_SECONDS = 2.0
USER_SECONDS = 3.0
USER_SHARE = 0.2


class ReadingTime:
    """Share the time for reading processes between users, so that no job of one makes the numbers of others old.

    A job may have a hundred thousand processes, files or threads, or such that are slow to read, and the next trick
    is not known. So time is measured, whatever it is spent on: each user has some seconds at once, and a share of each
    second after that. Of jobs of a user who has none left, only the cgroups are read.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds = TokenBuckets(USER_SHARE, USER_SECONDS, clock=clock)

    def left(self, user: Hashable) -> float:
        """Return how many seconds the next job of a user may take; none or less if it must not be read."""
        return min(JOB_SECONDS, self._seconds.left(user))

    @contextmanager
    def charged(self, user: Hashable) -> Iterator[None]:
        """Charge the time of the block to a user."""
        began = self._clock()
        try:
            yield
        finally:
            # A machine that stood still meanwhile must not keep the user's jobs from being read for minutes.
            self._seconds.spend(self._clock() - began, user, most_debt=USER_SECONDS)


WHOLE_JOB = "job"
LATE = "process_time"
# With more than that, nothing would ever be left to read a job again that took too long.
MAX_COST_SECONDS = 0.9 * JOB_SECONDS


class ReadErrors:
    """Count failed reads by kind, and log the first of each kind."""

    def __init__(self) -> None:
        """Count failures of whole jobs from the start, so that the first one shows as an increase."""
        self._counts: Counter[str] = Counter({WHOLE_JOB: 0})
        self._others: dict[str, Mapping[str, int]] = {}

    def include(self, prefix: str, counts: Mapping[str, int]) -> None:
        """Add failures that are counted elsewhere to the totals, under a prefix."""
        self._others[prefix] = counts

    def totals(self) -> dict[str, int]:
        """Return all failures since the start."""
        others = {f"{prefix}_{what}": n for prefix, counts in self._others.items() for what, n in counts.items()}
        return {**self._counts, **others}

    def add(self, what: str, error: str, *, job_id: int) -> None:
        if not self._counts[what]:
            logger.warning("cannot read a job completely", extra=fields(what, what=what, job=job_id, error=error))
        self._counts[what] += 1


# A new job is read at these ages, so that one that ends before the next scrape still has values.
YOUNG_SECONDS = (0.03, 0.1, 0.5, 2.0)
ENDED_LIMIT = 10_000
PAUSED_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class _Ended:
    use: JobUse
    until_seconds: float


class JobRegistry:
    """Running jobs, and ended ones for a grace period."""

    def __init__(
        self,
        finder: JobFinder,
        make_reader: Callable[[], JobMeter],
        *,
        grace_seconds: float = 60.0,
        ended_limit: int = ENDED_LIMIT,
        young_seconds: Iterable[float] = YOUNG_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take how long and how many ended jobs are served, and at which ages new jobs are read."""
        self._finder = finder
        self._make_reader = make_reader
        self._grace_seconds = grace_seconds
        self._ended_limit = ended_limit
        self._young_seconds = tuple(young_seconds)
        self._clock = clock
        self._totals_file = TotalsFile(None, "")
        self._kept: dict[JobKey, KeptJob] = {}
        self._live: dict[JobKey, TrackedJob] = {}
        self._in_folder: defaultdict[str, set[TrackedJob]] = defaultdict(set)
        self._is_first_scan = True
        self._ended: OrderedDict[JobKey, _Ended] = OrderedDict()
        # Their next step may create their cgroup again, also long after the grace period: such a job has no cgroup
        # between two steps, however long the pause.
        self._paused: OrderedDict[JobKey, EarlierSteps] = OrderedDict()
        self._due: list[tuple[float, int, TrackedJob]] = []
        self._order = itertools.count()
        self.errors = ReadErrors()
        self._time = ReadingTime(clock)
        self._failing: set[TrackedJob] = set()
        # Replaced as a whole, so that other threads may read it.
        self.roster = Roster()

    @property
    def live(self) -> tuple[TrackedJob, ...]:
        """Return the jobs that have not ended."""
        return tuple(self._live.values())

    def scan(self) -> list[TrackedJob]:
        """Find new and ended jobs, and return the new ones; their cgroups are read at once."""
        found = self._finder.scan()
        begun = []
        for key in self._live.keys() - found.keys():
            self._end(key)
        for key, job in found.items():
            known = self._live.get(key)
            if known is not None and known.job is job:
                continue
            if known is not None:  # its directory was removed and created again between two scans
                self._end(key)
            begun.append(self._begin(key, job))
        # Jobs that begin later are other runs.
        self._is_first_scan, self._kept = False, {}
        return begun

    def read(self, tracked: TrackedJob) -> None:
        """Read everything of a job; only its cgroups if that takes more time than its user has left."""
        seconds = self._time.left(tracked.user)
        if seconds <= tracked.cost_seconds:
            self.read_late(tracked)
            return
        began = self._clock()
        with self._time.charged(tracked.user):
            self._read(tracked, lambda now: tracked.read(now, seconds))
        tracked.cost_seconds = min(self._clock() - began, MAX_COST_SECONDS)
        if tracked.was_cut:
            tracked.cost_seconds = MAX_COST_SECONDS
            self._count_late(tracked)

    def read_late(self, tracked: TrackedJob) -> None:
        """Read the cgroups of a job whose processes have to wait for a later reading."""
        self._count_late(tracked)
        self.read_cgroup(tracked)

    def _count_late(self, tracked: TrackedJob) -> None:
        self.errors.add(LATE, "reading the processes takes too long", job_id=tracked.key.job_id)

    def read_cgroup(self, tracked: TrackedJob) -> None:
        """Read the cgroups of a job only, which takes a tenth of the time."""
        self._read(tracked, tracked.read_cgroup)

    def check_end(self, tracked: TrackedJob) -> None:
        """Note whether the cgroups of a job were just read for the last time that matters."""
        self._attempt(tracked, tracked.check_end)

    def update_steps(self, tracked: TrackedJob) -> None:
        tracked.update_steps(self._finder.list_steps(tracked.job), self._clock())

    def leaders(self, tracked: TrackedJob) -> Collection[int]:
        """List the processes whose end means that a task of the job has ended."""
        leaders: list[int] = []
        self._attempt(tracked, lambda: leaders.extend(tracked.leaders()))
        return leaders

    def is_live(self, tracked: TrackedJob) -> bool:
        """Return whether a job has not ended, and is still the same run."""
        return self._live.get(tracked.key) is tracked

    def jobs_at(self, names: Collection[str]) -> list[TrackedJob]:
        """Return the jobs whose directory has one of these names; several slurmd on one machine may share a job."""
        known = (self._in_folder[name] for name in names if name in self._in_folder)
        return [tracked for jobs in known for tracked in jobs]

    def next_due_seconds(self) -> float | None:
        """Return the time of the next read of a new job."""
        return self._due[0][0] if self._due else None

    def take_due(self) -> list[TrackedJob]:
        """Return the new jobs that are due to be read and were not read since."""
        now, due = self._clock(), {}
        while self._due and self._due[0][0] <= now:
            due_at, _, tracked = heapq.heappop(self._due)
            if self.is_live(tracked) and tracked.read_at < due_at:
                due[tracked.key] = tracked
        return list(due.values())

    def uses(self) -> tuple[JobUse, ...]:
        """Return the last values of every job, running ones first; ended ones for the grace period."""
        now = self._clock()
        while self._ended and next(iter(self._ended.values())).until_seconds <= now:
            self._ended.popitem(last=False)
        for tracked in self.live:
            tracked.drop_ended_steps(now, self._grace_seconds)
        live = (tracked.use for tracked in self.live if tracked not in self._failing)
        return (*live, *(ended.use for ended in self._ended.values()))

    def resume(self, totals_file: TotalsFile) -> None:
        """Continue the totals of the agent that ran before, and keep them in this file from now on."""
        self._totals_file, self._kept = totals_file, totals_file.read()

    def keep_totals(self) -> None:
        """Write what a new agent needs to continue the totals."""
        if not self._totals_file.is_kept:
            return
        kept: list[KeptJob] = []
        for tracked in self.live:
            if tracked not in self._failing:
                self._attempt(tracked, lambda: kept.append(tracked.keep()))  # noqa: B023 - called at once
        self._totals_file.write(kept)

    def _read(self, tracked: TrackedJob, read: Callable[[float], bool]) -> None:
        def read_now() -> None:
            if not read(self._clock()):
                # The counters decreased: it is another cgroup with the same name.
                self._end(tracked.key)
                self._begin(tracked.key, tracked.job)

        if self.is_live(tracked) and self._attempt(tracked, read_now):
            self._failing.discard(tracked)
            for file, error in tracked.unreadable():
                self.errors.add(f"cgroup_{file}", error, job_id=tracked.key.job_id)

    def _attempt(self, tracked: TrackedJob, work: Callable[[], object]) -> bool:
        """Do something with one job; a failure affects only that job, unless it concerns all of them."""
        try:
            work()
        except SourceError:
            raise
        except Exception as error:
            self.errors.add(WHOLE_JOB, repr(error), job_id=tracked.key.job_id)
            logger.debug("reading a job failed", exc_info=True)
            self._failing.add(tracked)
            return False
        return True

    def _begin(self, key: JobKey, job: LiveJob) -> TrackedJob:
        self._ended.pop(key, None)
        now = self._clock()
        earlier = self._paused.pop(key, None)
        tracked = TrackedJob(job, self._make_reader(), earlier=earlier, now=now)
        self._live[key] = tracked
        if (kept := self._kept.pop(key, None)) is not None:
            self._attempt(tracked, lambda: tracked.resume(kept))
        self._update_roster(begun=self.roster.begun + 1, last=key)
        if tracked.folder_name:
            self._in_folder[tracked.folder_name].add(tracked)
        # Jobs older than the agent are not about to end, and may be thousands.
        for age in self._young_seconds[:1] if self._is_first_scan else self._young_seconds:
            heapq.heappush(self._due, (now + age, next(self._order), tracked))
        if earlier is not None:
            self.update_steps(tracked)
        self._attempt(tracked, lambda: tracked.read_cgroup(now))
        return tracked

    def _end(self, key: JobKey) -> None:
        tracked = self._live.pop(key)
        tracked.release()
        self._update_roster(begun=self.roster.begun, last=self.roster.last)
        self._failing.discard(tracked)
        self._leave_folder(tracked)
        self._ended[key] = _Ended(tracked.ended_use(), self._clock() + self._grace_seconds)
        if (earlier := tracked.earlier_steps()) is not None:
            self._paused[key] = earlier
        while len(self._ended) > self._ended_limit:
            self._ended.popitem(last=False)
        while len(self._paused) > PAUSED_LIMIT:
            self._paused.popitem(last=False)

    def _update_roster(self, *, begun: int, last: JobKey | None) -> None:
        alone = next(iter(self._live)) if len(self._live) == 1 else None
        self.roster = Roster(begun=begun, running=len(self._live), last=last, alone=alone)

    def _leave_folder(self, tracked: TrackedJob) -> None:
        jobs = self._in_folder.get(tracked.folder_name, set())
        jobs.discard(tracked)
        if not jobs:
            self._in_folder.pop(tracked.folder_name, None)


class NodeJobsReader:
    """Read all jobs, and add user names and the cores kept busy since the previous reading."""

    def __init__(
        self,
        snapshot: Callable[[], NodeJobs],
        name_of: Callable[[int], str],
        clock: Callable[[], float] = time.monotonic,
        *,
        host_name: str = "",
    ) -> None:
        """Take the function that reads all jobs, and the one that looks up user names."""
        self.last = NodeJobs()
        self._snapshot = snapshot
        self.name_of = name_of
        self._clock = clock
        self._host_name = host_name
        self._before: dict[JobKey, tuple[float, float]] = {}

    def last_pids(self, key: JobKey) -> frozenset[int]:
        """Return the processes that a job had at the last reading."""
        return frozenset().union(*(job.pids for job in self.last.jobs if job.key == key and not job.has_ended))

    def read(self) -> NodeJobs:
        """Return the current jobs with user names and busy cores."""
        jobs, now = self._snapshot(), self._clock()
        before, self._before = self._before, {}
        with_rates = []
        for job in jobs.jobs:
            cpu_seconds = job.groups[GroupKey()].cpu.total_seconds if GroupKey() in job.groups else None
            if cpu_seconds is None or job.has_ended:
                with_rates.append(job)
                continue
            self._before[job.key] = (now, cpu_seconds)
            then, spent = before.get(job.key, (now, cpu_seconds))
            busy_cores = max(0.0, cpu_seconds - spent) / (now - then) if now > then else None
            with_rates.append(replace(job, busy_cores=busy_cores))
        users = {job.uid: self.name_of(job.uid) for job in jobs.jobs if job.uid is not None}
        self.last = replace(jobs, jobs=tuple(with_rates), users=users, host_name=self._host_name)
        return self.last
