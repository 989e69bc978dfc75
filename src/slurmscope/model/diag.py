# SPDX-License-Identifier: Apache-2.0
"""Hold the statistics of slurmctld: threads, scheduling cycles, requests.

Most totals are reset at midnight UTC, and all when slurmctld starts; ``since`` is the time of the last reset. None is
a value that slurmctld did not report or had not measured yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slurmscope.model.rpc import MessageRpcs, UserRpcs


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Hold the numbers of threads and of messages waiting to be sent."""

    threads: int | None = None
    is_rpc_queue_enabled: bool | None = None
    agent_queue_size: int | None = None
    agents: int | None = None
    agent_threads: int | None = None
    dbd_queue_size: int | None = None
    gettimeofday_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvents:
    """Hold job event counts, and the number of jobs at the last count of slurmctld."""

    submitted: int | None = None
    started: int | None = None
    completed: int | None = None
    canceled: int | None = None
    failed: int | None = None
    states_timestamp: int | None = None
    pending: int | None = None
    running: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MainScheduler:
    """Hold the cycles of the main scheduler; a depth is the number of jobs examined in a cycle.

    Slurm prints means as integers. A sum made from them could decrease, so there is none.
    """

    cycles: int | None = None
    last_cycle_seconds: float | None = None
    max_cycle_seconds: float | None = None
    mean_cycle_seconds: float | None = None
    mean_depth: int | None = None
    cycles_per_minute: int | None = None
    last_queue_length: int | None = None
    exits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """Hold the cycles of the backfill scheduler.

    ``try`` depths count only jobs that had a chance to start; the table size is the number of time slots considered
    in a cycle.
    """

    is_active: bool
    jobs: int | None = None
    jobs_since_reset: int | None = None
    het_components: int | None = None
    cycles: int | None = None
    last_cycle_timestamp: int | None = None
    last_cycle_seconds: float | None = None
    max_cycle_seconds: float | None = None
    mean_cycle_seconds: float | None = None
    last_depth: int | None = None
    last_try_depth: int | None = None
    mean_depth: int | None = None
    mean_try_depth: int | None = None
    last_queue_length: int | None = None
    mean_queue_length: int | None = None
    last_table_size: int | None = None
    mean_table_size: int | None = None
    exits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diag:
    """Hold one snapshot of the statistics.

    ``outgoing`` counts messages waiting to be sent to nodes, by type; slurmctld updates it every 30 seconds.
    """

    since: int | None
    load: Load
    job_events: JobEvents
    main: MainScheduler
    backfill: Backfill
    messages: tuple[MessageRpcs, ...]
    users: tuple[UserRpcs, ...]
    outgoing: Mapping[str, int]
