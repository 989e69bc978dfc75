# SPDX-License-Identifier: Apache-2.0
"""Pages tell of a Slurm that fails, and only of one that fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from slurmscope.errors import CommandTimedOut
from slurmscope.model.jobs import Jobs
from slurmscope.model.nodes import Nodes
from slurmscope.portal.settings import PortalSettings
from slurmscope.services.exporter.readings import SharedReading
from slurmscope.services.portal.backend import LivePortalBackend
from slurmscope.services.runtime.clock import Clock
from tests.processes import until

AWAY = CommandTimedOut(["squeue"], "was killed")
NOTHING: Any = None
"""Parts that these pages do not use."""


class Slurm:
    """Hold a desk, and a controller that can be away."""

    def __init__(self) -> None:
        self.now = 0.0
        self.is_away = False
        clock = Clock(monotonic=lambda: self.now)
        self.jobs = SharedReading(
            "jobs", self._tell(Jobs(groups=(), taken_at_seconds=0.0)), interval_seconds=30.0, clock=clock
        )
        self.nodes = SharedReading("nodes", self._tell(Nodes(nodes=())), interval_seconds=30.0, clock=clock)
        self.desk = LivePortalBackend(
            settings=PortalSettings(),
            identifier=NOTHING,
            archive=NOTHING,
            letters=NOTHING,
            csrf=NOTHING,
            desk=NOTHING,
            audit_trail=NOTHING,
            readings=(self.jobs, self.nodes),
            metrics=NOTHING,
        )

    def _tell(self, value: object) -> Callable[[], object]:
        def read() -> object:
            if self.is_away:
                raise AWAY
            return value

        return read

    def read(self) -> None:
        for reading in (self.jobs, self.nodes):
            reading.request()
            reading.wait(time.monotonic() + 60)


def test_slurm_that_nobody_asked_for_long_is_not_away() -> None:
    slurm = Slurm()
    slurm.read()
    slurm.now += 86_400
    assert () == slurm.desk.problems()


def test_slurm_that_failed_is_told_until_it_answers_again() -> None:
    slurm = Slurm()
    slurm.is_away = True
    slurm.read()
    assert 2 == len(slurm.desk.problems())
    assert "Slurm does not tell about its jobs: was killed" in slurm.desk.problems()[0]
    slurm.is_away = False
    slurm.now += 31
    # No other page is opened meanwhile.
    until(lambda: slurm.desk.problems() == ())


def test_page_waits_for_slurm_when_what_it_said_is_too_old() -> None:
    slurm = Slurm()
    slurm.read()
    slurm.now += 86_400
    assert {} == slurm.desk.now().jobs_by_state
