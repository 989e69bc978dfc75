# SPDX-License-Identifier: Apache-2.0
"""Read all processes of the machine and sum them by process group and by user."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass

from slurmscope.model.process_groups import ProcessGroup, ProcessTable, UserUse
from slurmscope.sources.procfs.reader import ProcessReader
from slurmscope.sources.procfs.stat import ProcessSample

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
USER_LIMIT = 10_000
"""Maximum number of users; those without processes are dropped first."""


class ProcessTableReader:
    """Keep the use of ended processes, so that the totals of groups and users do not decrease.

    ``name_of`` returns the name of a user ID and must not block.
    """

    def __init__(self, reader: ProcessReader, name_of: Callable[[int], str]) -> None:
        self._reader = reader
        self._name_of = name_of
        self._last: dict[int, ProcessSample] = {}
        self._groups: dict[int, _Group] = {}
        self._users: dict[int, _User] = {}

    def read(self, job_pids: Container[int] = ()) -> ProcessTable:
        """Read every process; those in ``job_pids`` belong to jobs and do not count for their user."""
        missed_before = self._missed()
        machine = _Machine(
            uptime_ticks=int(self._reader.uptime_seconds() * TICKS_PER_SECOND),
            memory_pages=self._reader.memory_bytes() // PAGE_BYTES,
        )
        samples = self._reader.read(self._reader.process_ids(), self._last)
        is_complete = missed_before == self._missed() and not self._reader.hides_processes()
        for user in self._users.values():
            user.processes = user.pages = 0
        self._sum_up(samples, job_pids, machine)
        self._drop_users()
        return ProcessTable(
            groups=tuple(group.freeze(self._name_of) for group in self._groups.values()),
            users=self._by_name(),
            is_complete=is_complete,
        )

    def _missed(self) -> int:
        denials = self._reader.denials
        return denials.counts.total() + denials.faults.total()

    def _sum_up(self, samples: Iterable[ProcessSample], job_pids: Container[int], machine: _Machine) -> None:
        seen: dict[int, ProcessSample] = {}
        groups: dict[int, _Group] = {}
        for sample in samples:
            pid = sample.pid
            seen[pid] = sample
            before = self._last.get(pid)
            is_known = before is not None and before.start_ticks == sample.start_ticks
            growth = _growth(before, sample) if before is not None and is_known else _ticks(sample)
            group = groups.get(sample.group_id)
            if group is None:
                groups[sample.group_id] = group = _Group(sample, machine)
            group.add(sample, growth, is_known=is_known)
            if pid in job_pids:
                group.has_job_processes = True
                continue
            user = self._users.get(sample.uid)
            if user is None:
                self._users[sample.uid] = user = _User()
            user.add(sample, growth)
        for group_id, group in groups.items():
            # None of its processes existed before: the group ID was reused.
            if group.is_known and group_id in self._groups:
                group.ticks += self._groups[group_id].ticks
        self._last, self._groups = seen, groups

    def _drop_users(self) -> None:
        excess = len(self._users) - USER_LIMIT
        if excess > 0:
            gone = [uid for uid, user in self._users.items() if not user.processes]
            for uid in gone[:excess]:
                del self._users[uid]

    def _by_name(self) -> tuple[UserUse, ...]:
        """Sum by name: two user IDs may have the same."""
        uses: dict[str, UserUse] = {}
        for uid, user in self._users.items():
            name = self._name_of(uid)
            other = uses.get(name)
            uses[name] = UserUse(
                user=name,
                processes=user.processes + (other.processes if other else 0),
                cpu_seconds=user.ticks / TICKS_PER_SECOND + (other.cpu_seconds if other else 0.0),
                resident_bytes=user.pages * PAGE_BYTES + (other.resident_bytes if other else 0),
            )
        return tuple(uses.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Machine:
    """Hold the machine totals that percentages refer to."""

    uptime_ticks: int
    memory_pages: int


def _ticks(sample: ProcessSample) -> int:
    return sample.user_ticks + sample.system_ticks


def _growth(before: ProcessSample, sample: ProcessSample) -> int:
    return 0 if sample is before else max(0, _ticks(sample) - _ticks(before))


def cpu_per_mille(ticks: int, elapsed_ticks: int) -> int:
    """Return %CPU times ten as ps shows it: since the start, truncated to tenths below 100 % and to units above."""
    per_mille = ticks * 1000 // elapsed_ticks if elapsed_ticks > 0 else 0
    return per_mille if per_mille <= 999 else per_mille // 10 * 10


def memory_per_mille(resident_pages: int, memory_pages: int) -> int:
    """Return %MEM times ten as ps shows it: truncated to tenths, and never 100."""
    return min(999, resident_pages * 1000 // memory_pages) if memory_pages else 0


class _Group:
    """Add up one process group."""

    __slots__ = ("_machine", "command", "cpu_per_mille", "group_id", "has_job_processes", "is_known",
                 "memory_per_mille", "pages", "processes", "ticks", "uid")  # fmt: skip

    def __init__(self, first: ProcessSample, machine: _Machine) -> None:
        self._machine = machine
        self.group_id = first.group_id
        self.uid = first.uid
        self.command = first.command
        self.processes = self.pages = self.ticks = self.cpu_per_mille = self.memory_per_mille = 0
        self.is_known = self.has_job_processes = False

    def add(self, sample: ProcessSample, growth: int, *, is_known: bool) -> None:
        if sample.pid == self.group_id:
            self.uid = sample.uid
            self.command = sample.command
        if is_known:
            self.is_known = True
        self.processes += 1
        self.ticks += growth
        # Most processes of a machine sleep, and those of the kernel have no memory.
        if ticks := sample.user_ticks + sample.system_ticks:
            self.cpu_per_mille += cpu_per_mille(ticks, self._machine.uptime_ticks - sample.start_ticks)
        if pages := sample.resident_pages:
            self.pages += pages
            self.memory_per_mille += memory_per_mille(pages, self._machine.memory_pages)

    def freeze(self, name_of: Callable[[int], str]) -> ProcessGroup:
        return ProcessGroup(
            group_id=self.group_id,
            user=name_of(self.uid),
            command=self.command,
            processes=self.processes,
            cpu_percent=self.cpu_per_mille / 10,
            memory_percent=self.memory_per_mille / 10,
            cpu_seconds=self.ticks / TICKS_PER_SECOND,
            resident_bytes=self.pages * PAGE_BYTES,
            has_job_processes=self.has_job_processes,
        )


class _User:
    """Add up the processes of one user that belong to no job."""

    __slots__ = ("pages", "processes", "ticks")

    def __init__(self) -> None:
        self.processes = self.pages = self.ticks = 0

    def add(self, sample: ProcessSample, growth: int) -> None:
        self.processes += 1
        self.pages += sample.resident_pages
        self.ticks += growth
