# SPDX-License-Identifier: Apache-2.0
"""Properties of an accounting record follow from its fields."""

from __future__ import annotations

from typing import Any

import pytest

from slurmscope.cluster.squeue import JobGroup
from slurmscope.core.tres import Gres
from slurmscope.jobs.record import StepRecord, is_one_job
from slurmscope.slurm.states import BASE_STATES
from tests.fakes.reports import make_record


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "4711"),
        ({"array_job_id": 4700, "array_task_id": 0}, "4700_0"),
        ({"het_job_id": 4700, "het_offset": 0}, "4700+0"),
        # An array that has no task yet, or half of a pair, is shown by its own id.
        ({"array_job_id": 4700}, "4711"),
        ({"array_task_id": 3}, "4711"),
        ({"het_job_id": 4700}, "4711"),
        ({"het_offset": 1}, "4711"),
        # A heterogeneous job cannot be an array; the array comes first if it were.
        ({"array_job_id": 1, "array_task_id": 2, "het_job_id": 3, "het_offset": 4}, "1_2"),
    ],
)
def test_job_is_shown_by_the_id_that_users_write(changed: dict[str, Any], expected: str) -> None:
    assert expected == make_record(**changed).shown_id


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        # The largest ID that a cluster gives itself, and the first of the first cluster of a federation.
        ({"job_id": 0x03FFFFFF}, None),
        ({"job_id": 0x04000000}, (1, 0)),
        ({"job_id": 67_109_080}, (1, 216)),
        ({"job_id": (63 << 26) + 5}, (63, 5)),
        ({"job_id": (2 << 26) + 9, "array_job_id": (2 << 26) + 7, "array_task_id": 2}, (2, 7)),
        ({"job_id": (2 << 26) + 9, "het_job_id": (2 << 26) + 8, "het_offset": 1}, (2, 8)),
    ],
)
def test_federated_job_has_the_id_of_its_origin(changed: dict[str, Any], expected: tuple[int, int] | None) -> None:
    assert expected == make_record(**changed).federated


@pytest.mark.parametrize(
    ("shown_id", "users", "expected"),
    [
        ("67109080", ("ada", "ada"), True),
        ("67109080_3", ("ada",), True),
        ("67109080+1", ("ada",), True),
        ("67109080", ("ada", "bob"), False),
        ("67109080", (), False),
        ("4711", ("ada", "ada"), False),
        ("x", ("ada",), False),
    ],
)
def test_runs_of_one_federated_job_have_one_user(shown_id: str, users: tuple[str, ...], expected: bool) -> None:
    assert expected == is_one_job(shown_id, users)


def test_gpus_of_all_types_are_counted() -> None:
    gres = (
        Gres(name="gpu", model="a100", count=2),
        Gres(name="gpu", count=3),
        Gres(name="nvme", count=7),
    )

    assert 5 == make_record(gres=gres).gpus
    assert 0 == make_record(gres=gres[2:]).gpus


@pytest.mark.parametrize("state", [*BASE_STATES, "REQUEUED", "COMPLETING"])
def test_run_has_ended_in_final_states_and_when_requeued(state: str) -> None:
    record = make_record(state=state)

    assert (state not in {"PENDING", "RUNNING", "SUSPENDED", "COMPLETING"}) == record.has_ended
    assert (state == "RUNNING") == record.is_running
    assert (state in {"RUNNING", "SUSPENDED"}) == record.is_active


@pytest.mark.parametrize(
    ("partition", "requested_cpus", "expected"),
    [("", None, True), ("batch", None, False), ("", 4, False), ("batch", 4, False)],
)
def test_record_without_partition_and_request_is_partial(
    partition: str, requested_cpus: int | None, expected: bool
) -> None:
    assert expected == make_record(partition=partition, requested_cpus=requested_cpus).is_partial


@pytest.mark.parametrize(("state", "expected"), [("RUNNING", False), ("PENDING", False), ("FAILED", True)])
def test_group_of_jobs_has_ended_in_final_states(state: str, expected: bool) -> None:
    group = JobGroup(
        account="physics", user="alice", partitions=("debug",), qos="normal", state=state, reason="None", features=(),
        jobs=1, nodes=1, cpus=1, memory_bytes=None, gres=(), first_submit_seconds=0,
    )  # fmt: skip

    assert expected == group.has_ended


@pytest.mark.parametrize(
    ("eligible", "start", "expected"), [(150, 200, 50), (None, 200, 100), (150, None, None), (250, 200, 0)]
)
def test_job_waits_from_when_it_was_eligible_or_submitted(
    eligible: int | None, start: int | None, expected: int | None
) -> None:
    record = make_record(submit_seconds=100, eligible_seconds=eligible, start_seconds=start)

    assert expected == record.wait_seconds


def test_derived_exit_is_the_highest_of_the_steps_that_srun_started() -> None:
    ends = {"batch": (7, 0), "extern": (0, 0), "0": (0, 0), "1": (0, 9)}
    steps = tuple(StepRecord(name=n, state="FAILED", exit_code=c, exit_signal=s) for n, (c, s) in ends.items())
    assert (0, 9) == make_record(steps=steps).derived_exit
    failed = StepRecord(name="2", state="FAILED", exit_code=1, exit_signal=0)
    assert (1, 0) == make_record(steps=(*steps, failed)).derived_exit
    assert (None, None) == make_record(steps=steps[:2]).derived_exit


@pytest.mark.parametrize("unknown", [(0, None), (None, 0), (None, None)])
def test_end_of_a_step_that_is_unknown_is_not_the_highest(unknown: tuple[int | None, int | None]) -> None:
    ends = [(0, 0), unknown]
    steps = [StepRecord(name=str(n), state="FAILED", exit_code=c, exit_signal=s) for n, (c, s) in enumerate(ends)]
    assert (0, 0) == make_record(steps=tuple(steps)).derived_exit


def test_rest_of_an_array_has_no_task() -> None:
    assert make_record(array_job_id=20, array_task_id=None).is_array_rest
    assert not make_record(array_job_id=20, array_task_id=0).is_array_rest
    assert not make_record().is_array_rest
