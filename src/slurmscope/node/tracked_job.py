# SPDX-License-Identifier: Apache-2.0
"""Track one job over its readings, so that its totals count from its start and never decrease."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass, replace
from pathlib import Path

from slurmscope.node.job_finder import JobMeter, LiveJob, StepFolders
from slurmscope.node.job_use import (
    WHOLE_JOB,
    CgroupUse,
    GroupKey,
    JobKey,
    JobUse,
    completed,
    continued,
    has_restarted,
    is_missing_something,
    is_same_run,
)
from slurmscope.node.kept_totals import KeptJob

# Ended steps that are still served, per job.
PAST_GROUP_LIMIT = 1000
MANY_PROCESSES = 64
# A cgroup that was created again shows its first step within milliseconds.
CONFIRM_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierSteps:
    """The totals that a job continues from if its next step creates its cgroup again."""

    use: JobUse
    steps: frozenset[str]
    reader: JobMeter


class TrackedJob:
    """The state of one job that has not ended."""

    def __init__(self, job: LiveJob, reader: JobMeter, *, earlier: EarlierSteps | None, now: float) -> None:
        """Take the job, and its totals if it had a cgroup here before; ``now`` is a monotonic time."""
        self.job = job
        self.key: JobKey = job.key
        # Events name the job by its directory; empty if it has none.
        self.folder_name = job.path.name if job.path else ""
        self.watched: tuple[Path, ...] = ()
        self.read_at = 0.0
        # What the next reading of all processes will probably take.
        self.cost_seconds = 0.0
        self._reader = reader
        self._steps: frozenset[str] = frozenset()
        self._unconfirmed = earlier
        self._unconfirmed_until = now + CONFIRM_SECONDS
        self._base: JobUse | None = None
        self._last: JobUse | None = None
        self._past: dict[GroupKey, tuple[float, CgroupUse]] = {}
        self._has_read_peak = False
        # How many idle processes were left when the peak was read after all others had ended; None before that.
        self._left: int | None = None

    @property
    def use(self) -> JobUse:
        """Return what the job has used, as far as it is known."""
        if self._unconfirmed is not None:
            # It may be a new run or the same one: until that is known, the earlier totals are served.
            return self._unconfirmed.use
        last = self._last or JobUse(key=self.key, uid=self.job.uid)
        use = continued(self._base, last) if self._base else last
        if not self._past:
            return use
        return replace(use, groups={**{key: group for key, (_, group) in self._past.items()}, **use.groups})

    def update_steps(self, folders: StepFolders, now: float) -> None:
        """Store which steps the job has, and continue from the earlier totals if it is the same run."""
        self.watched = folders.watched
        if folders.steps - self._steps:
            self._left = None
        self._steps |= folders.steps
        if self._unconfirmed is None or (not self._steps and now < self._unconfirmed_until):
            return
        earlier, self._unconfirmed = self._unconfirmed, None
        if is_same_run(earlier.steps, self._steps):
            self._base, self._reader = earlier.use, earlier.reader
            self._steps |= earlier.steps

    def read(self, now: float, seconds: float) -> bool:
        """Read everything; return False if the counters belong to another cgroup than before.

        Processes that take longer than so many seconds keep their last values.
        """
        self.read_at = now
        self._has_read_peak = False
        use = self._reader.read(self.job, seconds)
        if use and use.processes and self._left is not None and use.processes.processes > self._left:
            self._left = None
        return self._store(use, now)

    @property
    def was_cut(self) -> bool:
        """Return whether the processes kept their values at the last reading, because they took too long."""
        return self._reader.was_cut

    @property
    def user(self) -> Hashable:
        """Return whom the time of readings is charged to; the job itself while its user is not known."""
        return self.key if self.job.uid is None else self.job.uid

    def read_cgroup(self, now: float) -> bool:
        """Read the cgroups only; return False if the counters belong to another cgroup than before."""
        self._has_read_peak = False
        use, last = self._reader.read_cgroup(self.job), self._last
        if use is not None and last is not None:
            use = replace(
                use, processes=last.processes, are_processes_read=False, pids=last.pids, environment=last.environment
            )
        return self._store(use, now)

    def keep(self) -> KeptJob:
        """Return what a new agent needs to continue the totals."""
        return self._reader.keep(self.job)

    def resume(self, kept: KeptJob) -> None:
        """Continue the totals of an agent that ran before."""
        self._reader.resume(self.job, kept)

    def release(self) -> None:
        """Close all descriptors of a job that has ended."""
        self._reader.release()

    def check_end(self) -> None:
        """Note whether the reading of the cgroups just now came after the last process that may need memory."""
        if self._has_read_peak:
            self._left = self._reader.count_left(self.job)

    @property
    def has_many_processes(self) -> bool:
        """Return whether reading the processes takes too long while the job may be ending."""
        processes = self._last.processes if self._last else None
        return processes is not None and processes.processes > MANY_PROCESSES

    def leaders(self) -> Collection[int]:
        """List the processes whose end means that a task has ended."""
        return self._reader.leaders(self.job)

    def unreadable(self) -> list[tuple[str, str]]:
        """Return the files of the job's cgroups that could not be read, with the error."""
        groups = self._last.groups.values() if self._last else ()
        return [item for group in groups if group.unreadable for item in group.unreadable.items()]

    def drop_ended_steps(self, now: float, grace_seconds: float) -> None:
        """Stop serving steps that ended longer ago than the grace period."""
        for key in [key for key, (ended, _) in self._past.items() if ended + grace_seconds <= now]:
            del self._past[key]

    def ended_use(self) -> JobUse:
        """Return what the job has used when it has ended, and whether its peak of memory can be the last one."""
        is_final = self._left is not None and (self._base is None or self._base.is_peak_final)
        return replace(self.use, has_ended=True, is_peak_final=is_final)

    def earlier_steps(self) -> EarlierSteps | None:
        """Return the totals to continue from; None if the cgroup cannot be created again in the same run."""
        if not self._steps or not all(step.isdecimal() for step in self._steps):
            return None
        return EarlierSteps(use=self.ended_use(), steps=self._steps, reader=self._reader)

    def _store(self, use: JobUse | None, now: float) -> bool:
        if use is None:
            return True
        whole = use.groups.get(WHOLE_JOB)
        self._has_read_peak = whole is not None and whole.memory.peak_bytes is not None
        if self._last is not None:
            if has_restarted(self._last, use):
                return False
            if is_missing_something(self._last, use):
                use = completed(self._last, use)
            for key in self._last.groups.keys() - use.groups.keys():
                if len(self._past) < PAST_GROUP_LIMIT:
                    self._past[key] = (now, self._last.groups[key])
        self._last = use
        return True
