# SPDX-License-Identifier: Apache-2.0
"""Hold the RPC statistics of a Slurm daemon."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcQueue:
    """Hold the statistics of slurmctld's queue for one message type.

    A cycle processes several requests under one lock.
    """

    queued: int
    dropped: int
    last_cycle_requests: int
    max_cycle_requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRpcs:
    """Hold the requests of one message type; ``queue`` is None if there is no queue."""

    message: str
    requests: int
    seconds: float
    queue: RpcQueue | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRpcs:
    """Hold the requests of one user; several uids may have one name (``nobody``)."""

    user: str
    uid: int
    requests: int
    seconds: float
