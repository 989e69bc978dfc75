# SPDX-License-Identifier: Apache-2.0
"""Keep the sums by day also by one name only: by user, account, partition, state or rule.

They are derived from the sums by day, and always changed with them.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, Select, case, delete, func, insert, literal, select

from slurmscope.log import fields
from slurmscope.model.waste import FAILED_STATES, LOST_STATES, TIMEOUT_STATES
from slurmscope.store.archive.job_rows import ColumnValues
from slurmscope.store.archive.tables.sum_tables import DAILY, NO_RULE, TOTALS

RULE = "rule"
DIMENSIONS = ("user", "account", "partition", "state")
DAYS_AT_ONCE = 32
"""How many days of an older archive are added up by one statement."""

_KEYS = tuple(column.name for column in TOTALS.primary_key)
TOTAL_SUMS = tuple(column.name for column in TOTALS.c if not column.primary_key)
_KEPT = tuple(name for name in TOTAL_SUMS if name in DAILY.c)

logger = logging.getLogger(__name__)

Key = tuple[str | int, ...]


def total_rows(daily: Iterable[Mapping[str, Any]]) -> list[ColumnValues]:
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


def fill_totals(connection: Connection) -> None:
    """Add up the sums by day of an older archive, some days at a time; once more from the beginning if it was stopped.

    Nothing else may change the sums by day meanwhile.
    """
    connection.execute(delete(TOTALS))
    for rule in _next_values(connection, DAILY.c.rule):
        for span in _next_values(connection, DAILY.c.span, DAILY.c.rule == rule):
            same = (DAILY.c.rule == rule, DAILY.c.span == span)
            first: int | None = connection.scalar(select(func.min(DAILY.c.day)).where(*same))
            while first is not None:
                end = first + DAYS_AT_ONCE
                _fill_days(connection, rule, (*same, DAILY.c.day >= first, DAILY.c.day < end))
                first = connection.scalar(select(func.min(DAILY.c.day)).where(*same, DAILY.c.day >= end))
        logger.info("sums of an older archive were added up", extra=fields(rule=rule or "(all jobs)"))


def _next_values(connection: Connection, column: Any, *conditions: Any) -> Iterator[Any]:
    """Yield the different values of a column that an index is ordered by, without reading all rows."""
    value = connection.scalar(select(func.min(column)).where(*conditions))
    while value is not None:
        yield value
        value = connection.scalar(select(func.min(column)).where(*conditions, column > value))


def _fill_days(connection: Connection, rule: str, conditions: tuple[Any, ...]) -> None:
    for dimension in (RULE,) if rule != NO_RULE else DIMENSIONS:
        statement = _sums_by(dimension).where(*conditions)
        connection.execute(insert(TOTALS).from_select([*_KEYS, *TOTAL_SUMS], statement))


def _sums_by(dimension: str) -> Select[Any]:
    kept = tuple(func.coalesce(DAILY.c[name], 0) for name in _KEPT)
    sums = (func.sum(amount) for amount in (*kept, *loss_columns(DAILY.c.state, kept)))
    keys = (DAILY.c.span, DAILY.c.day, DAILY.c.cluster, DAILY.c[dimension])
    return select(literal(dimension), *keys, *sums).group_by(*keys)


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
