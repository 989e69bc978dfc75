# SPDX-License-Identifier: Apache-2.0
"""Hold what the accounting daemon, slurmdbd, says of its own work."""

from __future__ import annotations

from dataclasses import dataclass

from slurmscope.model.rpc import MessageRpcs, UserRpcs


@dataclass(frozen=True, slots=True, kw_only=True)
class RollupTimes:
    """Hold how often usage was summed up, and how long that took."""

    runs: int
    seconds: float
    last_seconds: float | None
    max_seconds: float | None
    last_timestamp: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollup:
    """Hold the rollups of all clusters that began in one way: by the daemon itself or by a request."""

    origin: str
    times: RollupTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRollup:
    """Hold the rollups of one cluster into hours, days or months.

    The last run's time is the moment up to which usage has been summed.
    """

    cluster: str
    period: str
    times: RollupTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Dbd:
    """Hold one answer of slurmdbd about itself; a rollup that never ran is not in it."""

    since: int | None
    rollups: tuple[Rollup, ...]
    cluster_rollups: tuple[ClusterRollup, ...]
    messages: tuple[MessageRpcs, ...]
    users: tuple[UserRpcs, ...]
