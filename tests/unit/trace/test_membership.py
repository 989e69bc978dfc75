# SPDX-License-Identifier: Apache-2.0
"""Check which job the cgroups of a process name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurmscope.node.cgroup.names import JobName
from slurmscope.trace.node_endpoint import Membership, parse_membership, read_membership


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n", Membership(JobName(job_id=12))),
        ("0::/system.slice/n1_slurmstepd.scope/job_12/step_batch/user\n", Membership(JobName(job_id=12), "n1")),
        ("0::/system.slice/slurmstepd.scope/s0123456789ABC/step_0\n", Membership(JobName(sluid="s0123456789ABC"))),
        ("5:memory:/\n4:cpuacct,cpu:/slurm_n1/uid_1000/job_7/step_0/task_1\n", Membership(JobName(job_id=7), "n1")),
        ("3:freezer:/slurm/uid_1000/job_7/step_batch\n", Membership(JobName(job_id=7))),
        ("0::/user.slice/user-1000.slice\n", None),
        ("0::/job_12/step_0\n", None),
        ("0::/system.slice/slurmstepd.scope/system\n", None),
        ("0::/slurm/uid_1000\n", None),
        ("", None),
        ("garbage", None),
    ],
)
def test_job_of_a_cgroup_path(text: str, expected: Membership | None) -> None:
    assert expected == parse_membership(text)


def test_process_without_a_job_and_one_that_is_gone() -> None:
    assert read_membership(Path("/proc"), os.getpid()) is None
    assert read_membership(Path("/proc"), 2**22 + 1) is None
