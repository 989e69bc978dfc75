# SPDX-License-Identifier: Apache-2.0
"""Record again and again what collectors of this process tell."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from slurmscope.metrics.family import Family
from slurmscope.services.collecting import EnabledCollector, Outcome, is_served, run_collector
from slurmscope.services.readings import read_all
from slurmscope.services.wiring import Wiring

logger = logging.getLogger(__name__)

END_SECONDS = 5.0


class FamilyRecorder(Protocol):
    """Take samples; see ``store.recorder``."""

    def record_families(self, at_seconds: float, families: Iterable[Family], *, node: str = "") -> None:
        """Take what collectors made."""
        ...


class OwnCollectors:
    """Run those collectors of a role that tell something worth recording, and no others: each asks the controller."""

    def __init__(
        self,
        wiring: Wiring,
        collectors: Iterable[EnabledCollector],
        *,
        wanted: Collection[str],
        node: str = "",
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Take what can be read, who makes families of it, which metrics count, and the name of this machine."""
        self._wiring = wiring
        self._wanted = frozenset(wanted)
        self._collectors = tuple(
            enabled for enabled in collectors if any(metric.name in wanted for metric in enabled.collector.metrics)
        )
        self._node = node
        self._wall_clock = wall_clock

    @property
    def names(self) -> tuple[str, ...]:
        """Name the collectors that are run."""
        return tuple(enabled.name for enabled in self._collectors)

    def record(self, recorder: FamilyRecorder, *, deadline_seconds: float) -> None:
        """Read once and record; a reading that is late or failed leaves its families out."""
        needs = [name for enabled in self._collectors for name in enabled.collector.needs]
        snapshots = read_all(self._wiring.readings, needs, time.monotonic() + deadline_seconds)
        # An old value is no sample of now: a gap says that nothing was measured.
        fresh = [
            enabled
            for enabled in self._collectors
            if is_served(enabled, snapshots) and all(snapshots[name].error is None for name in enabled.collector.needs)
        ]
        outcomes: dict[str, Outcome] = {}
        families = [
            family
            for enabled in fresh
            for family in run_collector(enabled, snapshots, outcomes)
            if family.metric.name in self._wanted
        ]
        if families:
            recorder.record_families(self._wall_clock(), families, node=self._node)

    def close(self) -> None:
        """End what runs in the background."""
        self._wiring.close()
