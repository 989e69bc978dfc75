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

from collections.abc import Iterator
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
COMPLETE = gauge(
    "login_processes_complete", "1 if all processes are visible, 0 if the kernel hides some (hidepid, permissions)."
)

COMMAND_WIDTH = 16


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
    pad_command: bool = setting(
        False, help=f"Pad the command label to {COMMAND_WIDTH} characters, as an older tool did."
    )


def collect(options: ProcessGroupOptions, *, process_groups: ProcessTable) -> Iterator[Family]:
    """Yield all groups under the older names, and those outside jobs under the new ones."""
    shown = [(_labels(options, group), group) for group in process_groups.groups if _is_shown(options, group)]
    outside = [(labels, group) for labels, group in shown if not group.has_job_processes]
    users = [use for use in process_groups.users if not options.user or use.user in options.user]
    yield Family(CPU_USAGE, {labels: round(group.cpu_percent, 2) for labels, group in shown})
    yield Family(RAM_USAGE, {labels: round(group.memory_percent, 2) for labels, group in shown})
    yield Family(GROUP_CPU, {labels: group.cpu_seconds for labels, group in outside})
    yield Family(GROUP_RESIDENT, {labels: group.resident_bytes for labels, group in outside})
    yield Family(USER_CPU, {(use.user,): use.cpu_seconds for use in users})
    yield Family(USER_RESIDENT, {(use.user,): use.resident_bytes for use in users})
    yield Family(USER_PROCESSES, {(use.user,): use.processes for use in users})
    yield Family(COMPLETE, {(): int(process_groups.is_complete)})


def _is_shown(options: ProcessGroupOptions, group: ProcessGroup) -> bool:
    if options.user and group.user not in options.user:
        return False
    floors = ((options.min_cpu_seconds, group.cpu_seconds), (options.min_resident_bytes, group.resident_bytes))
    reached = [used >= floor for floor, used in floors if floor]
    return any(reached) or not reached


def _labels(options: ProcessGroupOptions, group: ProcessGroup) -> Labels:
    command = group.command[:COMMAND_WIDTH]
    return group.user, str(group.group_id), command.ljust(COMMAND_WIDTH) if options.pad_command else command


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
        USER_CPU,
        USER_RESIDENT,
        USER_PROCESSES,
        COMPLETE,
    ),
    collect=collect,
    options=ProcessGroupOptions,
    is_default=False,
)
