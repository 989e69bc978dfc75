# SPDX-License-Identifier: Apache-2.0
"""Keep sums of jobs by day and by blocks of days, so that a long time is added up without looking at its jobs.

A job counts once under no rule, and once more under each rule that found something in it.

They are derived from the sums by day, and always changed with them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any

from sqlalchemy import Connection, case

from slurmscope.archive.job_rows import ColumnValues, rules_of
from slurmscope.archive.sum_tables import DAILY, NO_RULE, TOTALS, change_sums
from slurmscope.core.units import DAY_SECONDS
from slurmscope.jobs.findings import FAILED_STATES, LOST_STATES, TIMEOUT_STATES

RULE = "rule"
DIMENSIONS = ("user", "account", "partition", "state")

_KEYS = tuple(column.name for column in TOTALS.primary_key)
TOTAL_SUMS = tuple(column.name for column in TOTALS.c if not column.primary_key)
_KEPT = tuple(name for name in TOTAL_SUMS if name in DAILY.c)

Key = tuple[str | int, ...]
Rows = Iterable[Mapping[str, Any]]


def total_rows(daily: Rows) -> list[ColumnValues]:
    """Return what changes of the sums by day add to those by one name."""
    sums: dict[Key, list[int]] = defaultdict(lambda: [0] * len(TOTAL_SUMS))
    for row in daily:
        amounts = (*(row[name] for name in _KEPT), *_losses(row))
        for key in _keys(row):
            sums[key] = [old + new for old, new in zip(sums[key], amounts, strict=True)]
    changed = ((key, amounts) for key, amounts in sorted(sums.items()) if any(amounts))
    return [dict(zip(_KEYS + TOTAL_SUMS, (*key, *amounts), strict=True)) for key, amounts in changed]


def _keys(row: Mapping[str, Any]) -> Iterator[Key]:
    when = (row["span"], row["day"], row["cluster"])
    if row["rule"] != NO_RULE:
        yield RULE, *when, row["rule"]
        return
    for dimension in DIMENSIONS:
        yield dimension, *when, row[dimension]


def _losses(row: Mapping[str, Any]) -> Iterator[int]:
    """Yield what is lost to failures, to time limits, and else to idle cores; the same for GPUs."""
    state = row["state"]
    for kind in ("core", "gpu"):
        held = row[f"{kind}_milliseconds"]
        yield held if state in FAILED_STATES else 0
        yield held if state in TIMEOUT_STATES else 0
        yield 0 if state in LOST_STATES else row[f"measured_{kind}_milliseconds"] - row[f"used_{kind}_milliseconds"]


def loss_columns(state: Any, amounts: Iterable[Any]) -> tuple[Any, ...]:
    """Return the losses of amounts in the order of the columns, as SQL."""
    _, cores, measured_cores, used_cores, gpus, measured_gpus, used_gpus, *_ = amounts
    return tuple(
        loss
        for held, unused in ((cores, measured_cores - used_cores), (gpus, measured_gpus - used_gpus))
        for loss in (
            case((state.in_(sorted(FAILED_STATES)), held), else_=0),
            case((state.in_(sorted(TIMEOUT_STATES)), held), else_=0),
            case((state.in_(sorted(LOST_STATES)), 0), else_=unused),
        )
    )


DAY, BLOCK = 1, 32
"""How many days a sum is of; a year of days is nearly as long as the list of its jobs, a year of blocks is short."""
KEYS = ("rule", "span", "day", "cluster", "user", "account", "partition", "state")
SUMS = tuple(column.name for column in DAILY.c if column.name not in KEYS)


def change_daily_sums(connection: Connection, taken: Rows, added: Rows = ()) -> None:
    """Count jobs out and in; always in the same order, so that two writers cannot wait for each other."""
    sums: dict[Key, list[int]] = defaultdict(lambda: [0] * len(SUMS))
    for rows, sign in ((taken, -1), (added, 1)):
        for row in rows:
            amounts = [sign * amount for amount in _amounts(row)]
            for key in _daily_keys(row):
                sums[key] = [old + new for old, new in zip(sums[key], amounts, strict=True)]
    changed = ((key, amounts) for key, amounts in sorted(sums.items()) if any(amounts))
    daily = [dict(zip(KEYS + SUMS, (*key, *amounts), strict=True)) for key, amounts in changed]
    change_sums(connection, DAILY, daily)
    change_sums(connection, TOTALS, total_rows(daily))


def _daily_keys(row: Mapping[str, Any]) -> Iterator[Key]:
    day = row["submit_seconds"] // DAY_SECONDS
    for rule, span in product((NO_RULE, *rules_of(row)), (DAY, BLOCK)):
        yield rule, span, day - day % span, *(row[name] for name in KEYS[3:])


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
