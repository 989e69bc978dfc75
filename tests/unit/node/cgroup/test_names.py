# SPDX-License-Identifier: Apache-2.0
"""Check that only Slurm's own folders are taken for jobs, steps and tasks."""

import pytest

from slurmscope.node.cgroup.names import (
    JobName,
    parse_job,
    parse_scope,
    parse_slurm_folder,
    parse_step,
    parse_task,
    parse_uid,
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("job_1", JobName(job_id=1)),
        ("job_4294967294", JobName(job_id=4294967294)),
        ("sEKNKTV3WPV500", JobName(sluid="sEKNKTV3WPV500")),
        ("job_", None),
        ("job_1x", None),
        ("job_12345678901", None),
        ("job_1\n", None),
        ("job_١", None),  # a digit, but not one that Slurm writes
        ("sEKNKTV3WPV50", None),
        ("sEKNKTV3WPV5000", None),
        ("sEKNKTV3WPVI00", None),  # Crockford's alphabet has no I
        ("SEKNKTV3WPV500", None),
        ("system", None),
        ("gpu_probe", None),
    ],
)
def test_job_folder_is_a_number_or_a_sluid(name: str, expected: JobName | None) -> None:
    assert expected == parse_job(name)


@pytest.mark.parametrize("step", ["batch", "extern", "interactive", "TBD", "0", "17", "0+1"])
def test_every_kind_of_step_is_known(step: str) -> None:
    assert step == parse_step(f"step_{step}")


@pytest.mark.parametrize("name", ["step_", "step_a/b", "steps_0", "user", "step_0\n", "step_" + "9" * 40])
def test_other_folders_are_not_steps(name: str) -> None:
    assert parse_step(name) is None


@pytest.mark.parametrize(("name", "expected"), [("task_0", "0"), ("task_special", "special"), ("task_", None)])
def test_task_is_a_number_or_special(name: str, expected: str | None) -> None:
    assert expected == parse_task(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("slurmstepd.scope", ""),
        ("n1_slurmstepd.scope", "n1"),
        ("node_with_underscore_slurmstepd.scope", "node_with_underscore"),
        ("_slurmstepd.scope", None),
        ("xslurmstepd.scope", None),
        ("slurmstepd.scope.bak", None),
    ],
)
def test_scope_may_name_its_node(name: str, expected: str | None) -> None:
    assert expected == parse_scope(name)


@pytest.mark.parametrize(("name", "expected"), [("slurm", ""), ("slurm_n1", "n1"), ("slurm_", None), ("slurmx", None)])
def test_v1_folder_may_name_its_node(name: str, expected: str | None) -> None:
    assert expected == parse_slurm_folder(name)


@pytest.mark.parametrize(("name", "expected"), [("uid_0", 0), ("uid_1001", 1001), ("uid_x", None), ("uid_-1", None)])
def test_user_folder_is_a_number(name: str, expected: int | None) -> None:
    assert expected == parse_uid(name)
