# SPDX-License-Identifier: Apache-2.0
"""Check what Slurm commands depend on, for ``slurmscope doctor``: munge, PrivateData and the clock."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from slurmscope.cluster import sdiag
from slurmscope.core.check import Check
from slurmscope.core.errors import MalformedAnswer, SlurmscopeError, SourceError
from slurmscope.exporter.doctor import ADVICE
from slurmscope.slurm import munge
from slurmscope.slurm.command import RunCommand
from slurmscope.slurm.config import Controllers
from slurmscope.slurm.visibility import CONTROLLER, JobVisibility

MOST_SKEW_SECONDS = 5.0

MUNGE_ADVICE = "start munge (systemctl start munge): without it, Slurm commands hang and print nothing"
PRIVATE_ADVICE = "until then squeue and sacct print no jobs of others: pages and metrics of jobs are missing"
CLOCK_ADVICE = "synchronize the clocks of this host and the controller (chrony): ages and ends of jobs are wrong"

_REPORTED = re.compile(rb"sdiag output at [^\n]*\((\d+)\)")


def check_slurm(
    run: RunCommand, environment: Mapping[str, str], *, wall_clock: Callable[[], float] = time.time
) -> Iterator[Check]:
    """Check one dependency after the other; without munge the rest would only time out."""
    if (socket := munge.find_munge_socket(environment)) is not None:
        check = _check("munge", lambda: _check_munge(socket), MUNGE_ADVICE)
        yield check
        if not check.is_good:
            return
    yield _check("PrivateData", lambda: _check_private_data(run), PRIVATE_ADVICE)
    yield _check("clock", lambda: _check_clock(run, wall_clock), CLOCK_ADVICE)


def check_controllers(controllers: object) -> Iterator[Check]:
    """Check that a controller answers: their reading succeeds also if none does."""
    if not isinstance(controllers, Controllers):
        return
    names = ", ".join(one.host for one in controllers.controllers) or "no controller"
    is_up = controllers.is_up
    yield Check(
        name="controllers",
        is_good=is_up,
        message=f"{names} answers" if is_up else f"no controller answers ({names})",
        advice="" if is_up else "check that slurmctld runs there and can be reached from here",
    )


def _check(name: str, run: Callable[[], str], advice: str) -> Check:
    try:
        return Check(name=name, is_good=True, message=run())
    except SlurmscopeError as error:
        reason = error.reason if isinstance(error, SourceError) else ""
        own = ADVICE[reason] if reason in ("missing", "timeout", "failed") else advice
        return Check(name=name, is_good=False, message=str(error), advice=own)


def _check_munge(socket: Path) -> str:
    munge.try_munge(socket)
    return f"munged listens on {socket}"


def _check_private_data(run: RunCommand) -> str:
    return JobVisibility(run, CONTROLLER).describe()


def _check_clock(run: RunCommand, wall_clock: Callable[[], float]) -> str:
    before = wall_clock()
    match = _REPORTED.search(run(sdiag.COMMAND, sdiag.ARGUMENTS))
    after = wall_clock()
    if match is None:
        raise MalformedAnswer("sdiag: the answer does not say when it was made")
    controller = float(match[1])
    # The controller reports whole seconds.
    skew_seconds = max(before - controller - 1, controller - after, 0.0)
    if skew_seconds > MOST_SKEW_SECONDS:
        direction = "behind" if controller > after else "ahead of"
        raise ClockSkew(f"the clock of this host is {skew_seconds:.0f} s {direction} the controller's")
    return "the clocks of this host and the controller agree"


class ClockSkew(SlurmscopeError):
    """Two clocks differ too much."""
