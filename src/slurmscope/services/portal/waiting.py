# SPDX-License-Identifier: Apache-2.0
"""Read the waiting queue, and what explains it, once for all visitors.

Pages never run a Slurm command: each source is read in the background, at most once per interval, and the last good
answer is shown while a new one is read or cannot be read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar

from slurmscope.errors import CommandMissing
from slurmscope.model.diag import Diag
from slurmscope.model.licenses import Licenses
from slurmscope.model.limits import Limits
from slurmscope.model.nodes import Nodes
from slurmscope.model.reservations import Reservations
from slurmscope.model.waiting import JobPriorities, WaitingQueue
from slurmscope.portal.views.queue_facts import QueueFacts
from slurmscope.services.exporter.readings import SharedReading, Snapshot
from slurmscope.services.exporter.visible_jobs import require_first
from slurmscope.services.portal.known_config import KnownConfig
from slurmscope.sources.slurm import (
    scontrol_licenses,
    scontrol_limits,
    scontrol_reservations,
    sdiag,
    sprio,
    squeue_waiting,
)
from slurmscope.sources.slurm.commands import RunCommand, random_separator
from slurmscope.sources.slurm.job_visibility import JobVisibility

INTERVAL_SECONDS = 30.0
"""Minimum interval between reads of the same kind."""
WAIT_SECONDS = 0.5
"""How long a page waits for a source of which nothing recent is known."""

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
        config: KnownConfig,
    ) -> None:
        """Take the readings; ``others`` are those of :class:`QueueFacts` by the name of its field."""
        self._config = config
        self._jobs = jobs
        self.readings = (queue, *others.values())
        self._queue = queue
        self._nodes = nodes
        self._others = others

    @property
    def cluster(self) -> str:
        """Return the name of the cluster; empty while it is unknown."""
        return self._config.cluster

    @property
    def has_failed(self) -> bool:
        """Return whether Slurm's commands could not read the queue at the last attempt; no if there are none here."""
        return self._queue.last_error is not None and self._queue.last_reason != CommandMissing.reason

    def queue(self) -> WaitingQueue | None:
        """Return the last known queue, and request a new one; None if it cannot be read."""
        return _value(_refresh(self._queue), WaitingQueue)

    def known_queue(self) -> WaitingQueue | None:
        """Return the last known queue, and request a new one without waiting for it."""
        self._queue.request()
        return _value(self._queue.wait(0.0), WaitingQueue)

    def nodes(self, until: float | None = None) -> Nodes | None:
        """Return the last known nodes; None if they cannot be read, until the given monotonic time."""
        return _value(_refresh(self._nodes, until), Nodes)

    def facts(self, names: Collection[str]) -> QueueFacts:
        """Return what is known of these fields; nodes are always included."""
        found = {name: _refresh(self._others[name]) for name in names}
        hidden = self._config.hidden
        return QueueFacts(
            nodes=self.nodes(),
            priorities=_value(found.get("priorities"), JobPriorities),
            diag=_value(found.get("diag"), Diag),
            limits=None if "usage" in hidden else _value(found.get("limits"), Limits),
            licenses=_value(found.get("licenses"), Licenses),
            reservations=None if "reservations" in hidden else _value(found.get("reservations"), Reservations),
        )

    def problems(self) -> Iterator[str]:
        """Yield a sentence if the queue cannot be read, and retry it.

        If no job of this host's cluster can be read, pages show that already.
        """
        if self._queue.last_error is not None:
            self._queue.request()
            if self._config.named or self._jobs.last_error is None:
                yield f"{self._config.name('Pending jobs')} cannot be read: {self._queue.last_error}"


def make_waiting_readings(
    run: RunCommand, visibility: JobVisibility, jobs: SharedReading, nodes: SharedReading, config: KnownConfig
) -> WaitingReadings:
    """Return the readings by Slurm's commands."""

    def read_queue() -> WaitingQueue:
        return squeue_waiting.read_waiting(run, random_separator(), now_seconds=time.time(), cluster=config.cluster)

    def scontrol(arguments: tuple[str, ...], parse: Callable[[bytes], T]) -> Callable[[], T]:
        return lambda: parse(run("scontrol", arguments))

    others: dict[str, Callable[[], object]] = {
        "priorities": require_first(visibility, lambda: sprio.read_priorities(run)),
        "diag": lambda: sdiag.parse_diag(run(sdiag.COMMAND, sdiag.ARGUMENTS)),
        "limits": scontrol(scontrol_limits.ARGUMENTS, scontrol_limits.parse_limits),
        "licenses": scontrol(scontrol_licenses.ARGUMENTS, scontrol_licenses.parse_licenses),
        "reservations": scontrol(scontrol_reservations.ARGUMENTS, scontrol_reservations.parse_reservations),
    }

    def share(name: str, read: Callable[[], object]) -> SharedReading:
        return SharedReading(config.name(name), read, interval_seconds=INTERVAL_SECONDS)

    return WaitingReadings(
        share("pending_jobs", config.read_first(require_first(visibility, read_queue))),
        jobs,
        nodes,
        {name: share(name, config.guard(read)) for name, read in others.items()},
        config=config,
    )


def _refresh(reading: SharedReading, until: float | None = None) -> Snapshot:
    """Return the last value, and request a new one; wait for that only if nothing recent is known."""
    reading.request()
    age = reading.age_seconds()
    is_recent = age is not None and age < 2 * reading.interval_seconds
    if is_recent:
        return reading.wait(0.0)
    return reading.wait(time.monotonic() + WAIT_SECONDS if until is None else until)


def _value(snapshot: Snapshot | None, kind: type[T]) -> T | None:
    value = snapshot.value if snapshot else None
    return value if isinstance(value, kind) else None
