# SPDX-License-Identifier: Apache-2.0
"""What Slurm says of jobs in JSON becomes the groups that squeue's columns give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.cluster.json.records import SQUEUE_ARGUMENTS, parse_jobs
from slurmscope.cluster.squeue import JobOwner, Jobs, JobStart, StartWindow
from slurmscope.core.errors import MalformedAnswer, SlurmRefused, SourceError, TruncatedArrays
from slurmscope.core.tres import Gres

FIXTURES = Path(__file__).parents[3] / "fixtures" / "slurmrestd"
NOW = 1_794_732_600.0
NOTHING_NEW = StartWindow(0, 0)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def job(**changed: object) -> dict[str, object]:
    """Write a record as v0.0.42 does, but for what is changed."""
    record: dict[str, object] = {
        "account": "physics",
        "user_name": "alice",
        "user_id": 1001,
        "partition": "debug",
        "qos": "normal",
        "job_state": ["RUNNING"],
        "state_reason": "None",
        "state_description": "",
        "features": "",
        "node_count": {"set": True, "infinite": False, "number": 1},
        "cpus": {"set": True, "infinite": False, "number": 2},
        "tres_alloc_str": "cpu=2,mem=200M,node=1,billing=2",
        "tres_req_str": "cpu=2,mem=200M,node=1,billing=2",
        "array_task_string": "",
        "submit_time": {"set": True, "infinite": False, "number": 1794732498},
        "start_time": {"set": True, "infinite": False, "number": 1794732500},
    }
    return record | changed


def parse(*records: object, window: StartWindow = NOTHING_NEW) -> Jobs:
    answer = json.dumps({"jobs": records, "errors": []}).encode()
    return parse_jobs(answer, taken_at_seconds=NOW, window=window)


def test_squeue_is_requested_all_jobs_and_whole_arrays() -> None:
    assert ("--json", "--all", "--array", "--states=all") == SQUEUE_ARGUMENTS


def test_like_jobs_are_one_group_with_their_sums() -> None:
    larger = job(
        node_count=2,
        cpus=8,
        tres_alloc_str="cpu=8,mem=1G,node=2,gres/gpu=4,gres/gpu:a100=3",
        submit_time=1794732400,
    )

    (group,) = parse(job(), larger, job()).groups

    assert (3, 1 + 2 + 1, 2 + 8 + 2) == (group.jobs, group.nodes, group.cpus)
    assert 2 * 200 * 2**20 + 2**30 == group.memory_bytes
    assert (Gres(name="gpu", model="a100", count=3), Gres(name="gpu", model="", count=1)) == group.gres
    assert 1794732400 == group.first_submit_seconds


def test_no_jobs_are_a_cluster_without_jobs() -> None:
    assert Jobs(groups=(), taken_at_seconds=NOW) == parse()


def test_array_counts_all_its_tasks() -> None:
    (group,) = parse(job(job_state=["PENDING"], array_task_string="1-10%2", tres_alloc_str="")).groups

    assert (10, 10, 20, 10 * 200 * 2**20) == (group.jobs, group.nodes, group.cpus, group.memory_bytes)


def test_cut_array_is_no_answer() -> None:
    # As slurmrestd 22.05 has cut it.
    cut = "1-2,5,8-9,12,14,17-18,21-22,24,26,28-31,33,35-36,38,44,48,57...%4"

    with pytest.raises(TruncatedArrays, match=r"1 job arrays.*SLURM_BITSTR_LEN=0"):
        parse(job(), job(array_task_string=cut))


def test_starts_in_the_window_are_reported_with_their_waits() -> None:
    jobs = parse(
        job(submit_time=1794732400, start_time=1794732499),
        job(submit_time=1794732400, start_time=1794732500),
        job(submit_time=1794732400, start_time=1794732500),
        job(submit_time=1794732300, start_time=1794732509, job_state=["COMPLETED"], partition="debug,long"),
        job(submit_time=1794732300, start_time=1794732510),
        job(submit_time=1794732300, start_time=1794732505, job_state=["PENDING"]),
        job(submit_time=1794732300, start_time=0),
        job(submit_time=1794732508, start_time=1794732507),
        window=StartWindow(1794732500, 1794732510),
    )

    expected = {
        JobStart("debug", "normal", 100, 2),
        JobStart("debug", "normal", 209, 1),
        JobStart("debug", "normal", 0, 1),
    }
    assert expected == set(jobs.starts)


def test_cpus_of_a_cancelled_job_are_those_it_requested() -> None:
    # Slurm 22.05: "cpus" is null where the number of tasks is not set.
    (group,) = parse(job(job_state="CANCELLED", cpus=None, tres_alloc_str="", tres_req_str="cpu=3,node=1")).groups

    assert 3 == group.cpus


def test_user_without_a_name_goes_by_his_number() -> None:
    jobs = parse(job(user_name=""), job(user_name=None, user_id={"set": True, "infinite": False, "number": 7}))

    assert ["1001", "7"] == [group.user for group in jobs.groups]


def test_user_without_name_and_number_is_nobody() -> None:
    assert "nobody" == parse(job(user_name="", user_id=None)).groups[0].user


@pytest.mark.parametrize(
    "odd",
    [
        job(job_state=[]),
        job(job_state=None),
        job(node_count=None),
        job(submit_time={"set": False, "infinite": False, "number": 0}),
        job(cpus="Infinity", tres_alloc_str="node=1"),
        job(tres_alloc_str="cpu"),
        job(array_task_string="all"),
        # These are odd for the decoder already.
        job(account=7),
        job(job_state={"state": "RUNNING"}),
        job(cpus=[1]),
        "RUNNING",
        None,
    ],
)
def test_odd_record_costs_only_itself(odd: object) -> None:
    jobs = parse(job(), odd, job())

    assert (2, 1) == (jobs.groups[0].jobs, jobs.unreadable_rows)
    assert 1 == len(jobs.groups)


@pytest.mark.parametrize(
    ("reason", "description", "expected"),
    [
        ("JobHeldUser", "job requeued in held state", "JobHeldUser"),
        ("Resources", "Nodes required for job are DOWN, DRAINED or reserved", "Resources"),
        ("ReqNodeNotAvail", "ReqNodeNotAvail, UnavailableNodes:n2", "ReqNodeNotAvail, UnavailableNodes:n2"),
        ("Priority", "", "Priority"),
        ("", "Priority", "Priority"),
    ],
)
def test_reason_is_that_of_slurm_and_not_its_description(reason: str, description: str, expected: str) -> None:
    assert expected == parse(job(state_reason=reason, state_description=description)).groups[0].reason


def test_records_of_something_else_are_not_an_empty_queue() -> None:
    with pytest.raises(MalformedAnswer, match="none of 2 jobs"):
        parse({"jobid": 1}, {"jobid": 2})


def test_bytes_of_users_that_are_no_utf8_cost_nothing() -> None:
    answer = json.dumps({"jobs": [job(name="NAME"), job(state_reason="NAME")]}).encode()

    jobs = parse_jobs(answer.replace(b"NAME", b"raw\xff\xfebytes"), taken_at_seconds=NOW, window=NOTHING_NEW)

    assert {"None", "raw��bytes"} == {group.reason for group in jobs.groups}


@pytest.mark.parametrize("version", ["v0.0.38", "v0.0.45"])
def test_controller_that_is_down_is_not_an_empty_queue(version: str) -> None:
    answer = (FIXTURES / version / "controller-down.json").read_bytes()

    with pytest.raises(SlurmRefused, match=r"Slurm reports: (Failed while looking|Unable to query) .*jobs"):
        parse_jobs(answer, taken_at_seconds=NOW, window=NOTHING_NEW)


@pytest.mark.parametrize("version", ["v0.0.38", "v0.0.42"])
def test_answer_cut_anywhere_is_no_answer(version: str) -> None:
    whole = (FIXTURES / version / "jobs.json").read_bytes().rstrip()

    for length in range(0, len(whole), 37):
        with pytest.raises(MalformedAnswer):
            parse_jobs(whole[:length], taken_at_seconds=NOW, window=NOTHING_NEW)


@given(st.lists(st.dictionaries(st.sampled_from(sorted(job())), JSON) | JSON, max_size=5), JSON | st.just([]))
def test_any_records_give_jobs_or_a_source_error(records: list[object], errors: object) -> None:
    answer = json.dumps({"jobs": [job(), *records], "errors": errors}).encode()

    try:
        jobs = parse_jobs(answer, taken_at_seconds=NOW, window=StartWindow(0, 2**31))
    except SourceError:
        assert errors != []
    else:
        assert 1 <= sum(group.jobs for group in jobs.groups)


@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_give_jobs_or_a_source_error(answer: bytes) -> None:
    try:
        jobs = parse_jobs(answer, taken_at_seconds=NOW, window=NOTHING_NEW)
    except SourceError:
        return
    assert () == jobs.groups


def test_owners_are_found_by_job_and_by_array() -> None:
    records = [
        job(job_id=7),
        job(job_id=12, array_job_id={"set": True, "infinite": False, "number": 10}, user_name="bob", partition="a,b"),
        job(job_id=10, array_job_id=10, job_state=["PENDING"]),
        job(user_name="eve"),
    ]
    answer = json.dumps({"jobs": records}).encode()

    jobs = parse_jobs(answer, taken_at_seconds=NOW, window=NOTHING_NEW, with_owners=True)

    alice, bob = JobOwner("physics", "alice", "debug"), JobOwner("physics", "bob", "a")
    assert {7: alice, 12: bob, 10: alice} == jobs.owners
    assert {} == parse(*records).owners
