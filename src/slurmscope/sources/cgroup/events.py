# SPDX-License-Identifier: Apache-2.0
"""Add up how often a cgroup v1 and those below it met their memory limit.

On v2 the kernel counts events for a whole subtree. On v1 each folder counts its own only: a kill is counted in the
folder of the killed task, a full limit in the folder whose limit it was. Slurm removes these folders when a step ends,
so what they showed last is kept.
"""

from __future__ import annotations

from collections.abc import Callable

from slurmscope.sources.cgroup.files import count_of, parse_number
from slurmscope.sources.cgroup.kept import KeptFile
from slurmscope.sources.cgroup.nodes import SLOWEST_SECONDS, Node
from slurmscope.sources.cgroup.pace import Pace


class EventCounts:
    """Count the events of one folder and of all below it; the counts never fall."""

    def __init__(self, node: Node, clock: Callable[[], float]) -> None:
        """Take a folder of the memory hierarchy and a monotonic clock."""
        self._node = node
        self._pace = Pace(clock, node.folder.path, SLOWEST_SECONDS)
        self._counters: dict[Node, _Counters] = {}
        self._ended_limits = 0
        self._ended_kills = 0
        self._counts: dict[str, int] = {}

    def read(self) -> dict[str, int]:
        """Return the counts under the names that v2 has for them; what the kernel does not count is absent."""
        if not self._node.is_settled() or self._pace.is_due():
            self._follow()
        changes = [counters.renew() for counters in self._counters.values()]
        if any(node.folder.is_gone for node in self._counters):  # another step may have come instead
            self._follow()
            changes = [counters.renew() for counters in self._counters.values()]
        if any(changes):
            self._add_up()
        return dict(self._counts)

    def _follow(self) -> None:
        before, self._counters = self._counters, {}
        for node in self._node.walk() if self._node.look() else ():
            known = before.pop(node, None)
            self._counters[node] = _Counters(node) if known is None else known
        for counters in before.values():
            self._ended_limits += counters.limits or 0
            self._ended_kills += counters.kills or 0

    def _add_up(self) -> None:
        limits = [counters.limits for counters in self._counters.values() if counters.limits is not None]
        kills = [counters.kills for counters in self._counters.values() if counters.kills is not None]
        if limits:
            self._counts["max"] = sum(limits) + self._ended_limits
        if kills:
            self._counts["oom_kill"] = sum(kills) + self._ended_kills


class _Counters:
    """Hold the counters of one folder; None where the kernel has none. What cannot be read leaves the last count."""

    __slots__ = ("_failures", "_failures_text", "_oom_control", "_oom_text", "kills", "limits")

    def __init__(self, node: Node) -> None:
        self.limits: int | None = None
        self.kills: int | None = None
        self._failures: KeptFile = node.folder.open_file("memory.failcnt")
        self._oom_control: KeptFile = node.folder.open_file("memory.oom_control")
        self._failures_text = self._oom_text = b""

    def renew(self) -> bool:
        """Read both files and tell whether they say something new."""
        failures, oom = self._failures.read(), self._oom_control.read()
        if failures == self._failures_text and oom == self._oom_text:
            return False
        self._failures_text, self._oom_text = failures, oom
        limits = parse_number(failures)
        self.limits = self.limits if limits is None else limits
        # Kernels before 4.13 do not count kills.
        kills = count_of(oom, b"oom_kill")
        self.kills = self.kills if kills is None else kills
        return True
