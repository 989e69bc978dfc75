# SPDX-License-Identifier: Apache-2.0
"""What scontrol ping prints, or fails to print, tells which controllers are up."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.cluster.controller import ControllerPing, parse_controllers
from slurmscope.core.errors import (
    CommandError,
    CommandFailed,
    CommandMissing,
    CommandRefused,
    CommandTimedOut,
    MalformedAnswer,
)
from slurmscope.slurm.config import Controller, Controllers

FIXTURES = Path(__file__).parents[2] / "fixtures" / "slurm-22.05"
UP = (FIXTURES / "scontrol-ping-up.txt").read_bytes()
BACKUP_DOWN = (FIXTURES / "scontrol-ping-backup-down.txt").read_bytes()


def test_a_single_controller_is_read() -> None:
    controllers = parse_controllers(UP)

    assert Controllers(controllers=(Controller(host="ctl1", role="primary", is_up=True),)) == controllers
    assert controllers.is_up


def test_one_controller_that_answers_is_enough() -> None:
    controllers = parse_controllers(BACKUP_DOWN)

    assert (
        Controllers(
            controllers=(
                Controller(host="ctl1", role="primary", is_up=True),
                Controller(host="ctl2", role="backup", is_up=False),
            )
        )
        == controllers
    )
    assert controllers.is_up


def test_controllers_that_are_all_down_are_not_up() -> None:
    answer = b"Slurmctld(primary) at a is DOWN\nSlurmctld(backup1) at b is DOWN\nSlurmctld(backup2) at c is DOWN\n"

    controllers = parse_controllers(answer)

    assert ["primary", "backup1", "backup2"] == [each.role for each in controllers.controllers]
    assert not controllers.is_up


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\n",
        b"***\n",
        UP[:-1],
        b"Slurmctld(primary) at ctl1 is UP\nWelcome!\n",
        b"Slurmctld(primary) at ctl1 is ASLEEP\n",
        b'{"pings": []}\n',
    ],
)
def test_an_answer_that_was_cut_or_is_another_is_rejected(answer: bytes) -> None:
    with pytest.raises(MalformedAnswer, match="scontrol ping: "):
        parse_controllers(answer)


def test_the_query_is_a_ping() -> None:
    asked = []

    def run(name: str, arguments: Sequence[str]) -> bytes:
        asked.append((name, *arguments))
        return UP

    assert ControllerPing(run).read().is_up
    assert [("scontrol", "ping")] == asked


@pytest.mark.parametrize("error_type", [CommandMissing, CommandTimedOut, CommandRefused, CommandFailed])
def test_a_query_without_answer_says_that_nobody_is_up(
    error_type: type[CommandError], caplog: pytest.LogCaptureFixture
) -> None:
    def run(name: str, arguments: Sequence[str]) -> bytes:
        raise error_type((name, *arguments), "scontrol did not answer")

    with caplog.at_level(logging.WARNING):
        controllers = ControllerPing(run).read()

    assert Controllers() == controllers
    assert not controllers.is_up
    assert ["no controller answers"] == [record.message for record in caplog.records]


def test_a_failed_ping_lists_the_controllers_that_are_down() -> None:
    def run(name: str, arguments: Sequence[str]) -> bytes:
        printed = b"Slurmctld(primary) at ctl1 is DOWN\nSlurmctld(backup) at ctl2 is DOWN\n***\n** RESTORE **\n***\n"
        raise CommandFailed((name, *arguments), "scontrol ended with exit code 1", printed)

    controllers = ControllerPing(run).read()

    assert [("ctl1", False), ("ctl2", False)] == [(one.host, one.is_up) for one in controllers.controllers]


def test_controllers_that_were_known_are_down_when_the_ping_times_out() -> None:
    answers = iter((BACKUP_DOWN, b""))

    def run(name: str, arguments: Sequence[str]) -> bytes:
        if answer := next(answers):
            return answer
        raise CommandTimedOut((name, *arguments), "scontrol timed out")

    ping = ControllerPing(run)
    assert ping.read().is_up

    controllers = ping.read()

    assert [("ctl1", False), ("ctl2", False)] == [(one.host, one.is_up) for one in controllers.controllers]


def test_a_strange_answer_is_no_outage() -> None:
    with pytest.raises(MalformedAnswer):
        ControllerPing(lambda _name, _arguments: b"something new\n").read()


@given(st.binary(max_size=200) | st.from_regex(rb"\ASlurmctld\([a-z0-9]+\) at [^\s]+ is (UP|DOWN)\n\Z"))
def test_any_bytes_name_a_controller_or_are_rejected(answer: bytes) -> None:
    try:
        controllers = parse_controllers(answer)
    except MalformedAnswer:
        return
    assert controllers.controllers
