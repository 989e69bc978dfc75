# SPDX-License-Identifier: Apache-2.0
"""Hold what the controller says of its own work: threads, scheduling cycles, requests.

Most totals begin again at midnight UTC, and all do when the controller starts; ``since`` tells when.
None is a value that the controller did not give or had not measured yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slurmscope.model.rpc import MessageRpcs, UserRpcs


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Count the controller's threads and what waits to be sent."""

    threads: int | None = None
    is_rpc_queue_enabled: bool | None = None
    agent_queue_size: int | None = None
    agents: int | None = None
    agent_threads: int | None = None
    dbd_queue_size: int | None = None
    gettimeofday_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvents:
    """Count what happened to jobs, and the jobs there were when the controller last looked."""

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
    """Hold the cycles of the main scheduler; a depth counts the jobs that a cycle looked at.

    Slurm prints means without their fraction. A sum made from them could fall, so there is none.
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

    ``try`` depths count only the jobs that had a chance to start; the table holds the time slots a
    cycle considered.
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
    """Hold one answer of the controller about itself.

    ``outgoing`` counts the messages to nodes that wait to be sent, by kind; the controller counts
    them every 30 seconds.
    """

    since: int | None
    load: Load
    job_events: JobEvents
    main: MainScheduler
    backfill: Backfill
    messages: tuple[MessageRpcs, ...]
    users: tuple[UserRpcs, ...]
    outgoing: Mapping[str, int]
