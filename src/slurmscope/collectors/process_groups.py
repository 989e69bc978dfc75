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

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from slurmscope.metrics.collector import Collector, Role
from slurmscope.metrics.family import Family, Labels, compat_gauge, counter, gauge
from slurmscope.model.process_groups import ProcessGroup, ProcessTable
from slurmscope.settings import setting
from slurmscope.units import parse_bytes, parse_seconds

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


def parse_size(given: object) -> int:
    """Parse a number of bytes, with or without a unit."""
    return parse_bytes(str(given))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessGroupOptions:
    """Which process groups are exported, and how."""

    user: tuple[str, ...] = setting((), help="Expose only this user; empty means all; repeatable.", metavar="USER")
    min_cpu_seconds: float = setting(
        0.0,
        help="Minimum CPU time of an exposed group, unless it reaches min-resident-bytes.",
        parse=parse_seconds,
        metavar="DURATION",
    )
    min_resident_bytes: int = setting(
        0,
        help="Minimum resident memory of an exposed group, unless it reaches min-cpu-seconds.",
        parse=parse_size,
        metavar="SIZE",
    )
    groups_per_user: int = setting(
        200,
        help="Maximum number of exposed groups per user, those with the most CPU time; the others are summed.",
        metavar="NUMBER",
    )
    pad_command: bool = setting(
        False, help=f"Pad the command label to {COMMAND_WIDTH} characters, as an older tool did."
    )


def collect(options: ProcessGroupOptions, *, process_groups: ProcessTable) -> Iterator[Family]:
    """Yield all groups under the older names, and those outside jobs under the new ones."""
    shown = [group for group in process_groups.groups if _is_shown(options, group)]
    named, merged = _split(shown, options.groups_per_user)
    labelled = [(_labels(options, group), group) for group in named]
    all_labelled = [*labelled, *(((group.user, "", _pad(options, OTHER)), group) for group in merged)]
    users = [use for use in process_groups.users if not options.user or use.user in options.user]
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


def _split(groups: Iterable[ProcessGroup], limit: int) -> tuple[list[ProcessGroup], list[ProcessGroup]]:
    """Return the groups that are exported by name, the largest ones of each user, and the rest."""
    named: list[ProcessGroup] = []
    merged: list[ProcessGroup] = []
    seen: Counter[str] = Counter()
    for group in sorted(groups, key=lambda group: (-group.cpu_seconds, -group.resident_bytes, group.group_id)):
        (named if seen[group.user] < limit else merged).append(group)
        seen[group.user] += 1
    return sorted(named, key=lambda group: group.group_id), merged


def _sums(samples: Iterable[tuple[Labels, float]]) -> dict[Labels, float]:
    sums: dict[Labels, float] = {}
    for labels, value in samples:
        sums[labels] = sums.get(labels, 0) + value
    return sums


def _is_shown(options: ProcessGroupOptions, group: ProcessGroup) -> bool:
    if options.user and group.user not in options.user:
        return False
    floors = ((options.min_cpu_seconds, group.cpu_seconds), (options.min_resident_bytes, group.resident_bytes))
    reached = [used >= floor for floor, used in floors if floor]
    return any(reached) or not reached


def _labels(options: ProcessGroupOptions, group: ProcessGroup) -> Labels:
    return group.user, str(group.group_id), _pad(options, group.command[:COMMAND_WIDTH])


def _pad(options: ProcessGroupOptions, command: str) -> str:
    return command.ljust(COMMAND_WIDTH) if options.pad_command else command


COLLECTOR = Collector(
    name="process_groups",
    role=Role.NODE,
    help="Process groups of the machine, and processes of users outside jobs.",
    needs=("process_groups",),
    metrics=(
        CPU_USAGE,
        RAM_USAGE,
        GROUP_CPU,
        GROUP_RESIDENT,
        MERGED,
        USER_CPU,
        USER_RESIDENT,
        USER_PROCESSES,
        COMPLETE,
    ),
    collect=collect,
    options=ProcessGroupOptions,
    is_default=False,
)
