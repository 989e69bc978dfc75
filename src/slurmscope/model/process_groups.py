# SPDX-License-Identifier: Apache-2.0
"""Hold the processes of a machine by process group and by user."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessGroup:
    """Hold one process group; user and command are those of its leader, or of its first process where that is gone.

    The percentages are sums of what ``ps`` shows for each process, ``cpu_percent`` over its whole life.
    ``cpu_seconds`` count processes of the group that ended, too.
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
    """Hold what one user's processes outside any job use; ``cpu_seconds`` count processes that ended, too."""

    user: str
    processes: int
    cpu_seconds: float
    resident_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTable:
    """Hold all processes at one moment; not complete where the kernel hides some from us."""

    groups: tuple[ProcessGroup, ...] = ()
    users: tuple[UserUse, ...] = ()
    is_complete: bool = True
