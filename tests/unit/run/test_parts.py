# SPDX-License-Identifier: Apache-2.0
"""Signals, sampling times and names are decided as documented."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurmscope.jobs.traced_run import SlurmContext
from slurmscope.run.context import expand_file_name, host_name, is_socket, read_context, user_name
from slurmscope.run.runner import caught_signals, must_pass_on, name_of, next_interval

BY_KILL, BY_QUEUE, BY_THREAD, BY_KERNEL = 0, -1, -6, 128


@pytest.mark.parametrize(
    ("code", "sender", "is_passed_on"),
    [
        (BY_KILL, 50, True),
        (BY_QUEUE, 50, True),
        (BY_THREAD, 50, True),
        (BY_KERNEL, 0, False),  # Ctrl-C reaches the command too
        (BY_KILL, 60, False),  # sent by the command itself, to its group or to its parent
        (BY_KILL, 70, False),  # slurmstepd signals every process of a step
    ],
)
def test_signal_is_passed_on_unless_the_command_has_it(code: int, sender: int, is_passed_on: bool) -> None:
    info = SimpleNamespace(si_signo=signal.SIGTERM, si_code=code, si_pid=sender)
    names = {50: "kill", 60: "solver", 70: "slurmstepd-wlm"}

    passed = must_pass_on(info, is_own=lambda pid: pid == 60, sender_name=lambda pid: names.get(pid, ""))  # type: ignore[arg-type]

    assert is_passed_on == passed


def test_ignored_signals_stay_ignored() -> None:
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        caught = caught_signals()
    finally:
        signal.signal(signal.SIGUSR2, before)

    assert signal.SIGUSR2 not in caught
    assert {signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM, signal.SIGCONT} <= set(caught)


def test_name_of_a_process_is_that_of_the_kernel() -> None:
    assert Path(f"/proc/{os.getpid()}/comm").read_text().strip() == name_of(os.getpid())
    assert "" == name_of(2**22 + 1)


def test_short_commands_are_sampled_often_and_long_ones_rarely() -> None:
    def interval(elapsed: float, cost: float = 0.0, spent: float = 0.0) -> float:
        return next_interval(elapsed, 10.0, cost_seconds=cost, spent_seconds=spent)

    assert [0.02, 0.1, 1.0, 10.0, 10.0] == [pytest.approx(interval(elapsed)) for elapsed in (0, 1, 10, 100, 10_000)]
    # Costly samples are rare, but not before some were taken.
    assert [pytest.approx(0.1), pytest.approx(5.0)] == [interval(1, 0.01, 0.01), interval(1, 0.01, 0.03)]


def test_job_is_taken_from_the_environment() -> None:
    given = {
        "SLURM_JOBID": "12",
        "SLURM_PROCID": "3",
        "SLURM_STEPID": "0",
        "SLURM_NTASKS": "4",
        "SLURM_CLUSTER_NAME": "lab",
    }

    context = read_context(given)

    assert (12, 3, "0", 4, "lab") == (context.job_id, context.rank, context.step_id, context.tasks, context.cluster)
    assert 99 == read_context(given, 99).job_id
    assert SlurmContext() == read_context({})


HET = {
    "SLURM_JOB_ID": "12", "SLURM_HET_SIZE": "3",
    "SLURM_JOB_ID_HET_GROUP_0": "12", "SLURM_JOB_NODELIST_HET_GROUP_0": "n1",
    "SLURM_JOB_ID_HET_GROUP_1": "13", "SLURM_JOB_NODELIST_HET_GROUP_1": "n[2-3]",
    "SLURM_JOB_ID_HET_GROUP_2": "14", "SLURM_JOB_NODELIST_HET_GROUP_2": "n4",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"SLURMD_NODENAME": "n1"}, 12),
        ({"SLURMD_NODENAME": "n3"}, 13),
        ({"SLURMD_NODENAME": "n4"}, 14),
        ({"SLURMD_NODENAME": "n9"}, 12),
        ({}, 12),
        ({"SLURMD_NODENAME": "n4", "SLURM_JOB_NODELIST_HET_GROUP_1": "n[2-"}, 14),
        ({"SLURMD_NODENAME": "n4", "SLURM_JOB_ID_HET_GROUP_2": "x"}, 12),
        ({"SLURMD_NODENAME": "n4", "SLURM_HET_SIZE": "9" * 18}, 14),
        ({"SLURMD_NODENAME": "n4", "SLURM_HET_SIZE": "x"}, 12),
    ],
)
def test_task_of_a_heterogeneous_job_belongs_to_the_component_on_its_node(
    change: dict[str, str], expected: int
) -> None:
    assert expected == read_context(HET | change).job_id
    assert 99 == read_context(HET | change, 99).job_id


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "٣", "9" * 50, "0"])
def test_job_id_that_is_none_is_absent(text: str) -> None:
    assert read_context({"SLURM_JOB_ID": text}).job_id is None


def test_names_come_from_slurm_and_the_environment() -> None:
    assert ("n1", "ada") == (host_name({"SLURMD_NODENAME": "n1"}), user_name({"USER": "ada"}))
    assert (os.uname().nodename, str(os.getuid())) == (host_name({}), user_name({}))
    assert "bob" == user_name({"LOGNAME": "bob"})


def test_patterns_in_file_names_cannot_leave_the_folder() -> None:
    context = SlurmContext(job_id=7, rank=2)

    name = expand_file_name("%j-%t-%s-%N-%u-%x-%%j", slurm=context, host="n1.example.org", user="../etc")

    assert "7-2-batch-n1-.._etc-%x-%j" == name


def test_socket_that_cannot_be_reached_is_none() -> None:
    # As for a folder without permission, the answer is an error other than "not found".
    assert not is_socket(Path("/") / ("x" * 300))
    assert not is_socket(Path("/dev/null"))
