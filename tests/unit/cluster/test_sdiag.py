# SPDX-License-Identifier: Apache-2.0
"""What sdiag prints becomes the statistics of the controller."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.cluster.rpc import MessageRpcs, RpcQueue, UserRpcs
from slurmscope.cluster.scheduler import COLLECTOR, Diag, parse_diag
from slurmscope.core.errors import MalformedAnswer
from slurmscope.exporter.collector import NoOptions

FIXTURES = Path(__file__).parents[2] / "fixtures"
BUSY = (FIXTURES / "slurm-22.05" / "sdiag-busy.txt").read_bytes()
FRESH = (FIXTURES / "slurm-22.05" / "sdiag-fresh.txt").read_bytes()
NEWER = (FIXTURES / "slurm-25.05" / "sdiag.hand-made.txt").read_bytes()


def serve(answer: bytes) -> dict[str, object]:
    """Return the exported statistics without labels."""
    families = COLLECTOR.collect(NoOptions(), diag=parse_diag(answer))
    return {
        family.metric.name: value for family in families for labels, value in dict(family.samples).items() if not labels
    }


def test_statistics_of_an_older_release_are_read() -> None:
    assert {
        "slurm_scheduler_statistics_start_timestamp_seconds": 1794732286,
        "slurm_scheduler_threads": 3,
        "slurm_scheduler_agent_queue_size": 0,
        "slurm_scheduler_agents": 0,
        "slurm_scheduler_agent_threads": 0,
        "slurm_scheduler_dbd_queue_size": 0,
        "slurm_scheduler_gettimeofday_seconds": 0.000023,
        "slurm_daemon_thread_count": 3,
        "slurm_dbd_agent_queue_size": 0,
        "slurm_scheduler_jobs_submitted_total": 31,
        "slurm_scheduler_jobs_started_total": 27,
        "slurm_scheduler_jobs_completed_total": 26,
        "slurm_scheduler_jobs_canceled_total": 1,
        "slurm_scheduler_jobs_failed_total": 0,
        "slurm_scheduler_job_states_timestamp_seconds": 1794732586,
        "slurm_scheduler_jobs_pending": 10,
        "slurm_scheduler_jobs_running": 1,
        "slurm_scheduler_cycles_total": 163,
        "slurm_scheduler_last_cycle_seconds": 0.000097,
        "slurm_scheduler_max_cycle_seconds": 0.009082,
        "slurm_scheduler_mean_cycle_seconds": 0.000111,
        "slurm_scheduler_mean_depth": 2,
        "slurm_scheduler_cycles_per_minute": 32,
        "slurm_scheduler_last_queue_length": 4,
        "slurm_backfill_active": 0,
        "slurm_backfill_jobs_total": 20,
        "slurm_backfill_jobs_since_reset": 20,
        "slurm_backfill_het_components_total": 0,
        "slurm_backfill_cycles_total": 19,
        "slurm_backfill_last_cycle_timestamp_seconds": 1794732596,
        "slurm_backfill_last_cycle_seconds": 0.00072,
        "slurm_backfill_max_cycle_seconds": 0.127637,
        "slurm_backfill_mean_cycle_seconds": 0.009358,
        "slurm_backfill_last_depth": 4,
        "slurm_backfill_last_try_depth": 4,
        "slurm_backfill_mean_depth": 15,
        "slurm_backfill_mean_try_depth": 15,
        "slurm_backfill_last_queue_length": 4,
        "slurm_backfill_mean_queue_length": 15,
        "slurm_backfill_last_table_size": 6,
        "slurm_backfill_mean_table_size": 15,
        "slurm_backfill_job_count": 20,
        "slurm_backfill_cycle_count": 19,
        "slurm_backfill_cycle_counter": 19,
        "slurm_backfill_last_depth_try_sched": 4,
    } == serve(BUSY)


def test_causes_of_exits_are_counted_where_the_release_prints_them() -> None:
    diag = parse_diag(NEWER)

    assert {
        "End of job queue": 41002,
        "Hit default_queue_depth": 9200,
        "Hit sched_max_job_start": 0,
        "Blocked on licenses": 17,
        "Hit max_rpc_cnt": 3,
        "Timeout (max_sched_time)": 99,
    } == diag.main_exits
    assert {
        "End of job queue": 1601,
        "Hit bf_max_job_start": 4,
        "Hit bf_max_job_test": 80,
        "System state changed": 0,
        "Hit table size limit (bf_node_space_size)": 1,
        "Timeout (bf_max_time)": 2,
    } == diag.backfill_exits


def test_messages_are_read_with_their_whole_name() -> None:
    messages = {row.message: row for row in parse_diag(NEWER).messages}

    assert (
        MessageRpcs(
            message="REQUEST_JOB_INFO",
            requests=40211,
            seconds=751.945709,
            queue=RpcQueue(queued=3, dropped=118, last_cycle_requests=2, max_cycle_requests=25),
        )
        == messages["REQUEST_JOB_INFO"]
    )
    assert [
        "REQUEST_PARTITION_INFO",
        "REQUEST_JOB_INFO",
        "REQUEST_COMPLETE_PROLOG",
        "REQUEST_STEP_COMPLETE_EXTENDED_BY_SOME_SITE",
    ] == list(messages)


def test_a_release_without_queues_has_none() -> None:
    messages = parse_diag(BUSY).messages

    assert MessageRpcs(message="REQUEST_SUBMIT_BATCH_JOB", requests=29, seconds=0.078614) == messages[0]
    assert 11 == len(messages)
    assert {None} == {row.queue for row in messages}


def test_the_mean_time_that_slurm_prints_follows_from_ours() -> None:
    printed = re.findall(rb"ave_time:(\d+)", BUSY)
    rows: tuple[MessageRpcs | UserRpcs, ...] = (*parse_diag(BUSY).messages, *parse_diag(BUSY).users)

    assert [int(mean) for mean in printed] == [int(round(1e6 * row.seconds) / row.requests) for row in rows]


def test_users_are_read_with_their_whole_name_and_uid() -> None:
    assert (
        UserRpcs(user="root", uid=0, requests=905000, seconds=271.500001),
        UserRpcs(user="maximiliane.oberhuber", uid=70123, requests=30000, seconds=600.000011),
        UserRpcs(user="nobody", uid=70999, requests=5, seconds=0.000052),
        UserRpcs(user="nobody", uid=71000, requests=2, seconds=0.000006),
    ) == parse_diag(NEWER).users


def test_waiting_messages_to_nodes_are_counted_by_kind() -> None:
    assert {"REQUEST_TERMINATE_JOB": 33, "REQUEST_NODE_REGISTRATION_STATUS": 4} == parse_diag(NEWER).outgoing
    assert {} == parse_diag(BUSY).outgoing


def test_a_controller_that_just_started_has_measured_little() -> None:
    diag = parse_diag(FRESH)

    assert diag.daemon.timestamp("Data since") is None
    served = serve(FRESH)
    assert {"slurm_scheduler_cycles_total": 0, "slurm_scheduler_last_queue_length": 0} == {
        name: value
        for name, value in served.items()
        if name.startswith(("slurm_scheduler_cycle", "slurm_scheduler_last"))
    }
    assert not {"slurm_scheduler_jobs_pending", "slurm_scheduler_jobs_running"} & set(served)
    assert (0, 1794732814) == (
        served["slurm_backfill_cycles_total"],
        served["slurm_backfill_last_cycle_timestamp_seconds"],
    )
    assert not {f"slurm_backfill_{which}_cycle_seconds" for which in ("last", "max", "mean")} & set(served)
    assert () == diag.messages


def test_a_last_cycle_before_the_midnight_reset_is_kept() -> None:
    answer = BUSY.replace(b"Total cycles: 163", b"Total cycles: 0")

    assert 0.000097 == serve(answer)["slurm_scheduler_last_cycle_seconds"]


def test_a_backfill_that_never_ran_has_no_time() -> None:
    answer = BUSY.replace(b"Last cycle when: Sun Nov 15 08:49:56 2026 (1794732596)", b"Last cycle when: N/A")

    assert "slurm_backfill_last_cycle_timestamp_seconds" not in serve(answer)


def test_a_table_that_says_it_is_empty_is_empty() -> None:
    answer = FRESH.replace(b"by message type\n", b"by message type\n\tNo RPCs recorded yet.\n")

    assert () == parse_diag(answer).messages


def test_messages_of_one_name_are_added_up() -> None:
    answer = NEWER.replace(b"REQUEST_NODE_REGISTRATION_STATUS        ( 1001)", b"REQUEST_TERMINATE_JOB (9999)")

    assert {"REQUEST_TERMINATE_JOB": 37} == parse_diag(answer).outgoing


@pytest.mark.parametrize("line", [b"Agent count:          0\n", b"Jobs submitted: 31\n", b"\tMax cycle:    9082\n"])
def test_a_line_that_is_missing_costs_its_own_value_only(line: bytes) -> None:
    whole, without = parse_diag(BUSY), parse_diag(BUSY.replace(line, b""))

    assert whole != without
    assert whole.messages == without.messages


def test_a_value_that_is_no_number_was_not_measured() -> None:
    assert "slurm_scheduler_threads" not in serve(
        BUSY.replace(b"Server thread count:  3", b"Server thread count:  many")
    )
    assert (
        {} == parse_diag(NEWER.replace(b"Main scheduler exit:\n", b"Main scheduler exit:\n\tBad:x\n\n?:\n")).main_exits
    )


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\n",
        b"\trow\n",
        b"No data available. Probably slurmctld is not working\n",
        b"Reset scheduling statistics\n",
        BUSY[:-1],
        BUSY.partition(b"\tNo pending RPCs")[0],
        BUSY.partition(b"Pending RPC statistics")[0],
        BUSY.partition(b"Remote Procedure Call statistics by user")[0],
        BUSY.replace(b"Backfilling stats", b"Frontfilling stats"),
        BUSY.replace(b"total_time:1931", b"total_lime:1931"),
        BUSY.replace(b"total_time:187466", b"total_time:-1"),
        BUSY.replace(b"count:29", b"count:x"),
        BUSY.replace(b"(    1001)", b"(    x001)"),
        BUSY.replace(b"by user\n", b"by user\n\tsomething new\n"),
    ],
)
def test_an_answer_that_was_cut_or_is_another_is_rejected(answer: bytes) -> None:
    with pytest.raises(MalformedAnswer, match="sdiag: "):
        parse_diag(answer)


def test_a_name_that_is_not_utf_8_survives() -> None:
    user = parse_diag(BUSY.replace(b"labbob ", b"lab\xffbob")).users[2].user

    assert b"lab\xffbob" == user.encode("utf-8", "surrogateescape")


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_rejected(noise: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        parse_diag(noise)


@given(st.sampled_from([BUSY, FRESH, NEWER]), st.binary(max_size=20), st.data())
def test_noise_inside_an_answer_is_read_or_rejected(answer: bytes, noise: bytes, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(answer)))
    end = data.draw(st.integers(begin, min(len(answer), begin + 20)))
    try:
        diag = parse_diag(answer[:begin] + noise + answer[end:])
    except MalformedAnswer:
        return
    assert isinstance(diag, Diag)
