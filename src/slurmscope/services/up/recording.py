# SPDX-License-Identifier: Apache-2.0
"""Record again and again what collectors of this process tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from slurmscope.metrics.family import Family, Labels
from slurmscope.model.job_states import PENDING, RUNNING
from slurmscope.services.exporter.page import CollectorOutcome, EnabledCollector, run_collector
from slurmscope.services.exporter.readings import ReadingSet

ZEROS: Mapping[str, tuple[Labels, ...]] = {"slurm_jobs": ((RUNNING,), (PENDING,))}
"""What collectors leave out when there is none of it, and is drawn: a gap would say that it was not measured."""


class FamilyRecorder(Protocol):
    """Take samples; see ``store.recorder``."""

    def record_families(self, at_seconds: float, families: Iterable[Family]) -> None:
        """Take what collectors made."""
        ...


class OwnCollectors:
    """Run those collectors of a role that tell something worth recording, and no others: each asks the controller."""

    def __init__(
        self,
        readings: ReadingSet,
        collectors: Iterable[EnabledCollector],
        *,
        wanted: Collection[str],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Take what can be read, who makes families of it, and which metrics count."""
        self._readings = readings
        self._wanted = frozenset(wanted)
        self._collectors = tuple(
            enabled for enabled in collectors if any(metric.name in wanted for metric in enabled.collector.metrics)
        )
        self._wall_clock = wall_clock

    def record(self, recorder: FamilyRecorder, *, deadline_seconds: float) -> None:
        """Read once and record; a reading that is late or failed leaves its families out."""
        needs = [name for enabled in self._collectors for name in enabled.collector.needs]
        snapshots = self._readings.read(needs, time.monotonic() + deadline_seconds)
        # An old value is no sample of now: a gap says that nothing was measured.
        fresh = [enabled for enabled in self._collectors if enabled.is_fresh(snapshots)]
        outcomes: dict[str, CollectorOutcome] = {}
        families = [
            _with_zeros(family)
            for enabled in fresh
            for family in run_collector(enabled, snapshots, outcomes)
            if family.metric.name in self._wanted
        ]
        if families:
            recorder.record_families(self._wall_clock(), families)

    def close(self) -> None:
        """End what runs in the background."""
        self._readings.close()


def _with_zeros(family: Family) -> Family:
    zeros = dict.fromkeys(ZEROS.get(family.metric.name, ()), 0.0)
    return replace(family, samples={**zeros, **dict(family.samples)}) if zeros else family
