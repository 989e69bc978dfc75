# SPDX-License-Identifier: Apache-2.0
"""Describe a collector: what it needs, what it declares, and the pure function that turns one into the other."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from slurmscope.metrics.family import Family, Metric


class Role(enum.Enum):
    """Tell which command runs a collector."""

    CLUSTER = "cluster"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Say that a collector has nothing to set but on and off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """Describe one subject of measurement; a module in ``collectors/`` exports it as ``COLLECTOR``.

    ``collect(options, **readings)`` is called with an instance of ``options`` and one keyword
    argument per name in ``needs``. It is pure: the same readings give the same families, which is
    why the runner may keep its result until a reading changes. Only metrics it declares are served.
    """

    name: str
    role: Role
    help: str
    needs: tuple[str, ...]
    metrics: tuple[Metric, ...]
    collect: Callable[..., Iterable[Family]]
    options: type = NoOptions
    is_default: bool = True
