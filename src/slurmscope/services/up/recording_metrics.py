# SPDX-License-Identifier: Apache-2.0
"""Tell how recording is doing.

::

    slurmscope_recorder_samples_total 1.2e+06
    slurmscope_recorder_dropped_samples_total{reason="late"} 3
    slurmscope_agent_scrapes_total{outcome="failed"} 2
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from slurmscope.metrics.family import Family, counter

SAMPLES = counter("slurmscope_recorder_samples_total", "Samples that were recorded since the start.")
DROPPED = counter(
    "slurmscope_recorder_dropped_samples_total",
    "Samples that were left out: late, not_finite, too_many series, or too_long labels.",
    "reason",
)
SCRAPES = counter(
    "slurmscope_agent_scrapes_total",
    "Scrapes of node agents: good, failed, or skipped because those before still ran or failed.",
    "outcome",
)
RECORDING_METRICS = (SAMPLES, DROPPED, SCRAPES)

REASONS = ("late", "not_finite", "too_many", "too_long")
OUTCOMES = ("good", "failed", "skipped")


class Recording(Protocol):
    """Count samples; see ``store.recorder``."""

    @property
    def recorded(self) -> int:
        """Count what was taken."""
        ...

    @property
    def dropped(self) -> Mapping[str, int]:
        """Count what was left out, by reason."""
        ...


def recording_families(recorder: Recording, scrapes: Mapping[str, int] | None = None) -> Iterator[Family]:
    """Yield the families; ``scrapes`` counts outcomes where node agents are asked."""
    yield Family(SAMPLES, {(): float(recorder.recorded)})
    yield Family(DROPPED, {(reason,): float(recorder.dropped.get(reason, 0)) for reason in REASONS})
    if scrapes is not None:
        yield Family(SCRAPES, {(outcome,): float(scrapes.get(outcome, 0)) for outcome in OUTCOMES})
