# SPDX-License-Identifier: Apache-2.0
"""Export process groups of the machine, and processes of users outside jobs.

::

    cpu_usage{user="alice",pgid="4711",command="python3"} 99.7
    login_user_cpu_seconds_total{user="alice"} 5021.36
    login_group_resident_bytes{user="alice",pgid="4711",command="python3"} 1.073741824e+09

``cpu_usage`` and ``ram_usage`` are names of an older tool. They are sums of what ps shows, which for CPU is the mean
over the lifetime of the process, not the current load: use ``rate()`` of the totals for that.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from slurmscope.exporter.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family, Labels, compat_gauge, counter, gauge
from slurmscope.node.procfs.reader import ProcessReader
from slurmscope.node.procfs.stat import ProcessSample


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessGroup:
    """One process group; user and command are those of its leader, or of its first process if the leader ended.

    The percentages are sums of what ``ps`` shows for each process, ``cpu_percent`` over its lifetime. ``cpu_seconds``
    include ended processes of the group.
    """

    group_id: int
    user: str
    command: str
    processes: int
    cpu_percent: float
    memory_percent: float
    cpu_seconds: float
    resident_bytes: int
    has_job_processes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UserUse:
    """What one user's processes outside jobs use; ``cpu_seconds`` include ended processes."""

    user: str
    processes: int
    cpu_seconds: float
    resident_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTable:
    """All processes; not complete if the kernel hides some (hidepid)."""

    groups: tuple[ProcessGroup, ...] = ()
    users: tuple[UserUse, ...] = ()
    is_complete: bool = True


PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_TRUSTED_UIDS = (0, os.geteuid())
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
        self._job_members: set[int] = set()
        self._groups: dict[int, _Group] = {}
        self._users: dict[int, _User] = {}

    def read(self, job_pids: Container[int] = ()) -> ProcessTable:
        """Read every process; those in ``job_pids``, and new ones that they started, do not count for their user."""
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
        seen = {sample.pid: sample for sample in samples}
        members = self._find_job_members(seen, job_pids)
        groups: dict[int, _Group] = {}
        for pid, sample in seen.items():
            before = self._last.get(pid)
            is_known = before is not None and before.start_ticks == sample.start_ticks
            growth = _growth(before, sample) if before is not None and is_known else _ticks(sample)
            group = groups.get(sample.group_id)
            if group is None:
                groups[sample.group_id] = group = _Group(sample, machine)
            group.add(sample, growth, is_known=is_known)
            if pid in members:
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
        self._last, self._groups, self._job_members = seen, groups, members

    def _find_job_members(self, seen: Mapping[int, ProcessSample], job_pids: Container[int]) -> set[int]:
        """Return the processes of jobs: once in a job, a process stays there, and so do its children.

        A process that was started after the jobs were read is not in ``job_pids``, nor is a whole job.
        """
        new = seen.keys() - self._last.keys()
        members = {pid for pid in seen if pid in job_pids}
        members.update(pid for pid in new if _is_stepd(seen[pid]))
        members.update(
            pid for pid in self._job_members & seen.keys() if self._last[pid].start_ticks == seen[pid].start_ticks
        )
        passed: set[int] = set()
        for newcomer in new:
            pid, lineage = newcomer, []
            while pid in new and pid not in members and pid not in passed:
                passed.add(pid)
                lineage.append(pid)
                pid = seen[pid].parent_id
            if pid in members:
                members.update(lineage)
        return members

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
    """The machine totals that percentages refer to."""

    uptime_ticks: int
    memory_pages: int


def _is_stepd(sample: ProcessSample) -> bool:
    return sample.command == "slurmstepd" and sample.uid in _TRUSTED_UIDS


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


_GROUP = ("user", "pgid", "command")

CPU_USAGE = compat_gauge(
    "cpu_usage",
    "Percent of one CPU over the lifetime of each process, as shown by ps, summed by process group.",
    *_GROUP,
)
RAM_USAGE = compat_gauge("ram_usage", "Percent of memory, as shown by ps, summed by process group.", *_GROUP)
GROUP_CPU = counter(
    "login_group_cpu_seconds_total", "CPU time of process groups outside jobs, including ended processes.", *_GROUP
)
GROUP_RESIDENT = gauge(
    "login_group_resident_bytes",
    "Resident memory of process groups outside jobs; shared pages count per process.",
    *_GROUP,
)
USER_CPU = counter(
    "login_user_cpu_seconds_total", "CPU time of a user's processes outside jobs, including ended processes.", "user"
)
USER_RESIDENT = gauge(
    "login_user_resident_bytes",
    "Resident memory of a user's processes outside jobs; shared pages count per process.",
    "user",
)
USER_PROCESSES = gauge("login_user_processes", "Processes of a user outside jobs.", "user")
MERGED = gauge(
    "login_groups_merged",
    "Process groups of a user above the limit per user; they are summed under an empty pgid and the command other.",
    "user",
)
COMPLETE = gauge(
    "login_processes_complete", "1 if all processes are visible, 0 if the kernel hides some (hidepid, permissions)."
)

COMMAND_WIDTH = 16
OTHER = "other"
GROUPS_PER_USER = 200
"""Maximum number of exposed groups per user, those with the most CPU time; the others are summed."""


def collect(options: NoOptions, *, process_groups: ProcessTable) -> Iterator[Family]:  # noqa: ARG001 - as declared
    """Yield all groups under the older names, and those outside jobs under the new ones."""
    named, merged = _split(process_groups.groups)
    labelled = [((group.user, str(group.group_id), group.command[:COMMAND_WIDTH]), group) for group in named]
    all_labelled = [*labelled, *(((group.user, "", OTHER), group) for group in merged)]
    users = process_groups.users
    yield Family(CPU_USAGE, _sums((labels, round(group.cpu_percent, 2)) for labels, group in all_labelled))
    yield Family(RAM_USAGE, _sums((labels, round(group.memory_percent, 2)) for labels, group in all_labelled))
    # Merged groups have no counter: their sum would decrease when one of them ends. The user's total includes them.
    yield Family(GROUP_CPU, {labels: group.cpu_seconds for labels, group in labelled if not group.has_job_processes})
    outside = [(labels, group) for labels, group in all_labelled if not group.has_job_processes]
    yield Family(GROUP_RESIDENT, _sums((labels, group.resident_bytes) for labels, group in outside))
    yield Family(MERGED, {(user,): count for user, count in Counter(group.user for group in merged).items()})
    yield Family(USER_CPU, {(use.user,): use.cpu_seconds for use in users})
    yield Family(USER_RESIDENT, {(use.user,): use.resident_bytes for use in users})
    yield Family(USER_PROCESSES, {(use.user,): use.processes for use in users})
    yield Family(COMPLETE, {(): int(process_groups.is_complete)})


def _split(groups: Iterable[ProcessGroup]) -> tuple[list[ProcessGroup], list[ProcessGroup]]:
    """Return the groups that are exported by name, the largest ones of each user, and the rest."""
    named: list[ProcessGroup] = []
    merged: list[ProcessGroup] = []
    seen: Counter[str] = Counter()
    for group in sorted(groups, key=lambda group: (-group.cpu_seconds, -group.resident_bytes, group.group_id)):
        (named if seen[group.user] < GROUPS_PER_USER else merged).append(group)
        seen[group.user] += 1
    return sorted(named, key=lambda group: group.group_id), merged


def _sums(samples: Iterable[tuple[Labels, float]]) -> dict[Labels, float]:
    sums: dict[Labels, float] = {}
    for labels, value in samples:
        sums[labels] = sums.get(labels, 0) + value
    return sums


COLLECTOR = Collector(
    name="process_groups",
    role=Role.NODE,
    help="Process groups of the machine, and processes of users outside jobs.",
    needs=("process_groups",),
    metrics=(
        *(CPU_USAGE, RAM_USAGE, GROUP_CPU, GROUP_RESIDENT, MERGED, USER_CPU, USER_RESIDENT, USER_PROCESSES, COMPLETE),
    ),
    collect=collect,
    is_default=False,
)
