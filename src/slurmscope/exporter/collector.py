# SPDX-License-Identifier: Apache-2.0
"""Declare readings and collectors: what is read of a source and how often, and which metrics are made from it.

A reading stands beside its parser, and a collector beside its metrics; both may be in one file::

    LICENSES = Reading(name="licenses", read=read_licenses, every_seconds=180.0)
    COLLECTOR = Collector(name="licenses", needs=(LICENSES,), ...)
"""

from __future__ import annotations

import enum
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

from slurmscope.metrics.family import Family, Metric, compat_counter, compat_gauge


class Role(enum.Enum):
    """Which exporter runs a collector."""

    CLUSTER = "cluster"
    NODE = "node"


Read = Callable[[], object]

SLOW_SECONDS = 300.0
"""Interval of readings that change slowly, while ``slurm.slow-interval`` has its default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Declare what is read for collectors and features, once for all of them.

    ``read`` takes the sources of the exporter, such as :class:`slurmscope.cluster.sources.Sources`. A reading that
    remembers something has ``open`` instead, which takes the sources and returns the function that reads.

    A reading is repeated after ``every_seconds``, which ``slurm.slow-interval`` scales, but never sooner than the
    exporter allows; after a failure also after ``retry_seconds``. While reading fails, the last value is served for
    ``keep_seconds``; by default for five minutes or three intervals. ``advice`` is for ``slurmscope doctor``, where
    that for the reason of the failure does not help. The older names are those of replaced exporters.
    """

    name: str
    read: Callable[[Any], object] = lambda sources: sources
    open: Callable[[Any], Read] | None = None
    every_seconds: float = 0.0
    keep_seconds: float | None = None
    retry_seconds: float | None = None
    advice: str = ""
    older_duration: str = ""
    older_errors: tuple[str, ...] = ()

    def bind(self, sources: object) -> Read:
        return self.open(sources) if self.open else partial(self.read, sources)

    @property
    def duration_metric(self) -> Metric | None:
        if not self.older_duration:
            return None
        return compat_gauge(self.older_duration, f"Duration of the latest reading of {self.name} in milliseconds.")

    @property
    def error_metrics(self) -> tuple[Metric, ...]:
        return tuple(compat_counter(name, f"Failed readings of {self.name}.") for name in self.older_errors)


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Mark a collector that can only be enabled or disabled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """Describe one collector; the module of its subject exports it as ``COLLECTOR``.

    ``collect(options, **readings)`` is called with an instance of ``options`` and one keyword argument per reading in
    ``needs``, which has readings, or names of those that another module declares. It is pure: the same readings give
    the same families, so the page is cached until a reading changes.
    Yielding a metric that is not declared is an error. A collector that is not enabled by default is enabled when the
    setting ``enabled_by`` is given.
    """

    name: str
    role: Role
    help: str
    needs: tuple[Reading | str, ...]
    metrics: tuple[Metric, ...]
    collect: Callable[..., Iterable[Family]]
    options: type = NoOptions
    is_default: bool = True
    enabled_by: str = ""

    @property
    def reading_names(self) -> tuple[str, ...]:
        return tuple(need if isinstance(need, str) else need.name for need in self.needs)


def find_collectors(*places: str) -> tuple[Collector, ...]:
    """Return the collectors of modules, or of all modules of packages, by name."""
    found = [
        collector
        for place in places
        for module in _modules(place)
        if isinstance(collector := getattr(module, "COLLECTOR", None), Collector)
    ]
    return tuple(sorted(found, key=lambda collector: collector.name))


def declared_readings(collectors: Iterable[Collector], *own: Reading) -> dict[str, Reading]:
    """Return the readings of features, then those that collectors declare, by name."""
    needed = (need for collector in collectors for need in collector.needs if isinstance(need, Reading))
    return {reading.name: reading for reading in (*own, *needed)}


def _modules(place: str) -> Iterator[ModuleType]:
    """Import a module, or every module of a package but not of those below it."""
    module = importlib.import_module(place)
    yield module
    for found in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{place}."):
        if not found.ispkg:
            yield importlib.import_module(found.name)
