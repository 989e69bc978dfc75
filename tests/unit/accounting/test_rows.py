# SPDX-License-Identifier: Apache-2.0
"""Numbers of the accounting database become the words that sacct prints."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.accounting.records import decode_record, decode_step
from slurmscope.accounting.rows import NOW, name_amounts, name_state, name_tres
from slurmscope.core.tres import Gres
from slurmscope.jobs.record import JobRecord

NO_VALUE = 4294967294
TRES = name_tres([(1, "cpu", ""), (2, "mem", b""), (4, "node", None), (1001, b"gres", b"gpu")])

# A row of 22.05, as the lab's MariaDB returned it.
JOB: dict[str, Any] = {
    "job_db_inx": 6, "id_job": 6, "job_name": "relax", "id_user": 1002, "user_name": "labbob", "account": "chemistry",
    "partition_name": "gpus", "qos_name": "normal", "state": 3, "time_submit": 1794742130, "time_eligible": 1794742130,
    "time_start": 1794742130, "time_end": 1794742132, "time_suspended": 0, "timelimit": 10, "nodelist": "lab0n[3-4]",
    "tres_alloc": "1=2,2=200,3=18446744073709551614,4=2,5=2,1001=4", "tres_req": "1=2,2=200,4=2,5=2,1001=4",
    "exit_code": 0, "id_array_job": 0, "id_array_task": NO_VALUE, "het_job_id": 0, "het_job_offset": NO_VALUE,
    "state_reason_prev": 0, "work_dir": "/home/bob", "submit_line": "sbatch x", "restart_cnt": None, NOW: 1794742200,
    "std_out": None, "std_err": None, "failed_node": None, "admin_comment": None, "kill_requid": None,
    "rpc_version": None,
}  # fmt: skip
STEP: dict[str, Any] = {
    "job_db_inx": 6, "id_step": 0, "step_het_comp": NO_VALUE, "state": 3, "time_start": 1794742130,
    "time_end": 1794742132, "task_cnt": 2, "nodes_alloc": 1, "exit_code": 0, "user_sec": 5, "user_usec": 716312,
    "sys_sec": 1, "sys_usec": 85889, "tres_usage_in_max": "1=2900,2=65785856,3=0,6=43830,7=70885376,8=10",
    "nodelist": "lab0n3", "submit_line": "/usr/bin/srun -c 4 --mem=2G ./solve --mem=9G",
}  # fmt: skip


def read(*steps: dict[str, Any], **changes: object) -> JobRecord:
    record = decode_record("lab", {**JOB, **changes}, steps, TRES)
    assert record is not None
    return record


def test_resources_are_named_and_unknown_amounts_left_out() -> None:
    job = read()

    assert (2, 200 << 20, 2) == (job.cpus, job.memory_bytes, job.node_count)
    assert (Gres(name="gpu", count=4),) == job.gres
    assert ("lab0n3", "lab0n4") == job.nodes


def test_output_files_and_failed_nodes_are_read_where_the_table_has_them() -> None:
    later = read(std_out=b"/home/bob/%j.out", std_err="/home/bob/%j.err", failed_node="lab0n4")

    assert ("", "", "") == (read().stdout, read().stderr, read().failed_node)
    assert ("/home/bob/%j.out", "/home/bob/%j.err", "lab0n4") == (later.stdout, later.stderr, later.failed_node)


@pytest.mark.parametrize(
    ("state", "uid", "expected"),
    [(4, 1001, 1001), (4, 0, 0), (4, None, None), (4, -1, None), (4, NO_VALUE, None), (3, 1001, None)],
)
def test_who_cancelled_a_job_is_known_for_cancelled_jobs(state: int, uid: int | None, expected: int | None) -> None:
    assert expected == read(state=state, kill_requid=uid).cancelled_by_uid


def test_step_knows_its_nodes() -> None:
    assert ["lab0n3"] == [step.node_list for step in read(STEP).steps]


def test_step_knows_the_size_that_its_srun_requested() -> None:
    assert ["--cpus-per-task=4 --mem=2G"] == [step.request for step in read(STEP).steps]
    assert [""] == [step.request for step in read({**STEP, "submit_line": None}).steps]


def test_cores_asked_for_are_told_beside_those_given() -> None:
    # Two threads of a whole core for a job that asked for one.
    job = read(tres_req="1=1,2=200,4=1", tres_alloc="1=2,2=200,4=1")

    assert (1, 2) == (job.requested_cpus, job.cpus)
    assert (None, 2) == (read(tres_req="").requested_cpus, read(tres_req="").cpus)


@pytest.mark.parametrize(
    ("state", "end", "told", "suspended"),
    [
        # Started at 1794757663; sacct 22.05 printed 7 s, 12 s and none as Suspended, and 18, 13 and 5 s as Elapsed.
        pytest.param(3, 1794757688, 7, 7, id="once"),
        pytest.param(4, 1794757688, 12, 12, id="twice"),
        pytest.param(4, 1794757668, 0, 0, id="cancelled while suspended"),
        pytest.param(1, 0, 7, 7, id="resumed"),
        pytest.param(2, 0, 1794757668, 7, id="still suspended"),
        pytest.param(2, 0, 1794757661, 14, id="still suspended, and 7 s before"),
        pytest.param(2, 0, 1794757676, 0, id="by a clock that is ahead"),
        pytest.param(2, 0, 0, 0, id="moment not told"),
        pytest.param(3, 1794757688, 1794757668, 0, id="resuming missed"),
    ],
)
def test_suspended_time_is_that_of_sacct(state: int, end: int, told: int, suspended: int) -> None:
    times = {"time_start": 1794757663, "time_end": end, NOW: 1794757675}

    assert suspended == read(state=state, time_suspended=told, **times).suspended_seconds


def test_record_without_the_start_is_partial() -> None:
    # As slurmdbd makes it when the end of a job comes before its start.
    unknown = {"job_name": "allocation", "partition_name": None, "account": None, "tres_req": "", "id_user": 0}

    assert read(**unknown).is_partial
    assert "" == read(**unknown).name
    assert not read(job_name="allocation").is_partial


def test_job_with_a_step_runs_even_if_its_start_is_not_known_yet() -> None:
    # As slurmdbd makes it when a step starts before the start of its job arrives.
    unknown = {"job_name": "allocation", "partition_name": None, "account": None, "tres_req": "", "tres_alloc": ""}
    job = read({**STEP, "state": 1, "time_end": 0}, **unknown, state=0, time_start=0, time_end=0)

    assert ("RUNNING", STEP["time_start"], "") == (job.state, job.start_seconds, job.name)
    assert "PENDING" == read(**unknown, state=0, time_start=0, time_end=0).state


def test_step_has_memory_in_bytes_and_cpu_time_of_both_kinds() -> None:
    step = decode_step(STEP)

    assert (65785856, "0", 2) == (step.max_rss_bytes, step.name, step.tasks)
    assert pytest.approx(6.802201) == step.cpu_seconds


def test_steps_come_in_order_by_the_names_sacct_gives_them() -> None:
    steps = [{**STEP, "id_step": number} for number in (1, -4, 0, -5, -6)]

    assert ["interactive", "batch", "extern", "0", "1"] == [step.name for step in read(*steps).steps]


def test_array_task_and_part_of_heterogeneous_job_know_their_parents() -> None:
    assert "7_1" == read(id_array_job=7, id_array_task=1).shown_id
    assert (7, None) == (read(id_array_job=7).array_job_id, read(id_array_job=7).array_task_id)
    assert "18+1" == read(het_job_id=18, het_job_offset=1).shown_id
    assert "6" == read().shown_id


@pytest.mark.parametrize("minutes", [NO_VALUE, NO_VALUE + 1, 0])
def test_no_limit_is_none(minutes: int) -> None:
    assert read(timelimit=minutes).time_limit_seconds is None


def test_waiting_job_says_why() -> None:
    waiting = {"state": 0, "time_start": 0, "time_end": 0, "tres_alloc": "", "nodelist": "None assigned"}

    # Names that 22.05 gives to these numbers.
    expected = {0: "", 9: "BeginTime", 16: "JobHeldUser", 39: "DependencyNeverSatisfied", 178: "PartitionConfig"}
    assert expected == {number: read(**waiting, state_reason_prev=number).reason for number in expected}
    assert "" == read(**waiting, state_reason_prev=9999).reason
    assert "" == read(state_reason_prev=16).reason


def test_missing_texts_are_empty_and_odd_bytes_replaced() -> None:
    job = read(user_name=None, account=None, submit_line=None, job_name=b"\xff")

    assert ("1002", "", "", "\ufffd") == (job.user, job.account, job.submit_line, job.name)


def test_part_before_a_resize_has_its_own_end() -> None:
    part = decode_record("lab", {**JOB, "state": 1 << 13}, (), TRES)

    assert ("RESIZING", JOB["time_end"]) == (part.state, part.end_seconds)


def test_restarts_are_read_where_the_table_has_them() -> None:
    assert (None, 3) == (read().restarts, read(restart_cnt=3).restarts)


def test_states_have_the_names_of_slurm() -> None:
    # What job_state_string() of Slurm 22.05 returns.
    expected = {
        0: "PENDING", 1: "RUNNING", 2: "SUSPENDED", 3: "COMPLETED", 4: "CANCELLED", 5: "FAILED", 6: "TIMEOUT",
        7: "NODE_FAIL", 8: "PREEMPTED", 9: "BOOT_FAIL", 10: "DEADLINE", 11: "OUT_OF_MEMORY", 1 << 10: "REQUEUED",
        1 << 13: "RESIZING", 1 << 19: "REVOKED", 200: "UNKNOWN",
    }  # fmt: skip

    assert expected == {number: name_state(number) for number in expected}


def read_status(status: int, **release: int) -> tuple[int | None, int | None]:
    step = decode_step({**STEP, "exit_code": status, **release})
    return step.exit_code, step.exit_signal


@given(st.integers(0, 127))
def test_exit_codes_are_those_of_the_kernel(code: int) -> None:
    assert (os.waitstatus_to_exitcode(code << 8), 0) == read_status(code << 8)


@given(st.integers(1, 64), st.booleans())
def test_signals_are_those_of_the_kernel(signal: int, has_core: bool) -> None:
    status = signal | (0x80 if has_core else 0)

    assert (0, os.WTERMSIG(status)) == read_status(status)


@pytest.mark.parametrize(
    ("release", "code"),
    [
        # sacct 22.05 printed 72:0 for a script that ended with exit 200; from 25.11 on it prints 200:0.
        pytest.param({"rpc_version": 38 << 8}, 72, id="22.05"),
        pytest.param({"rpc_version": 43 << 8}, 72, id="25.05"),
        pytest.param({"rpc_version": 44 << 8}, 200, id="25.11"),
        pytest.param({"rpc_version": 45 << 8}, 200, id="26.05"),
        pytest.param({"rpc_version": None}, 72, id="unregistered"),
    ],
)
def test_high_exit_codes_are_those_of_sacct_of_the_release(release: dict[str, int], code: int) -> None:
    assert (code, 0) == read_status(51200, **release)
    job = read({**STEP, "exit_code": 51200}, exit_code=51200, **release)
    assert (code, code) == (job.exit_code, job.steps[0].exit_code)


@pytest.mark.parametrize("status", [-2, NO_VALUE, None])
def test_step_whose_node_failed_has_no_exit_code(status: int) -> None:
    assert (None, None) == read_status(status)


@pytest.mark.parametrize("seconds", [0, NO_VALUE, NO_VALUE + 1, None])
def test_job_that_never_was_eligible_has_no_such_time(seconds: int | None) -> None:
    assert read(time_eligible=seconds).eligible_seconds is None


def test_reused_reasons_have_the_names_of_the_release() -> None:
    waiting = {"state": 0, "time_start": 0, "time_end": 0, "tres_alloc": "", "nodelist": "None assigned"}

    def name(number: int, release: int) -> str:
        return read(**waiting, state_reason_prev=number, rpc_version=release << 8).reason

    assert ("FrontEndDown", "BlockMaxError") == (name(17, 38), name(33, 38))
    assert ("NvidiaImexChannels", "RaisedSignal") == (name(17, 44), name(33, 44))
    assert "JobHeldUser" == name(16, 44)


@given(st.text())
def test_any_text_is_read_as_amounts(text: str) -> None:
    for entry in filter(None, name_amounts(text, TRES).split(",")):
        name, _, amount = entry.partition("=")
        assert name in TRES.values()
        assert amount.isdecimal()
