# SPDX-License-Identifier: Apache-2.0
"""Describe a collector: the readings it needs, the metrics it declares, and the pure function in between."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass

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
    """Describe one collector; a module in ``collectors/`` exports it as ``COLLECTOR``.

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
