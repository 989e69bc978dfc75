# SPDX-License-Identifier: Apache-2.0
"""Read the waiting queue, and what explains it, once for all visitors.

Pages never run a Slurm command: each source is read in the background, at most once per interval, and the last good
answer is shown while a new one is read or cannot be read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar

from slurmscope.errors import SourceError
from slurmscope.model.controllers import ControllerConfig
from slurmscope.model.diag import Diag
from slurmscope.model.licenses import Licenses
from slurmscope.model.limits import Limits
from slurmscope.model.nodes import Nodes
from slurmscope.model.reservations import Reservations
from slurmscope.model.waiting import JobPriorities, WaitingQueue
from slurmscope.portal.views.queue_facts import QueueFacts
from slurmscope.services.exporter.readings import SharedReading, Snapshot
from slurmscope.services.exporter.visible_jobs import require_first
from slurmscope.sources.slurm import (
    scontrol_licenses,
    scontrol_limits,
    scontrol_reservations,
    sdiag,
    sprio,
    squeue_waiting,
)
from slurmscope.sources.slurm.commands import SlurmCommands, random_separator
from slurmscope.sources.slurm.job_visibility import JobVisibility
from slurmscope.sources.slurm.scontrol_config import read_config

INTERVAL_SECONDS = 30.0
"""Minimum interval between reads of the same kind."""
WAIT_SECONDS = 0.5
"""How long a page waits for a source of which nothing recent is known."""

CONFIG_SECONDS = 600.0
"""How long the configuration of the controller is kept."""

T = TypeVar("T")


class WaitingReadings:
    """Hold the queue and its explanations; safe to use from any thread."""

    def __init__(
        self,
        queue: SharedReading,
        jobs: SharedReading,
        nodes: SharedReading,
        others: Mapping[str, SharedReading],
        *,
        hidden: Callable[[], Collection[str]],
    ) -> None:
        """Take the readings; ``others`` are those of :class:`QueueFacts` by the name of its field.

        ``hidden`` returns what PrivateData hides from users.
        """
        self._hidden = hidden
        self._jobs = jobs
        self.readings = (queue, *others.values())
        self._queue = queue
        self._nodes = nodes
        self._others = others

    def queue(self) -> WaitingQueue | None:
        """Return the last known queue, and request a new one; None if it cannot be read."""
        return _value(_refresh(self._queue), WaitingQueue)

    def facts(self, names: Collection[str]) -> QueueFacts:
        """Return what is known of these fields; nodes are always included."""
        found = {name: _refresh(self._others[name]) for name in names}
        hidden = self._hidden()
        return QueueFacts(
            nodes=_value(_refresh(self._nodes), Nodes),
            priorities=_value(found.get("priorities"), JobPriorities),
            diag=_value(found.get("diag"), Diag),
            limits=None if "usage" in hidden else _value(found.get("limits"), Limits),
            licenses=_value(found.get("licenses"), Licenses),
            reservations=None if "reservations" in hidden else _value(found.get("reservations"), Reservations),
        )

    def problems(self) -> Iterator[str]:
        """Yield a sentence if the queue cannot be read, and retry it; if no job can be read, that is shown already."""
        if self._queue.last_error is not None:
            self._queue.request()
            if self._jobs.last_error is None:
                yield f"Pending jobs cannot be read: {self._queue.last_error}"


def make_waiting_readings(
    commands: SlurmCommands, visibility: JobVisibility, jobs: SharedReading, nodes: SharedReading
) -> WaitingReadings:
    """Return the readings by Slurm's commands."""
    config = _KnownConfig(commands)

    def read_queue() -> WaitingQueue:
        return squeue_waiting.read_waiting(
            commands.run, random_separator(), now_seconds=time.time(), cluster=config.cluster()
        )

    def scontrol(arguments: tuple[str, ...], parse: Callable[[bytes], T]) -> Callable[[], T]:
        return lambda: parse(commands.run("scontrol", arguments))

    others: dict[str, Callable[[], object]] = {
        "priorities": require_first(visibility, lambda: sprio.read_priorities(commands.run)),
        "diag": lambda: sdiag.parse_diag(commands.run(sdiag.COMMAND, sdiag.ARGUMENTS)),
        "limits": scontrol(scontrol_limits.ARGUMENTS, scontrol_limits.parse_limits),
        "licenses": scontrol(scontrol_licenses.ARGUMENTS, scontrol_licenses.parse_licenses),
        "reservations": scontrol(scontrol_reservations.ARGUMENTS, scontrol_reservations.parse_reservations),
    }
    return WaitingReadings(
        SharedReading("pending_jobs", require_first(visibility, read_queue), interval_seconds=INTERVAL_SECONDS),
        jobs,
        nodes,
        {name: SharedReading(name, read, interval_seconds=INTERVAL_SECONDS) for name, read in others.items()},
        hidden=config.hidden,
    )


class _KnownConfig:
    """Read the configuration of the controller with the queue, and keep the last that could be read."""

    def __init__(self, commands: SlurmCommands) -> None:
        self._commands = commands
        self._config: ControllerConfig | None = None
        self._read_at = 0.0

    def cluster(self) -> str:
        """Return the name of the cluster; without it, pending jobs have none."""
        if self._config is None or time.monotonic() - self._read_at > CONFIG_SECONDS:
            try:
                self._config = read_config(self._commands.run)
                self._read_at = time.monotonic()
            except SourceError:
                pass
        return self._config.cluster_name if self._config else ""

    def hidden(self) -> frozenset[str]:
        """Return what PrivateData hides; everything while it is not known."""
        return self._config.private_data if self._config else frozenset({"usage", "reservations"})


def _refresh(reading: SharedReading) -> Snapshot:
    """Return the last value, and request a new one; wait for that only if nothing recent is known."""
    reading.request()
    age = reading.age_seconds()
    is_recent = age is not None and age < 2 * reading.interval_seconds
    return reading.wait(0.0 if is_recent else time.monotonic() + WAIT_SECONDS)


def _value(snapshot: Snapshot | None, kind: type[T]) -> T | None:
    value = snapshot.value if snapshot else None
    return value if isinstance(value, kind) else None
