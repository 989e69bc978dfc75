# SPDX-License-Identifier: Apache-2.0
"""Try everything that an exporter would read, and explain what is missing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from slurmscope.metrics.collector import Collector
from slurmscope.services.exporter.wiring import Check, Wiring

PATIENCE_SECONDS = 60.0

ADVICE = {
    "missing": "install Slurm's client commands, or name their folder by --slurm.bin-path",
    "timeout": "ask again later, or raise --slurm.timeout",
    "refused": "check that slurmctld and munge run, and that this user may ask",
    "failed": "run the command by hand as this user",
    "malformed": "report it, with the command's output",
    "bug": "report it, with the log",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """Hold what was tried."""

    checks: tuple[Check, ...]

    @property
    def is_healthy(self) -> bool:
        """Tell whether nothing is missing."""
        return all(check.is_good for check in self.checks)


def examine(wiring: Wiring, collectors: Iterable[Collector]) -> Examination:
    """Read every source that the collectors need once, and add what the role itself can tell."""
    needed: dict[str, list[str]] = {}
    for collector in collectors:
        for name in collector.needs:
            needed.setdefault(name, []).append(collector.name)
    return Examination(checks=(*_check_readings(wiring, needed), *wiring.checks()))


def _check_readings(wiring: Wiring, needed: dict[str, list[str]]) -> Iterator[Check]:
    until = time.monotonic() + PATIENCE_SECONDS
    for name in needed:
        wiring.readings[name].request()
    for name, collectors in sorted(needed.items()):
        reading = wiring.readings[name]
        snapshot = reading.wait(until)
        reason = next(iter(reading.errors), "timeout")
        yield Check(
            name=f"reading {name}",
            is_good=snapshot.error is None,
            message=snapshot.error or f"read in {reading.duration_seconds or 0:.2f} s",
            advice="" if snapshot.error is None else f"{', '.join(collectors)} cannot be served: {ADVICE[reason]}",
        )
