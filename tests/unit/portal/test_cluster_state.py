# SPDX-License-Identifier: Apache-2.0
"""Pages report that Slurm cannot be read, and only then."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeVar

from slurmscope.cluster.sinfo import Nodes
from slurmscope.cluster.squeue import Jobs, StartWindow
from slurmscope.core.clock import Clock
from slurmscope.core.errors import CommandTimedOut
from slurmscope.portal.live import LiveCluster
from tests.processes import until

T = TypeVar("T")
TIMEOUT = CommandTimedOut(["squeue"], "was killed")


class Slurm:
    """Fake a controller that can be down."""

    def __init__(self) -> None:
        self.now = 0.0
        self.is_down = False
        self.cluster = LiveCluster(self._run, self, clock=Clock(monotonic=lambda: self.now))

    def read_jobs(self, window: StartWindow, now_seconds: float, *, with_owners: bool = False) -> Jobs:
        return self._read(Jobs(groups=(), taken_at_seconds=0.0))

    def read_nodes(self) -> Nodes:
        return self._read(Nodes(nodes=()))

    def _read(self, value: T) -> T:
        if self.is_down:
            raise TIMEOUT
        return value

    def _run(self, command: str, arguments: Sequence[str]) -> bytes:
        return b"PrivateData = none\n"

    def read(self) -> None:
        for reading in self.cluster.readings[:2]:
            reading.request()
            reading.wait(time.monotonic() + 60)


def test_old_reading_is_not_a_problem() -> None:
    slurm = Slurm()
    slurm.read()
    slurm.now += 86_400
    assert [] == list(slurm.cluster.problems())


def test_failure_is_reported_until_slurm_responds_again() -> None:
    slurm = Slurm()
    slurm.is_down = True
    slurm.read()
    problems = list(slurm.cluster.problems())
    assert 2 == len(problems)
    assert "Slurm jobs cannot be read: was killed" in problems[0]
    slurm.is_down = False
    slurm.now += 31
    # No other page is opened meanwhile.
    until(lambda: list(slurm.cluster.problems()) == [])


def test_page_waits_for_slurm_if_the_last_reading_is_too_old() -> None:
    slurm = Slurm()
    slurm.read()
    slurm.now += 86_400
    assert {} == slurm.cluster.now().jobs_by_state
