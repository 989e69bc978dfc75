# SPDX-License-Identifier: Apache-2.0
"""Hold what a role brings to the exporter: its readings, and what it tells about itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from slurmscope.metrics.family import Family
from slurmscope.services.exporter.readings import SharedReading


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Tell how one thing stands, and what to do when it is not good."""

    name: str
    is_good: bool
    message: str
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """Name every reading of a role.

    ``own_families`` are added to each page, fresh. ``hidden_labels`` tells, until a given monotonic time,
    which labels must not be shown: metrics that have one are left out. ``checks`` examines the machine for
    ``slurmscope doctor``. ``is_idle`` says that there is nothing worth a push. ``close`` ends what runs in the
    background.
    """

    readings: Mapping[str, SharedReading]
    own_families: Callable[[], Iterable[Family]] = tuple
    hidden_labels: Callable[[float], frozenset[str]] | None = None
    checks: Callable[[], Iterable[Check]] = tuple
    is_idle: Callable[[], bool] = lambda: False
    close: Callable[[], None] = lambda: None
