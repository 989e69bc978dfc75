# SPDX-License-Identifier: Apache-2.0
"""Describe mounts of network file systems whose use the kernel counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from slurmscope.model.job_use import JobKey


class MountedFilesystem(NamedTuple):
    """Identify a file system by what is mounted (``server:/export``) and by its type."""

    name: str
    fstype: str


class ClientUse(NamedTuple):
    """Hold what a client transferred and requested; None was not counted."""

    read_bytes: int | None = None
    write_bytes: int | None = None
    metadata_operations: int | None = None


NOT_COUNTED = ClientUse()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """Hold the counters of one mount since it was mounted."""

    filesystem: MountedFilesystem
    age_seconds: int | None = None
    use: ClientUse = NOT_COUNTED


class MountReading(NamedTuple):
    """Hold the mounts of a node at one moment of a clock that never goes back."""

    at_seconds: float
    mounts: tuple[Mount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFilesystems:
    """Hold the mounts of a node, and what each job used while no other job ran there.

    ``left_out`` is the number of mounts above the limit.
    """

    mounts: tuple[Mount, ...] = ()
    jobs: Mapping[JobKey, Mapping[MountedFilesystem, ClientUse]] = field(default_factory=dict)
    left_out: int = 0
