# SPDX-License-Identifier: Apache-2.0
"""What is repeated goes on whatever happens in one round."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from slurmscope.core.clock import run_periodically
from slurmscope.core.errors import ArchiveError


def test_a_round_that_fails_does_not_end_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    rounds, done = [ArchiveError("disk full"), RuntimeError("bug")], threading.Event()

    def act() -> None:
        if rounds:
            raise rounds.pop(0)
        done.set()

    with caplog.at_level(logging.ERROR), run_periodically("lives", 0.01, act):
        assert done.wait(30)
    assert 2 == len([record for record in caplog.records if record.message == "periodic task failed"])


def test_what_comes_first_is_done_once() -> None:
    order: list[str] = []
    done = threading.Event()

    def act() -> None:
        order.append("round")
        if len(order) > 3:
            done.set()

    with run_periodically("lives", 0.01, act, first=lambda: order.append("first")):
        assert done.wait(30)
    assert ("first", 1) == (order[0], order.count("first"))


def test_slow_round_skips_those_it_missed() -> None:
    starts: list[float] = []
    done = threading.Event()

    def act() -> None:
        starts.append(time.monotonic())
        time.sleep(0.25 if len(starts) == 1 else 0.0)
        if len(starts) == 2:
            done.set()

    with run_periodically("slow", 0.1, act):
        assert done.wait(30)
    assert starts[1] - starts[0] >= 0.25
