# SPDX-License-Identifier: Apache-2.0
"""Hold how often and how long a Slurm daemon was asked for what, and by whom."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcQueue:
    """Hold what the controller's queue of one kind of message went through.

    A cycle is one turn of the queue; it answers several requests under one lock.
    """

    queued: int
    dropped: int
    last_cycle_requests: int
    max_cycle_requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRpcs:
    """Count the requests of one kind of message; ``queue`` is None where there is no queue."""

    message: str
    requests: int
    seconds: float
    queue: RpcQueue | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRpcs:
    """Count the requests of one user; several users may have one name (``nobody``), never one uid."""

    user: str
    uid: int
    requests: int
    seconds: float
