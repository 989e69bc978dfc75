# SPDX-License-Identifier: Apache-2.0
"""Add up how often a cgroup v1 and those below it met their memory limit.

On v2 the kernel counts events for a whole subtree. On v1 each folder counts its own only: a kill is counted in the
folder of the killed task, a full limit in the folder whose limit it was. Slurm removes these folders when a step ends,
so what they showed last is kept.
"""

from __future__ import annotations

from collections.abc import Callable

from slurmscope.sources.cgroup.batch import Batch
from slurmscope.sources.cgroup.files import count_of, parse_number
from slurmscope.sources.cgroup.kept import DescriptorBudget
from slurmscope.sources.cgroup.nodes import SLOWEST_SECONDS, CgroupFolder
from slurmscope.sources.cgroup.pace import Pace


class EventCounts:
    """Count the events of one folder and of all below it; the counts never fall."""

    def __init__(self, node: CgroupFolder, budget: DescriptorBudget, clock: Callable[[], float]) -> None:
        """Take a folder of the memory hierarchy and a monotonic clock."""
        self._node = node
        self._budget = budget
        self._pace = Pace(clock, node.folder.path, SLOWEST_SECONDS)
        self._counters: dict[CgroupFolder, _Counters] = {}
        self._batch = Batch(budget)
        self._texts: list[bytes] = []
        self._ended_limits = 0
        self._ended_kills = 0
        self._counts: dict[str, int] = {}

    def read(self) -> dict[str, int]:
        """Return the counts under the names that v2 has for them; what the kernel does not count is absent."""
        if not self._node.is_settled() or self._pace.is_due():
            self._follow()
        texts = self._batch.read()
        if texts != self._texts:
            self._take(texts)
            if any(node.folder.is_gone for node in self._counters):  # another step may have come instead
                self._follow()
                self._take(self._batch.read())
            self._add_up()
        return self._counts

    def _follow(self) -> None:
        before, self._counters = self._counters, {}
        for node in self._node.walk() if self._node.look() else ():
            known = before.pop(node, None)
            self._counters[node] = _Counters(node) if known is None else known
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
    """Hold the counters of one folder; None where the kernel has none. What cannot be read leaves the last count."""

    __slots__ = ("files", "kills", "limits")

    def __init__(self, node: CgroupFolder) -> None:
        self.limits: int | None = None
        self.kills: int | None = None
        self.files = tuple(node.folder.open_file(name) for name in ("memory.failcnt", "memory.oom_control"))

    def take(self, failures: bytes, oom_control: bytes) -> None:
        limits = parse_number(failures)
        self.limits = self.limits if limits is None else limits
        # Kernels before 4.13 do not count kills.
        kills = count_of(oom_control, b"oom_kill")
        self.kills = self.kills if kills is None else kills
