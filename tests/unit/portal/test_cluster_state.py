# SPDX-License-Identifier: Apache-2.0
"""Pages report that Slurm cannot be read, and only then."""

from __future__ import annotations

import time
from collections.abc import Callable

from slurmscope.cluster.sinfo import Nodes
from slurmscope.cluster.squeue import Jobs
from slurmscope.core.clock import Clock
from slurmscope.core.errors import CommandTimedOut
from slurmscope.exporter.reading import SharedReading
from slurmscope.portal.cluster_now import ClusterState
from tests.processes import until

TIMEOUT = CommandTimedOut(["squeue"], "was killed")


class Slurm:
    """Hold the state of a fake controller that can be down."""

    def __init__(self) -> None:
        self.now = 0.0
        self.is_down = False
        clock = Clock(monotonic=lambda: self.now)
        self.jobs = SharedReading(
            "jobs", self._make_reader(Jobs(groups=(), taken_at_seconds=0.0)), interval_seconds=30.0, clock=clock
        )
        self.nodes = SharedReading("nodes", self._make_reader(Nodes(nodes=())), interval_seconds=30.0, clock=clock)
        self.state = ClusterState(self.jobs, self.nodes)

    def _make_reader(self, value: object) -> Callable[[], object]:
        def read() -> object:
            if self.is_down:
                raise TIMEOUT
            return value

        return read

    def read(self) -> None:
        for reading in (self.jobs, self.nodes):
            reading.request()
            reading.wait(time.monotonic() + 60)


def test_old_reading_is_not_a_problem() -> None:
    slurm = Slurm()
    slurm.read()
    slurm.now += 86_400
    assert [] == list(slurm.state.problems())


def test_failure_is_reported_until_slurm_responds_again() -> None:
    slurm = Slurm()
    slurm.is_down = True
    slurm.read()
    problems = list(slurm.state.problems())
    assert 2 == len(problems)
    assert "Slurm jobs cannot be read: was killed" in problems[0]
    slurm.is_down = False
    slurm.now += 31
    # No other page is opened meanwhile.
    until(lambda: list(slurm.state.problems()) == [])


def test_page_waits_for_slurm_if_the_last_reading_is_too_old() -> None:
    slurm = Slurm()
    slurm.read()
    slurm.now += 86_400
    assert {} == slurm.state.now().jobs_by_state
