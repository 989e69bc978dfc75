# SPDX-License-Identifier: Apache-2.0
"""Hold the statistics of slurmdbd."""

from __future__ import annotations

from dataclasses import dataclass

from slurmscope.model.rpc import MessageRpcs, UserRpcs


@dataclass(frozen=True, slots=True, kw_only=True)
class RollupTimes:
    """Hold the number and durations of usage rollups."""

    runs: int
    seconds: float
    last_seconds: float | None
    max_seconds: float | None
    last_timestamp: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollup:
    """Hold the rollups of all clusters by origin: the daemon itself or a request."""

    origin: str
    times: RollupTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRollup:
    """Hold the rollups of one cluster into hours, days or months.

    The time of the last one is the time up to which usage has been summed.
    """

    cluster: str
    period: str
    times: RollupTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Dbd:
    """Hold one snapshot of the statistics; rollups that never ran are left out."""

    since: int | None
    rollups: tuple[Rollup, ...]
    cluster_rollups: tuple[ClusterRollup, ...]
    messages: tuple[MessageRpcs, ...]
    users: tuple[UserRpcs, ...]
