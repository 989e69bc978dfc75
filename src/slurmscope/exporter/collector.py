# SPDX-License-Identifier: Apache-2.0
"""Describe a collector: the readings it needs, the metrics it declares, and the pure function in between."""

from __future__ import annotations

import enum
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType

from slurmscope.metrics.family import Family, Metric


class Role(enum.Enum):
    """Which exporter runs a collector."""

    CLUSTER = "cluster"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Mark a collector that can only be enabled or disabled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """Describe one collector; the module of its subject exports it as ``COLLECTOR``.

    ``collect(options, **readings)`` is called with an instance of ``options`` and one keyword argument per name in
    ``needs``. It is pure: the same readings give the same families, so the page is cached until a reading changes.
    Yielding a metric that is not declared is an error. A collector that is not enabled by default is enabled when the
    setting ``enabled_by`` is given.
    """

    name: str
    role: Role
    help: str
    needs: tuple[str, ...]
    metrics: tuple[Metric, ...]
    collect: Callable[..., Iterable[Family]]
    options: type = NoOptions
    is_default: bool = True
    enabled_by: str = ""


# Where the collectors of each role are: one module, or every module of a package.
_PLACES = {
    Role.CLUSTER: ("slurmscope.cluster", "slurmscope.lustre.collector", "slurmscope.trace.collector"),
    Role.NODE: (
        "slurmscope.node.filesystems",
        "slurmscope.node.gpu.collector",
        "slurmscope.node.jobs",
        "slurmscope.node.process_groups",
        "slurmscope.profile.collector",
        "slurmscope.trace.node_collector",
    ),
}


def all_collectors(role: Role) -> tuple[Collector, ...]:
    """Return all collectors of a role, enabled or not, by name."""
    found = [
        collector
        for place in _PLACES[role]
        for module in _modules(place)
        if isinstance(collector := getattr(module, "COLLECTOR", None), Collector)
    ]
    return tuple(sorted(found, key=lambda collector: collector.name))


def _modules(place: str) -> Iterator[ModuleType]:
    """Import a module, or every module of a package but not of those below it."""
    module = importlib.import_module(place)
    yield module
    for found in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{place}."):
        if not found.ispkg:
            yield importlib.import_module(found.name)
