# SPDX-License-Identifier: Apache-2.0
"""An empty list is an answer only for a user who sees the jobs of others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from slurmscope.accounting.sacct import SacctAccounting
from slurmscope.core.errors import CommandError, CommandFailed, CommandMissing, CommandRefused
from slurmscope.slurm.config import (
    CONTROLLER,
    KNOWN_SECONDS,
    SLURMDBD,
    JobVisibility,
    require_all_jobs,
    require_first,
)

HIDDEN = (
    r"PrivateData hides the jobs of others from the user a; .*sacctmgr -i add user a account=root adminlevel=operator"
)
UNKNOWN = "not known whether PrivateData hides jobs from a"


class Slurm:
    """Print a configuration and the level of a user; a text that is an error is raised."""

    def __init__(self, config: str | CommandError, level: str | CommandError = "None") -> None:
        self.config = config
        self.level = level
        self.now = 0.0
        self.runs: list[str] = []

    def run(self, name: str, arguments: Sequence[str]) -> bytes:
        self.runs.append(name)
        answer = self.level if "user" in arguments else self.config
        if isinstance(answer, CommandError):
            raise answer
        return f"{answer}\n".encode()

    def visibility(self, user: str = "a", *, is_dbd: bool = False) -> JobVisibility:
        return JobVisibility(self.run, SLURMDBD if is_dbd else CONTROLLER, user=user, clock=lambda: self.now)


DOWN = CommandFailed(["sacctmgr"], "Connection refused")
PRIVATE = "PrivateData = jobs,users\nSlurmUser = slurm(64030)"


@pytest.mark.parametrize(
    ("user", "level"), [("root", "None"), ("slurm", "None"), ("a", "Operator"), ("a", "Administrator")]
)
def test_operators_and_slurms_own_users_see_the_jobs_of_others(user: str, level: str) -> None:
    Slurm(PRIVATE, level).visibility(user).require()


@pytest.mark.parametrize("level", ["None", ""])
def test_others_see_no_jobs_where_private_data_hides_them(level: str) -> None:
    with pytest.raises(CommandRefused, match=HIDDEN):
        Slurm(PRIVATE, level).visibility().require()


def test_all_users_see_jobs_without_private_data() -> None:
    slurm = Slurm("PrivateData = accounts,usage", DOWN)
    slurm.visibility().require()
    assert ["scontrol"] == slurm.runs


def test_sacct_obeys_slurmdbd_conf_and_not_slurm_conf() -> None:
    two = "Configuration data as of now\nPrivateData = {}\n\nSlurmDBD configuration:\nPrivateData = {}"
    Slurm(two.format("jobs", "none")).visibility(is_dbd=True).require()
    with pytest.raises(CommandRefused, match=HIDDEN):
        Slurm(two.format("none", "jobs")).visibility(is_dbd=True).require()


@pytest.mark.parametrize("slurm", [Slurm(PRIVATE, DOWN), Slurm(DOWN), Slurm("garbage")], ids=["level", "config", "odd"])
def test_jobs_are_hidden_while_the_right_is_unknown(slurm: Slurm) -> None:
    with pytest.raises(CommandRefused, match=UNKNOWN):
        slurm.visibility().require()


def test_a_right_that_was_seen_holds_while_slurmdbd_is_down_and_ends_when_it_is_withdrawn() -> None:
    slurm = Slurm(PRIVATE, "Operator")
    visibility = slurm.visibility()
    visibility.require()
    slurm.level = DOWN
    slurm.now += KNOWN_SECONDS
    visibility.require()
    slurm.level = "None"
    slurm.now += KNOWN_SECONDS
    with pytest.raises(CommandRefused, match=HIDDEN):
        visibility.require()
    slurm.level = DOWN
    with pytest.raises(CommandRefused, match=UNKNOWN):
        visibility.require()


def test_a_new_right_is_seen_at_once_and_then_checked_rarely() -> None:
    slurm = Slurm(PRIVATE)
    visibility = slurm.visibility()
    with pytest.raises(CommandRefused):
        visibility.require()
    slurm.level = "Operator"
    for _ in range(10):
        visibility.require()
    assert 4 == len(slurm.runs)


def test_host_without_slurm_commands_reads_jobs_from_slurmrestd() -> None:
    Slurm(CommandMissing(["scontrol"], "scontrol was not found")).visibility().require()


def test_the_doctor_reads_what_is_hidden() -> None:
    assert "PrivateData hides jobs, users; a sees all jobs" == Slurm(PRIVATE, "Operator").visibility().describe()
    assert "PrivateData hides nothing; a sees all jobs" == Slurm("PrivateData = none").visibility().describe()


def test_readings_of_jobs_fail_while_jobs_are_hidden() -> None:
    reads: list[int] = []

    def read() -> int:
        reads.append(1)
        return len(reads)

    hidden, seen = Slurm(PRIVATE).visibility(), Slurm("PrivateData = none").visibility()
    with pytest.raises(CommandRefused):
        require_all_jobs(read, hidden)()
    assert 2 == require_all_jobs(read, seen)()
    # What does not return to a time that it has read must not read it in vain.
    with pytest.raises(CommandRefused):
        require_first(hidden, read)()
    assert 3 == require_first(seen, read)()


@pytest.mark.parametrize("read", ["read_jobs", "read_ended", "read_current"])
def test_empty_list_of_sacct_is_no_answer_while_jobs_are_hidden(read: str) -> None:
    def refuse() -> None:
        raise CommandRefused(["sacct"], "PrivateData hides the jobs of others")

    arguments = {"read_jobs": ([1],), "read_ended": (0, 10), "read_current": ()}[read]

    assert [] == list(getattr(SacctAccounting(lambda *_: b""), read)(*arguments))
    with pytest.raises(CommandRefused):
        list(getattr(SacctAccounting(lambda *_: b"", refuse), read)(*arguments))
