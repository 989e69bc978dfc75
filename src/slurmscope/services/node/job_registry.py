# SPDX-License-Identifier: Apache-2.0
"""Keep the books of all jobs of a node: who came, who is here, who has ended and with which numbers.

For one thread; nothing here waits.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from slurmscope.model.job_use import JobKey, JobUse
from slurmscope.services.node.job_finding import StepFolders
from slurmscope.services.node.job_reading import LiveJob
from slurmscope.services.node.tracked_job import EarlierSteps, ReadsJob, TrackedJob

# A young job is read at these ages, so that one that ends before the next scrape has left its numbers.
YOUNG_SECONDS = (0.03, 0.1, 0.5, 2.0)
ENDED_LIMIT = 10_000


class JobSource(Protocol):
    """Find the jobs that are here now."""

    def scan(self) -> Mapping[JobKey, LiveJob]:
        """Return them; the same job is the same object at each scan."""
        ...

    def look_into(self, job: LiveJob) -> StepFolders:
        """List the steps of a job."""
        ...


@dataclass(frozen=True, slots=True)
class _Ended:
    """Remember a job that is gone; ``former`` is set where it may come back with its next step."""

    use: JobUse
    until_seconds: float
    former: EarlierSteps | None


class JobRegistry:
    """Hold live and ended jobs."""

    def __init__(
        self,
        finder: JobSource,
        open_reading: Callable[[], ReadsJob],
        *,
        grace_seconds: float = 60.0,
        ended_limit: int = ENDED_LIMIT,
        young_seconds: Iterable[float] = YOUNG_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take how long ended jobs are served, how many of them at most, and when young ones are read."""
        self._finder = finder
        self._open_reading = open_reading
        self._grace_seconds = grace_seconds
        self._ended_limit = ended_limit
        self._young_seconds = tuple(young_seconds)
        self._clock = clock
        self._live: dict[JobKey, TrackedJob] = {}
        self._ended: OrderedDict[JobKey, _Ended] = OrderedDict()
        self._due: list[tuple[float, int, TrackedJob]] = []
        self._order = itertools.count()
        self.forgotten = 0

    @property
    def live(self) -> tuple[TrackedJob, ...]:
        """Give the jobs that are here."""
        return tuple(self._live.values())

    def look(self) -> list[TrackedJob]:
        """Notice who came and who went, and give the newcomers; their cgroups are read at once."""
        found = self._finder.scan()
        begun = []
        for key in self._live.keys() - found.keys():
            self._end(key)
        for key, job in found.items():
            known = self._live.get(key)
            if known is not None and known.job is job:
                continue
            if known is not None:  # its folder was removed and made anew between two looks
                self._end(key)
            begun.append(self._begin(key, job))
        return begun

    def read(self, tracked: TrackedJob) -> None:
        """Read a job with all its processes."""
        self._take(tracked, tracked.read)

    def read_cgroup(self, tracked: TrackedJob) -> None:
        """Read the cgroups of a job only, which takes a tenth of the time."""
        self._take(tracked, tracked.read_cgroup)

    def look_into(self, tracked: TrackedJob) -> None:
        """List the steps of a job again."""
        tracked.take_folders(self._finder.look_into(tracked.job), self._clock())

    def is_live(self, tracked: TrackedJob) -> bool:
        """Tell whether a job is still here, in the same life."""
        return self._live.get(tracked.key) is tracked

    def jobs_at(self, names: Collection[str]) -> list[TrackedJob]:
        """Give the jobs whose folder has one of these names; two nodes on one machine may both have a part of a job."""
        return [tracked for tracked in self.live if tracked.folder_name in names and tracked.folder_name]

    def next_due_seconds(self) -> float | None:
        """Tell when a young job is to be read again."""
        return self._due[0][0] if self._due else None

    def take_due(self) -> list[TrackedJob]:
        """Give the young jobs whose time has come."""
        now, due = self._clock(), []
        while self._due and self._due[0][0] <= now:
            _, _, tracked = heapq.heappop(self._due)
            if self.is_live(tracked):
                due.append(tracked)
        return due

    def uses(self) -> tuple[JobUse, ...]:
        """Give the last numbers of every job, the live ones first; ended ones until their time is over."""
        now = self._clock()
        while self._ended and next(iter(self._ended.values())).until_seconds <= now:
            self._ended.popitem(last=False)
        for tracked in self.live:
            tracked.forget_past(now, self._grace_seconds)
        live = (tracked.use for tracked in self.live)
        return (*live, *(ended.use for ended in self._ended.values()))

    def _take(self, tracked: TrackedJob, read: Callable[[float], bool]) -> None:
        if self.is_live(tracked) and not read(self._clock()):
            # The counters fell: another cgroup under the same name.
            self._end(tracked.key)
            self._begin(tracked.key, tracked.job)

    def _begin(self, key: JobKey, job: LiveJob) -> TrackedJob:
        ended = self._ended.pop(key, None)
        now = self._clock()
        tracked = TrackedJob(job, self._open_reading(), former=ended.former if ended else None, now=now)
        self._live[key] = tracked
        for age in self._young_seconds:
            heapq.heappush(self._due, (now + age, next(self._order), tracked))
        if ended is not None:
            self.look_into(tracked)
        tracked.read_cgroup(now)
        return tracked

    def _end(self, key: JobKey) -> None:
        tracked = self._live.pop(key)
        use = replace(tracked.use, has_ended=True)
        self._ended[key] = _Ended(use, self._clock() + self._grace_seconds, tracked.former())
        while len(self._ended) > self._ended_limit:
            self._ended.popitem(last=False)
            self.forgotten += 1
