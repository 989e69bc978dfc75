# SPDX-License-Identifier: Apache-2.0
"""Record the metrics of this process's own collectors, and report how recording is doing.

::

    slurmscope_recorder_samples_total 1.2e+06
    slurmscope_recorder_dropped_samples_total{reason="late"} 3
    slurmscope_agent_scrapes_total{outcome="failed"} 2
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from slurmscope.metrics.family import Family, Labels, counter
from slurmscope.model.job_states import PENDING, RUNNING
from slurmscope.services.exporter.page import CollectorOutcome, EnabledCollector, run_collector
from slurmscope.services.exporter.readings import ReadingSet

SAMPLES = counter("slurmscope_recorder_samples_total", "Samples that were recorded since the start.")
DROPPED = counter(
    "slurmscope_recorder_dropped_samples_total",
    "Samples that were left out: late, not_finite, too_many series, too_long labels, or foreign to the scraped node.",
    "reason",
)
SCRAPES = counter(
    "slurmscope_agent_scrapes_total",
    "Scrapes of node agents: good, failed, or skipped because those before still ran or failed.",
    "outcome",
)
RECORDING_METRICS = (SAMPLES, DROPPED, SCRAPES)

REASONS = ("late", "not_finite", "too_many", "too_long", "foreign")
OUTCOMES = ("good", "failed", "skipped")

ZEROS: Mapping[str, tuple[Labels, ...]] = {"slurm_jobs": ((RUNNING,), (PENDING,))}
"""States that are drawn, but that collectors leave out when no job has them: a gap would mean not measured."""


class FamilyRecorder(Protocol):
    """Record samples; see ``store.recorder``."""

    def record_families(self, at_seconds: float, families: Iterable[Family]) -> None:
        """Record metric families."""
        ...


class OwnCollectors:
    """Run the collectors of a role that have recorded metrics, and no others: each queries the controller."""

    def __init__(
        self,
        readings: ReadingSet,
        collectors: Iterable[EnabledCollector],
        *,
        metrics: Collection[str],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Take the readings, the collectors, and the names of the metrics to record."""
        self._readings = readings
        self._metrics = frozenset(metrics)
        self._collectors = tuple(
            enabled for enabled in collectors if any(metric.name in metrics for metric in enabled.collector.metrics)
        )
        self._wall_clock = wall_clock

    def record(self, recorder: FamilyRecorder, *, deadline_seconds: float) -> None:
        """Read once and record; metrics of late or failed readings are left out."""
        needs = [name for enabled in self._collectors for name in enabled.collector.needs]
        snapshots = self._readings.read(needs, time.monotonic() + deadline_seconds)
        # A cached value is not a sample of now: a gap means not measured.
        fresh = [enabled for enabled in self._collectors if enabled.is_fresh(snapshots)]
        outcomes: dict[str, CollectorOutcome] = {}
        families = [
            _with_zeros(family)
            for enabled in fresh
            for family in run_collector(enabled, snapshots, outcomes)
            if family.metric.name in self._metrics
        ]
        if families:
            recorder.record_families(self._wall_clock(), families)

    def close(self) -> None:
        """Stop background reading."""
        self._readings.close()


def _with_zeros(family: Family) -> Family:
    zeros = dict.fromkeys(ZEROS.get(family.metric.name, ()), 0.0)
    return replace(family, samples={**zeros, **dict(family.samples)}) if zeros else family


class Recording(Protocol):
    """Counters of a recorder; see ``store.recorder``."""

    @property
    def recorded(self) -> int:
        """Count recorded samples."""
        ...

    @property
    def dropped(self) -> Mapping[str, int]:
        """Count dropped samples by reason."""
        ...


def recording_families(recorder: Recording, scrapes: Mapping[str, int] | None = None) -> Iterator[Family]:
    """Yield the metrics of recording; ``scrapes`` counts outcomes where node agents are scraped."""
    yield Family(SAMPLES, {(): float(recorder.recorded)})
    yield Family(DROPPED, {(reason,): float(recorder.dropped.get(reason, 0)) for reason in REASONS})
    if scrapes is not None:
        yield Family(SCRAPES, {(outcome,): float(scrapes.get(outcome, 0)) for outcome in OUTCOMES})
