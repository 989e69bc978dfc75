# SPDX-License-Identifier: Apache-2.0
"""Every number of the controller has its metric, and only what was measured is served."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from slurmscope.cluster.rpc import MessageRpcs, RpcQueue, UserRpcs
from slurmscope.cluster.scheduler import COLLECTOR, Diag, parse_diag
from slurmscope.exporter.collector import NoOptions
from slurmscope.metrics.family import MetricKind, Samples
from slurmscope.metrics.guard import Guard

NEWER = (Path(__file__).parents[2] / "fixtures" / "slurm-25.05" / "sdiag.hand-made.txt").read_bytes()
RICH = replace(
    parse_diag(NEWER),
    messages=(
        MessageRpcs(
            message="REQUEST_JOB_INFO",
            requests=4,
            seconds=0.000010,
            queue=RpcQueue(queued=61, dropped=62, last_cycle_requests=63, max_cycle_requests=64),
        ),
        MessageRpcs(message="REQUEST_PING", requests=0, seconds=0.0),
    ),
    users=(
        UserRpcs(user="root", uid=0, requests=71, seconds=0.000072),
        UserRpcs(user="nobody", uid=70999, requests=5, seconds=0.000052),
        UserRpcs(user="nobody", uid=71000, requests=2, seconds=0.000006),
    ),
)


def serve(diag: Diag) -> dict[str, Samples]:
    """Return all samples that are left after the guard, by the name of their metric."""
    families = Guard().admit(COLLECTOR.collect(NoOptions(), diag=diag))
    return {family.metric.name: family.samples for family in families}


RICH_NUMBERS = {
    "slurm_scheduler_threads": 12,
    "slurm_scheduler_agent_queue_size": 37,
    "slurm_scheduler_agents": 4,
    "slurm_scheduler_agent_threads": 11,
    "slurm_scheduler_dbd_queue_size": 5,
    "slurm_scheduler_gettimeofday_seconds": 0.000019,
    "slurm_rpc_queue_enabled": 1,
    "slurm_scheduler_statistics_start_timestamp_seconds": 1748908800,
    "slurm_scheduler_jobs_submitted_total": 4021,
    "slurm_scheduler_jobs_started_total": 3977,
    "slurm_scheduler_jobs_completed_total": 3801,
    "slurm_scheduler_jobs_canceled_total": 95,
    "slurm_scheduler_jobs_failed_total": 2,
    "slurm_scheduler_job_states_timestamp_seconds": 1748959501,
    "slurm_scheduler_jobs_pending": 612,
    "slurm_scheduler_jobs_running": 181,
    "slurm_scheduler_cycles_total": 50321,
    "slurm_scheduler_last_cycle_seconds": 0.01521,
    "slurm_scheduler_max_cycle_seconds": 2.000731,
    "slurm_scheduler_mean_cycle_seconds": 0.020112,
    "slurm_scheduler_mean_depth": 95,
    "slurm_scheduler_cycles_per_minute": 59,
    "slurm_scheduler_last_queue_length": 612,
    "slurm_backfill_active": 1,
    "slurm_backfill_jobs_total": 20417,
    "slurm_backfill_jobs_since_reset": 2417,
    "slurm_backfill_het_components_total": 6,
    "slurm_backfill_cycles_total": 1688,
    "slurm_backfill_last_cycle_timestamp_seconds": 1748959479,
    "slurm_backfill_last_cycle_seconds": 0.901122,
    "slurm_backfill_max_cycle_seconds": 29.0004,
    "slurm_backfill_mean_cycle_seconds": 0.750003,
    "slurm_backfill_last_depth": 611,
    "slurm_backfill_last_try_depth": 240,
    "slurm_backfill_mean_depth": 580,
    "slurm_backfill_mean_try_depth": 233,
    "slurm_backfill_last_queue_length": 612,
    "slurm_backfill_mean_queue_length": 601,
    "slurm_backfill_last_table_size": 88,
    "slurm_backfill_mean_table_size": 79,
    "slurm_daemon_thread_count": 12,
    "slurm_dbd_agent_queue_size": 5,
    "slurm_backfill_job_count": 20417,
    "slurm_backfill_cycle_count": 1688,
    "slurm_backfill_cycle_counter": 1688,
    "slurm_backfill_last_depth_try_sched": 240,
}


def test_every_number_has_its_own_metric() -> None:
    served = {name: samples[()] for name, samples in serve(RICH).items() if isinstance(samples, dict) and () in samples}

    assert RICH_NUMBERS == served


def test_exits_and_waiting_messages_are_served_by_their_text() -> None:
    served = serve(RICH)

    assert 41002 == dict(served["slurm_scheduler_exits_total"])["End of job queue",]
    assert 2 == dict(served["slurm_backfill_exits_total"])["Timeout (bf_max_time)",]
    assert {("REQUEST_TERMINATE_JOB",): 33, ("REQUEST_NODE_REGISTRATION_STATUS",): 4} == served[
        "slurm_rpc_outgoing_pending"
    ]


def test_messages_are_served_in_seconds_and_under_old_names_in_microseconds() -> None:
    served = serve(RICH)

    assert {("REQUEST_JOB_INFO",): 4, ("REQUEST_PING",): 0} == served["slurm_rpc_requests_total"]
    assert {("REQUEST_JOB_INFO",): 0.000010, ("REQUEST_PING",): 0} == served["slurm_rpc_seconds_total"]
    assert {("REQUEST_JOB_INFO",): 4, ("REQUEST_PING",): 0} == served["slurm_rpc_msg_type_count"]
    assert {("REQUEST_JOB_INFO",): 10, ("REQUEST_PING",): 0} == served["slurm_rpc_msg_type_total_time"]
    assert {("REQUEST_JOB_INFO",): 2.5} == served["slurm_rpc_msg_type_avg_time"]


def test_queues_are_served_where_there_are_some() -> None:
    served = serve(RICH)

    assert {("REQUEST_JOB_INFO",): 61} == served["slurm_rpc_queued"]
    assert {("REQUEST_JOB_INFO",): 62} == served["slurm_rpc_dropped_total"]
    assert {("REQUEST_JOB_INFO",): 63} == served["slurm_rpc_queue_last_cycle_requests"]
    assert {("REQUEST_JOB_INFO",): 64} == served["slurm_rpc_queue_max_cycle_requests"]


def test_users_of_one_name_are_separate_by_uid_and_summed_under_older_names() -> None:
    served = serve(RICH)

    assert {("root", "0"): 71, ("nobody", "70999"): 5, ("nobody", "71000"): 2} == served[
        "slurm_rpc_user_requests_total"
    ]
    assert {("root", "0"): 0.000072, ("nobody", "70999"): 0.000052, ("nobody", "71000"): 0.000006} == served[
        "slurm_rpc_user_seconds_total"
    ]
    assert {("root",): 71, ("nobody",): 7} == served["slurm_rpc_user_count"]
    assert {("root",): 72, ("nobody",): 58} == served["slurm_rpc_user_total_time"]


def test_messages_of_one_name_are_added() -> None:
    twice = MessageRpcs(message="4711", requests=3, seconds=0.25)
    diag = Diag(messages=(twice, twice))

    assert {("4711",): 6} == serve(diag)["slurm_rpc_requests_total"]
    assert {("4711",): 0.5} == serve(diag)["slurm_rpc_seconds_total"]


def test_what_was_not_measured_is_left_out() -> None:
    assert {"slurm_backfill_active": {(): 0}} == serve(Diag())


def test_a_rich_answer_serves_exactly_what_is_declared() -> None:
    declared = Counter(metric.name for metric in COLLECTOR.metrics)

    assert {1} == set(declared.values())
    assert set(declared) == set(serve(RICH))


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("slurm_rpc_user_count", ("user",)),
        ("slurm_rpc_user_total_time", ("user",)),
        ("slurm_rpc_msg_type_count", ("type",)),
        ("slurm_rpc_msg_type_avg_time", ("type",)),
        ("slurm_rpc_msg_type_total_time", ("type",)),
        ("slurm_daemon_thread_count", ()),
        ("slurm_dbd_agent_queue_size", ()),
        ("slurm_backfill_job_count", ()),
        ("slurm_backfill_cycle_count", ()),
        ("slurm_backfill_cycle_counter", ()),
        ("slurm_backfill_last_depth", ()),
        ("slurm_backfill_last_depth_try_sched", ()),
    ],
)
def test_old_dashboards_find_their_names_and_labels(name: str, labels: tuple[str, ...]) -> None:
    metric = next(metric for metric in COLLECTOR.metrics if metric.name == name)

    assert (MetricKind.GAUGE, labels) == (metric.kind, metric.labels)
