# SPDX-License-Identifier: Apache-2.0
"""Describe the metrics of a tool that slurmscope replaces.

The tables of ``docs/migrate`` are made from these descriptions and from the declared metrics, and ``slurmscope migrate
check`` quotes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OldMetrics:
    """Describe metrics of the older tool that share one difference; ``missing`` says why slurmscope may not have them.

    ``is_volatile`` marks values that differ between any two readings, such as the duration of a command.
    """

    names: tuple[str, ...]
    difference: str = "same"
    missing: str = ""
    is_volatile: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricGroup:
    """Hold the metrics of one subject; ``note`` is a paragraph above their table."""

    title: str
    metrics: tuple[OldMetrics, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldSystem:
    """Describe one replaced tool; ``page`` is the name of its page in ``docs/migrate``."""

    page: str
    groups: tuple[MetricGroup, ...]

    def metrics(self) -> Iterator[OldMetrics]:
        """Yield all metrics."""
        for group in self.groups:
            yield from group.metrics

    def by_name(self) -> Mapping[str, OldMetrics]:
        """Return the description of each name."""
        return {name: old for old in self.metrics() for name in old.names}


def old(*names: str, difference: str = "same", missing: str = "", is_volatile: bool = False) -> OldMetrics:
    """Describe metrics of one difference."""
    return OldMetrics(names=names, difference=difference, missing=missing, is_volatile=is_volatile)
