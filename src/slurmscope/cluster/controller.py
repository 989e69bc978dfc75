# SPDX-License-Identifier: Apache-2.0
"""Report which controllers of the cluster answer.

::

    slurm_up 1
    slurm_controller_up{host="ctl1",role="primary"} 1
    slurm_controller_up{host="ctl2",role="backup"} 0

While no controller answers, all of them are 0. If scontrol could not even list them since the start, there is only
``slurm_up 0``.

``scontrol ping`` ends with exit code 1 when no controller answers, and only then; its text from
22.05 to 25.05 is one line per controller, also when all are down, and for root a reminder to restore a missing one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import replace

from slurmscope.cluster.sources import Sources
from slurmscope.core.errors import CommandError, MalformedAnswer
from slurmscope.core.log import fields
from slurmscope.exporter.collector import Collector, NoOptions, Read, Reading, Role
from slurmscope.metrics.family import Family, gauge
from slurmscope.slurm.command import RunCommand
from slurmscope.slurm.config import Controller, Controllers

logger = logging.getLogger(__name__)


COMMAND = "scontrol"
ARGUMENTS = ("ping",)

_LINE = re.compile(r"Slurmctld\((?P<role>[^()]+)\) at (?P<host>\S+) is (?P<state>UP|DOWN)\Z")
_SHOWN = 80


class ControllerPing:
    """Ping all controllers; remember their names for the time when none answers."""

    def __init__(self, run: RunCommand) -> None:
        """Take the function that runs a command; nothing is run yet."""
        self._run = run
        self._last = Controllers()

    def read(self) -> Controllers:
        """Return the state of all controllers; after a call that fails or times out none is up.

        Only then does an alert on ``slurm_up`` fire while Slurm is gone: a failed reading has no value.
        """
        try:
            self._last = parse_controllers(self._run(COMMAND, ARGUMENTS))
        except CommandError as error:
            logger.warning("no controller answers", extra=fields("ping", reason=error.reason, error=str(error)))
            self._last = _all_down(_controllers_of(error) or self._last)
        return self._last


def _controllers_of(error: CommandError) -> Controllers | None:
    """Return the controllers that a failed ping listed; None if it listed none."""
    try:
        return parse_controllers(error.stdout)
    except MalformedAnswer:
        return None


def _all_down(controllers: Controllers) -> Controllers:
    return Controllers(controllers=tuple(replace(one, is_up=False) for one in controllers.controllers))


def parse_controllers(answer: bytes) -> Controllers:
    """Parse one line per controller; raise MalformedAnswer when there is none or one in another format."""
    if not answer.endswith(b"\n"):
        raise MalformedAnswer("scontrol ping: the answer is empty or ends in the middle of a line")
    lines = answer.decode("utf-8", "surrogateescape").split("\n")
    # The reminder has a frame of stars.
    controllers = tuple(_controller(line) for line in lines if line and not line.startswith("*"))
    if not controllers:
        raise MalformedAnswer("scontrol ping: the answer names no controller")
    return Controllers(controllers=controllers)


def _controller(line: str) -> Controller:
    match = _LINE.match(line)
    if match is None:
        raise MalformedAnswer(f"scontrol ping: not a line about a controller: {line[:_SHOWN]!r}")
    return Controller(host=match["host"], role=match["role"], is_up=match["state"] == "UP")


UP = gauge("slurm_up", "1 if at least one controller answers, 0 if none answers in time.")
CONTROLLER_UP = gauge("slurm_controller_up", "1 if this controller answers, 0 if not.", "host", "role")


def collect(options: NoOptions, *, controllers: Controllers) -> Iterator[Family]:  # noqa: ARG001 - part of the protocol
    yield Family(UP, {(): int(controllers.is_up)})
    yield Family(CONTROLLER_UP, {(one.host, one.role): int(one.is_up) for one in controllers.controllers})


def _open(slurm: Sources) -> Read:
    return ControllerPing(slurm.run).read


CONTROLLERS = Reading(name="controllers", open=_open)
COLLECTOR = Collector(
    name="controller",
    role=Role.CLUSTER,
    help="Whether the Slurm controllers answer, from one scontrol ping.",
    needs=(CONTROLLERS,),
    metrics=(UP, CONTROLLER_UP),
    collect=collect,
)
