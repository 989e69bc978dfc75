# SPDX-License-Identifier: Apache-2.0
"""Read every source of an exporter once, and explain what is missing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from slurmscope.metrics.collector import Collector
from slurmscope.model.check import Check
from slurmscope.services.exporter.readings import ReadingSet

TIMEOUT_SECONDS = 60.0

ADVICE = {
    "missing": "install the Slurm client commands, or set --slurm.bin-path to their directory",
    "timeout": "check that slurmctld and munge are running, try again later, or raise --slurm.timeout",
    "refused": "check that slurmctld and munge are running, and that this user has access",
    "failed": "run the command by hand as this user",
    "malformed": "report it as a bug, with the output of the command",
    "bug": "report it as a bug, with what --log.level=error adds",
}
QUERIES_ADVICE = "check --prometheus.url and its credentials, and that this server answers queries"
SOCKET_ADVICE = "check the path of its socket and the directory, which the unit creates while the agent runs"
QUERYING = frozenset({"lustre"})
"""Readings that come from Prometheus, not from a command of Slurm."""
RECEIVING = frozenset({"profile", "traces"})
"""Readings that come from sockets of the node agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """Hold the results of all checks."""

    checks: tuple[Check, ...]

    @property
    def is_healthy(self) -> bool:
        """Return whether all checks passed."""
        return all(check.is_good for check in self.checks)


def examine(readings: ReadingSet, collectors: Iterable[Collector]) -> Examination:
    """Read every source that the collectors need once, then run the checks of the exporter itself."""
    needed: dict[str, list[str]] = {}
    for collector in collectors:
        for name in collector.needs:
            needed.setdefault(name, []).append(collector.name)
    return Examination(checks=(*_check_readings(readings, needed), *readings.checks()))


def _check_readings(readings: ReadingSet, needed: dict[str, list[str]]) -> Iterator[Check]:
    until = time.monotonic() + TIMEOUT_SECONDS
    snapshots = readings.read(needed, until)
    for name, collectors in sorted(needed.items()):
        reading, snapshot = readings.readings[name], snapshots[name]
        reason = next(iter(reading.errors), "timeout")
        yield Check(
            name=f"reading {name}",
            is_good=snapshot.error is None,
            message=snapshot.error or f"read in {reading.duration_seconds or 0:.2f} s",
            advice="" if snapshot.error is None else f"no metrics of {', '.join(collectors)}: {_advise(name, reason)}",
        )


def _advise(name: str, reason: str) -> str:
    if name in QUERYING and reason != "bug":
        return QUERIES_ADVICE
    if name in RECEIVING and reason != "bug":
        return SOCKET_ADVICE
    return ADVICE.get(reason, ADVICE["failed"])
