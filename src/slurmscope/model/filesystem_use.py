# SPDX-License-Identifier: Apache-2.0
"""Hold how fast jobs and programs use shared file systems now."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

UNKNOWN = "unknown"
"""Label value of an account, user, partition, group, program or file system that is not known."""


class Quantity(enum.StrEnum):
    """What is measured, per second."""

    READ = "read"
    """Bytes read."""
    WRITE = "write"
    """Bytes written."""
    METADATA = "metadata"
    """Operations that transfer no data, such as open, stat and create."""


class Unknown(enum.StrEnum):
    """Why the use cannot be attributed to a user."""

    JOB = "job"
    """Slurm knows no such job, and has not known it recently."""
    USER = "user"
    """The name service knows no such user ID."""
    TEXT = "text"
    """The job ID has no known form, or is missing."""


class UseRate(NamedTuple):
    """Hold one rate as the source reports it; ``target`` is the server volume, where that is known."""

    job_text: str
    filesystem: str
    per_second: float
    target: str = ""
    operation: str = ""


class FilesystemClient(NamedTuple):
    """Name who uses a file system: a job, or a program outside jobs.

    A job has ``account`` and ``partition``, a program has ``program`` and ``group``. ``job`` is the job ID as Slurm
    shows it; it is empty if Slurm does not know the job. ``reason`` is set where the user is unknown.
    """

    user: str
    account: str = ""
    partition: str = ""
    job: str = ""
    program: str = ""
    group: str = ""
    reason: Unknown | None = None


class ClientRate(NamedTuple):
    """Hold one rate of a client."""

    client: FilesystemClient
    filesystem: str
    per_second: float
    target: str = ""
    operation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesystemUse:
    """Hold the current rates of all clients.

    A quantity that was never answered, or not for long, is missing from ``rates``. ``answered_at`` is the Unix time of
    its answer. ``problems`` has one sentence for each stage that failed in the latest collection.
    """

    rates: Mapping[Quantity, tuple[ClientRate, ...]] = field(default_factory=dict)
    answered_at: Mapping[Quantity, float] = field(default_factory=dict)
    stage_seconds: Mapping[str, float] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


class Period(enum.StrEnum):
    """The time that a list of clients covers."""

    NOW = "now"
    """Rates of the moment."""
    DAY = "day"
    """Amounts of the last 24 hours."""


class ClientKind(enum.StrEnum):
    """What a list of clients is made of."""

    JOB = "job"
    USER = "user"
    PROGRAM = "program"


class TopClient(NamedTuple):
    """Hold the use of a file system by one of those that use it most; ``name`` is a job ID, a user or a program."""

    filesystem: str
    period: Period
    kind: ClientKind
    quantity: Quantity
    name: str
    user: str
    account: str
    amount: float
    cluster: str = ""
    """The cluster of a job, where it is known."""


class TopClients(NamedTuple):
    """Hold the clients that use each file system most; ``problems`` has a sentence for each query that failed."""

    clients: tuple[TopClient, ...] = ()
    problems: tuple[str, ...] = ()
