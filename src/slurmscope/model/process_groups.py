# SPDX-License-Identifier: Apache-2.0
"""Hold the processes of a machine by process group and by user."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessGroup:
    """Hold one process group; user and command are those of its leader, or of its first process if the leader ended.

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
    """Hold what one user's processes outside jobs use; ``cpu_seconds`` include ended processes."""

    user: str
    processes: int
    cpu_seconds: float
    resident_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTable:
    """Hold all processes; not complete if the kernel hides some (hidepid)."""

    groups: tuple[ProcessGroup, ...] = ()
    users: tuple[UserUse, ...] = ()
    is_complete: bool = True
