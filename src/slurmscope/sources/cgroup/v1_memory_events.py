# SPDX-License-Identifier: Apache-2.0
"""Add up how often a v1 cgroup and those below it hit their memory limit or had a process OOM-killed.

On v2 the kernel counts events for a whole subtree. On v1 each folder counts only its own: a kill is counted in the
folder of the killed task, a reached limit in the folder that has the limit. Slurm removes these folders when a step
ends, so their last counts are kept.
"""

from __future__ import annotations

from collections.abc import Callable

from slurmscope.sources.cgroup.batch import Batch
from slurmscope.sources.cgroup.files import count_of, parse_number
from slurmscope.sources.cgroup.folders import FOLDER_SECONDS, CgroupFolder, RereadTimer
from slurmscope.sources.cgroup.kept_files import DescriptorBudget


class MemoryEvents:
    """Count the events of one folder and of all below it; the counts never decrease."""

    def __init__(self, cgroup: CgroupFolder, budget: DescriptorBudget, clock: Callable[[], float]) -> None:
        """Set a folder of the memory hierarchy and a monotonic clock."""
        self._cgroup = cgroup
        self._budget = budget
        self._timer = RereadTimer(clock, cgroup.folder.path, FOLDER_SECONDS)
        self._counters: dict[CgroupFolder, _Counters] = {}
        self._batch = Batch(budget)
        self._texts: list[bytes] = []
        self._ended_limits = 0
        self._ended_kills = 0
        self._counts: dict[str, int] = {}

    def read(self) -> dict[str, int]:
        """Return the counts by their v2 names; counts that the kernel does not have are absent."""
        if not self._cgroup.is_settled() or self._timer.is_due():
            self._follow()
        texts = self._batch.read()
        if texts != self._texts:
            self._take(texts)
            if any(cgroup.folder.is_gone for cgroup in self._counters):  # another step may have started instead
                self._follow()
                self._take(self._batch.read())
            self._add_up()
        return self._counts

    def _follow(self) -> None:
        before, self._counters = self._counters, {}
        for cgroup in self._cgroup.walk() if self._cgroup.refresh() else ():
            known = before.pop(cgroup, None)
            self._counters[cgroup] = _Counters(cgroup) if known is None else known
        for counters in before.values():
            self._ended_limits += counters.limits or 0
            self._ended_kills += counters.kills or 0
        files = [file for counters in self._counters.values() for file in counters.files]
        self._batch = Batch(self._budget, files)
        self._texts = []

    def _take(self, texts: list[bytes]) -> None:
        self._texts = texts
        for counters, failures, oom_control in zip(self._counters.values(), texts[::2], texts[1::2], strict=True):
            counters.take(failures, oom_control)

    def _add_up(self) -> None:
        limits = [counters.limits for counters in self._counters.values() if counters.limits is not None]
        kills = [counters.kills for counters in self._counters.values() if counters.kills is not None]
        counts = dict(self._counts)
        if limits:
            counts["max"] = sum(limits) + self._ended_limits
        if kills:
            counts["oom_kill"] = sum(kills) + self._ended_kills
        self._counts = counts


class _Counters:
    """Hold the counters of one folder; None where the kernel has none. A failed read keeps the last count."""

    __slots__ = ("files", "kills", "limits")

    def __init__(self, cgroup: CgroupFolder) -> None:
        self.limits: int | None = None
        self.kills: int | None = None
        self.files = tuple(cgroup.folder.open_file(name) for name in ("memory.failcnt", "memory.oom_control"))

    def take(self, failures: bytes, oom_control: bytes) -> None:
        limits = parse_number(failures)
        self.limits = self.limits if limits is None else limits
        # Kernels before 4.13 do not count kills.
        kills = count_of(oom_control, b"oom_kill")
        self.kills = self.kills if kills is None else kills
