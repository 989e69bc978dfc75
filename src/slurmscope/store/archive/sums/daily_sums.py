# SPDX-License-Identifier: Apache-2.0
"""Keep sums of jobs by day and by blocks of days, so that a long time is added up without looking at its jobs.

A job counts once under no rule, and once more under each rule that found something in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

from sqlalchemy import Connection

from slurmscope.store.archive.job_rows import ColumnValues, rules_of
from slurmscope.store.archive.sums.adding import change_sums
from slurmscope.store.archive.sums.dimension_sums import total_rows
from slurmscope.store.archive.tables.sum_tables import DAILY, NO_RULE, TOTALS
from slurmscope.units import DAY_SECONDS

DAY, BLOCK = 1, 32
"""How many days a sum is of; a year of days is nearly as long as the list of its jobs, a year of blocks is short."""
KEYS = ("rule", "span", "day", "cluster", "user", "account", "partition", "state")
SUMS = tuple(column.name for column in DAILY.c if column.name not in KEYS)

Key = tuple[str | int, ...]


class SumChanges:
    """Collect the changes of the sums."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._sums: dict[Key, list[int]] = defaultdict(lambda: [0] * len(SUMS))

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Count jobs in."""
        self._count(rows, 1)

    def take(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Count jobs out."""
        self._count(rows, -1)

    def write(self, connection: Connection) -> None:
        """Change the sums; always in the same order, so that two writers cannot wait for each other."""
        rows = self.rows()
        change_sums(connection, DAILY, rows)
        change_sums(connection, TOTALS, total_rows(rows))

    def rows(self) -> list[ColumnValues]:
        """Return what is added to each sum."""
        changed = ((key, sums) for key, sums in sorted(self._sums.items()) if any(sums))
        return [dict(zip(KEYS + SUMS, (*key, *sums), strict=True)) for key, sums in changed]

    def _count(self, rows: Iterable[Mapping[str, Any]], sign: int) -> None:
        for row in rows:
            names = [row[name] for name in KEYS[3:]]
            amounts = _amounts(row)
            day = row["submit_seconds"] // DAY_SECONDS
            for rule, span in product((NO_RULE, *rules_of(row)), (DAY, BLOCK)):
                sums = self._sums[rule, span, day - day % span, *names]
                for index, amount in enumerate(amounts):
                    sums[index] += sign * amount


def _amounts(row: Mapping[str, Any]) -> tuple[int, ...]:
    """Return what one job adds, in the order of the columns."""
    cores, used_cores = row["core_seconds"], row["used_core_seconds"]
    gpus, used_gpus = row["gpu_seconds"], row["used_gpu_seconds"]
    return (
        1,
        _milliseconds(cores),
        0 if used_cores is None else _milliseconds(cores),
        _milliseconds(used_cores or 0.0),
        _milliseconds(gpus),
        0 if used_gpus is None else _milliseconds(gpus),
        _milliseconds(used_gpus or 0.0),
        int(row["worst"] is not None),
        _milliseconds(row["blocked_core_seconds"] or 0.0),
    )


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
