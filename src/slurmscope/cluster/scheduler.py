# SPDX-License-Identifier: Apache-2.0
"""Export the statistics of slurmctld: threads, scheduling cycles, and requests by message and user.

::

    slurm_scheduler_cycles_total 163
    slurm_backfill_last_cycle_seconds 0.00072
    slurm_rpc_requests_total{message="REQUEST_JOB_INFO"} 42

Slurm resets most totals to 0 at midnight UTC, which is an ordinary counter reset. Slurm prints the mean duration of
cycles but not their sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from slurmscope.cluster.rpc import (
    MessageRpcs,
    RpcQueue,
    RpcSums,
    UserRpcs,
    declare_rpc_metrics,
    message_families,
    sum_rpcs,
    user_families,
)
from slurmscope.cluster.sdiag import Diag
from slurmscope.exporter.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family, Labels, Metric, compat_gauge, counter, gauge

Scalar = tuple[Metric, Callable[[Diag], float | None]]
"""A metric without labels, and the function that reads its value."""

_LOAD: tuple[Scalar, ...] = (
    (gauge("slurm_scheduler_threads", "Active threads of slurmctld."), lambda d: d.load.threads),
    (
        gauge("slurm_scheduler_agent_queue_size", "Messages to nodes waiting to be sent."),
        lambda d: d.load.agent_queue_size,
    ),
    (gauge("slurm_scheduler_agents", "Agents sending messages to nodes."), lambda d: d.load.agents),
    (gauge("slurm_scheduler_agent_threads", "Threads of all agents."), lambda d: d.load.agent_threads),
    (
        gauge(
            "slurm_scheduler_dbd_queue_size", "Messages waiting to be sent to slurmdbd; grows while slurmdbd is down."
        ),
        lambda d: d.load.dbd_queue_size,
    ),
    (
        gauge("slurm_scheduler_gettimeofday_seconds", "Time slurmctld needs for 1000 calls of gettimeofday."),
        lambda d: d.load.gettimeofday_seconds,
    ),
    (
        gauge("slurm_rpc_queue_enabled", "1 if slurmctld processes requests by queue."),
        lambda d: None if d.load.is_rpc_queue_enabled is None else int(d.load.is_rpc_queue_enabled),
    ),
    (
        gauge(
            "slurm_scheduler_statistics_start_timestamp_seconds",
            "Unix time at which the slurmctld statistics were last reset.",
        ),
        lambda d: d.since,
    ),
    (compat_gauge("slurm_daemon_thread_count", "Active threads of slurmctld."), lambda d: d.load.threads),
    (
        compat_gauge("slurm_dbd_agent_queue_size", "Messages waiting to be sent to slurmdbd."),
        lambda d: d.load.dbd_queue_size,
    ),
)
_JOBS: tuple[Scalar, ...] = (
    (counter("slurm_scheduler_jobs_submitted_total", "Jobs submitted."), lambda d: d.job_events.submitted),
    (counter("slurm_scheduler_jobs_started_total", "Jobs started."), lambda d: d.job_events.started),
    (
        counter("slurm_scheduler_jobs_completed_total", "Jobs completed."),
        lambda d: d.job_events.completed,
    ),
    (counter("slurm_scheduler_jobs_canceled_total", "Jobs canceled."), lambda d: d.job_events.canceled),
    (
        counter("slurm_scheduler_jobs_failed_total", "Jobs that failed due to internal problems of Slurm."),
        lambda d: d.job_events.failed,
    ),
    (
        gauge("slurm_scheduler_jobs_pending", "Pending jobs at the last count of slurmctld."),
        lambda d: d.job_events.pending,
    ),
    (
        gauge("slurm_scheduler_jobs_running", "Running jobs at the last count of slurmctld."),
        lambda d: d.job_events.running,
    ),
    (
        gauge("slurm_scheduler_job_states_timestamp_seconds", "Unix time of the last job count of slurmctld."),
        lambda d: d.job_events.states_timestamp,
    ),
)
_MAIN: tuple[Scalar, ...] = (
    (counter("slurm_scheduler_cycles_total", "Cycles of the main scheduler."), lambda d: d.main.cycles),
    (
        gauge("slurm_scheduler_last_cycle_seconds", "Duration of the last cycle of the main scheduler."),
        lambda d: d.main.last_cycle_seconds,
    ),
    (
        gauge(
            "slurm_scheduler_max_cycle_seconds",
            "Duration of the longest cycle of the main scheduler since the last reset.",
        ),
        lambda d: d.main.max_cycle_seconds,
    ),
    (
        gauge(
            "slurm_scheduler_mean_cycle_seconds", "Mean duration of cycles of the main scheduler since the last reset."
        ),
        lambda d: d.main.mean_cycle_seconds,
    ),
    (
        gauge("slurm_scheduler_mean_depth", "Mean number of jobs examined per cycle of the main scheduler."),
        lambda d: d.main.mean_depth,
    ),
    (
        gauge("slurm_scheduler_cycles_per_minute", "Cycles of the main scheduler per minute since the last reset."),
        lambda d: d.main.cycles_per_minute,
    ),
    (
        gauge("slurm_scheduler_last_queue_length", "Pending jobs in the last cycle of the main scheduler."),
        lambda d: d.main.last_queue_length,
    ),
)
_BACKFILL: tuple[Scalar, ...] = (
    (gauge("slurm_backfill_active", "1 while a backfill cycle is running."), lambda d: int(d.backfill.is_active)),
    (
        counter("slurm_backfill_jobs_total", "Jobs started by backfill since slurmctld started."),
        lambda d: d.backfill.jobs,
    ),
    (
        gauge("slurm_backfill_jobs_since_reset", "Jobs started by backfill since the last reset."),
        lambda d: d.backfill.jobs_since_reset,
    ),
    (
        counter("slurm_backfill_het_components_total", "Components of heterogeneous jobs started by backfill."),
        lambda d: d.backfill.het_components,
    ),
    (counter("slurm_backfill_cycles_total", "Cycles of the backfill scheduler."), lambda d: d.backfill.cycles),
    (
        gauge("slurm_backfill_last_cycle_timestamp_seconds", "Unix time at which the last backfill cycle started."),
        lambda d: d.backfill.last_cycle_timestamp,
    ),
    (
        gauge("slurm_backfill_last_cycle_seconds", "Duration of the last backfill cycle."),
        lambda d: d.backfill.last_cycle_seconds,
    ),
    (
        gauge("slurm_backfill_max_cycle_seconds", "Duration of the longest backfill cycle since the last reset."),
        lambda d: d.backfill.max_cycle_seconds,
    ),
    (
        gauge("slurm_backfill_mean_cycle_seconds", "Mean duration of backfill cycles since the last reset."),
        lambda d: d.backfill.mean_cycle_seconds,
    ),
    # An older exporter has a metric of the same name and meaning.
    (
        gauge("slurm_backfill_last_depth", "Jobs examined in the last backfill cycle."),
        lambda d: d.backfill.last_depth,
    ),
    (
        gauge("slurm_backfill_last_try_depth", "Jobs that the last backfill cycle tried to start."),
        lambda d: d.backfill.last_try_depth,
    ),
    (
        gauge("slurm_backfill_mean_depth", "Mean number of jobs examined per backfill cycle."),
        lambda d: d.backfill.mean_depth,
    ),
    (
        gauge("slurm_backfill_mean_try_depth", "Mean number of jobs that a backfill cycle tried to start."),
        lambda d: d.backfill.mean_try_depth,
    ),
    (
        gauge("slurm_backfill_last_queue_length", "Pending jobs in the last backfill cycle."),
        lambda d: d.backfill.last_queue_length,
    ),
    (
        gauge("slurm_backfill_mean_queue_length", "Mean number of pending jobs per backfill cycle."),
        lambda d: d.backfill.mean_queue_length,
    ),
    (
        gauge("slurm_backfill_last_table_size", "Time slots considered in the last backfill cycle."),
        lambda d: d.backfill.last_table_size,
    ),
    (
        gauge("slurm_backfill_mean_table_size", "Mean number of time slots considered per backfill cycle."),
        lambda d: d.backfill.mean_table_size,
    ),
    (
        compat_gauge("slurm_backfill_job_count", "Jobs started by backfill."),
        lambda d: d.backfill.jobs,
    ),
    (compat_gauge("slurm_backfill_cycle_count", "Cycles of the backfill scheduler."), lambda d: d.backfill.cycles),
    (compat_gauge("slurm_backfill_cycle_counter", "Cycles of the backfill scheduler."), lambda d: d.backfill.cycles),
    (
        compat_gauge("slurm_backfill_last_depth_try_sched", "Jobs that the last backfill cycle tried to start."),
        lambda d: d.backfill.last_try_depth,
    ),
)
_SCALARS = (*_LOAD, *_JOBS, *_MAIN, *_BACKFILL)

EXITS = counter("slurm_scheduler_exits_total", "Cycles of the main scheduler by the cause of their end.", "cause")
BACKFILL_EXITS = counter("slurm_backfill_exits_total", "Backfill cycles by the cause of their end.", "cause")
OUTGOING = gauge("slurm_rpc_outgoing_pending", "Messages to nodes waiting to be sent, by message.", "message")

RPC = declare_rpc_metrics("slurm_rpc", "slurmctld")
COMPAT_COUNT = compat_gauge("slurm_rpc_msg_type_count", "Requests to slurmctld by message.", "type")
COMPAT_AVG_TIME = compat_gauge(
    "slurm_rpc_msg_type_avg_time", "Mean time per request in microseconds, by message.", "type"
)
COMPAT_TOTAL_TIME = compat_gauge(
    "slurm_rpc_msg_type_total_time", "Total time of requests in microseconds, by message.", "type"
)
COMPAT_USER_COUNT = compat_gauge("slurm_rpc_user_count", "Requests to slurmctld by user.", "user")
COMPAT_USER_TIME = compat_gauge("slurm_rpc_user_total_time", "Total time of requests in microseconds, by user.", "user")

_QUEUE: tuple[tuple[Metric, Callable[[RpcQueue], int]], ...] = (
    (gauge("slurm_rpc_queued", "Requests waiting in the queue of slurmctld.", "message"), lambda q: q.queued),
    (counter("slurm_rpc_dropped_total", "Requests dropped by the queue of slurmctld.", "message"), lambda q: q.dropped),
    (
        gauge("slurm_rpc_queue_last_cycle_requests", "Requests processed in the last cycle of a queue.", "message"),
        lambda q: q.last_cycle_requests,
    ),
    (
        gauge("slurm_rpc_queue_max_cycle_requests", "Most requests processed in one cycle of a queue.", "message"),
        lambda q: q.max_cycle_requests,
    ),
)


def collect(options: NoOptions, *, diag: Diag) -> Iterator[Family]:  # noqa: ARG001 - part of the protocol
    """Yield one family per statistic; values that were not measured are left out."""
    for metric, measure in _SCALARS:
        value = measure(diag)
        yield Family(metric, {} if value is None else {(): value})
    yield Family(EXITS, _by_text(diag.main.exits))
    yield Family(BACKFILL_EXITS, _by_text(diag.backfill.exits))
    yield Family(OUTGOING, _by_text(diag.outgoing))
    yield from message_families(RPC, diag.messages)
    yield from _compat_message_families(diag.messages)
    for metric, amount in _QUEUE:
        yield Family(metric, {(row.message,): amount(row.queue) for row in diag.messages if row.queue is not None})
    yield from user_families(RPC, diag.users)
    yield from _compat_user_families(diag.users)


def _by_text(counts: Mapping[str, int]) -> dict[Labels, int]:
    return {(text,): count for text, count in counts.items()}


def _compat_message_families(rows: Iterable[MessageRpcs]) -> Iterator[Family]:
    sums = sum_rpcs(((row.message,), row) for row in rows)
    microseconds = _microseconds(sums)
    yield Family(COMPAT_COUNT, sums.requests)
    yield Family(COMPAT_AVG_TIME, {key: microseconds[key] / count for key, count in sums.requests.items() if count})
    yield Family(COMPAT_TOTAL_TIME, microseconds)


def _compat_user_families(rows: Iterable[UserRpcs]) -> Iterator[Family]:
    """Yield users by name only; newer Slurm releases call every uid without a name ``nobody``."""
    sums = sum_rpcs(((row.user,), row) for row in rows)
    yield Family(COMPAT_USER_COUNT, sums.requests)
    yield Family(COMPAT_USER_TIME, _microseconds(sums))


def _microseconds(sums: RpcSums) -> dict[Labels, int]:
    return {labels: round(1e6 * seconds) for labels, seconds in sums.seconds.items()}


COLLECTOR = Collector(
    name="scheduler",
    role=Role.CLUSTER,
    help="Threads, scheduling cycles and requests of slurmctld, from one sdiag call.",
    needs=("diag",),
    metrics=(
        *(metric for metric, _ in _SCALARS),
        *(EXITS, BACKFILL_EXITS, OUTGOING),
        *RPC.all,
        *(COMPAT_COUNT, COMPAT_AVG_TIME, COMPAT_TOTAL_TIME, COMPAT_USER_COUNT, COMPAT_USER_TIME),
        *(metric for metric, _ in _QUEUE),
    ),
    collect=collect,
)
