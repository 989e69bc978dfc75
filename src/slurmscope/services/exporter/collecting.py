# SPDX-License-Identifier: Apache-2.0
"""Run collectors over readings so that a failing one costs only its own families."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from slurmscope.log import fields
from slurmscope.metrics.collector import Collector
from slurmscope.metrics.family import Family
from slurmscope.services.exporter.readings import Snapshot

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnabledCollector:
    """Hold a collector that is switched on, with its options."""

    collector: Collector
    options: object

    @property
    def name(self) -> str:
        """Return the collector's name."""
        return self.collector.name


@dataclass(frozen=True, slots=True)
class CollectorOutcome:
    """Tell how a collector's last run ended; the duration is of the run, not of the scrape."""

    is_success: bool
    duration_seconds: float


def is_served(enabled: EnabledCollector, snapshots: Mapping[str, Snapshot]) -> bool:
    """Tell whether every reading that a collector needs is there, fresh or not."""
    return all(snapshots[name].has_value for name in enabled.collector.needs)


def is_fresh(enabled: EnabledCollector, snapshots: Mapping[str, Snapshot]) -> bool:
    """Tell whether every reading that a collector needs was read without error."""
    return all(snapshots[name].has_value and snapshots[name].error is None for name in enabled.collector.needs)


def run_collector(
    enabled: EnabledCollector, snapshots: Mapping[str, Snapshot], outcomes: dict[str, CollectorOutcome]
) -> Iterator[Family]:
    """Yield the declared families of one collector and note how it went.

    Families are passed on one by one so that a large one can be written and forgotten. What was
    yielded before a failure stays: each family is whole.
    """
    started = time.perf_counter()
    spent = 0.0
    readings = {name: snapshots[name].value for name in enabled.collector.needs}
    declared = {metric.name: metric for metric in enabled.collector.metrics}
    is_success = True
    try:
        for family in enabled.collector.collect(enabled.options, **readings):
            if declared.get(family.metric.name) != family.metric:
                raise LookupError(f"{family.metric.name} is not declared by the collector")
            if not isinstance(family.samples, Mapping):
                # What samples are made of on the fly may raise, and must do so here.
                family = replace(family, samples=tuple(family.samples))  # noqa: PLW2901 - the same family, made
            spent += time.perf_counter() - started
            yield family
            started = time.perf_counter()
    except Exception:
        logger.exception("collector failed", extra=fields(enabled.name, collector=enabled.name))
        is_success = False
    outcomes[enabled.name] = CollectorOutcome(is_success, spent + time.perf_counter() - started)
