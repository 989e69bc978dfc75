# SPDX-License-Identifier: Apache-2.0
"""Keep sums of jobs by day and by blocks of days, so that a long time is added up without looking at its jobs.

A job counts once under no rule, and once more under each rule that found something in it.

Sums of blocks are derived from those by day, and always changed with them. How many jobs of each shape waited how long
is kept by day, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Index, Integer, Table, bindparam, case, delete, func, select
from sqlalchemy.dialects import mysql, postgresql, sqlite

from slurmscope.archive.job_columns import EDGE_SECONDS
from slurmscope.archive.job_rows import ColumnValues, rules_of
from slurmscope.archive.tables import make_table, name_type
from slurmscope.archive.texts import CLUSTER_LENGTH, RULE_LENGTH, STATE_LENGTH, TITLE_LENGTH, cluster_name, person_name
from slurmscope.core.units import DAY_SECONDS
from slurmscope.jobs.findings import FAILED_STATES, LOST_STATES, TIMEOUT_STATES
from slurmscope.jobs.wait_times import (
    WaitingTime,
    find_cores_class,
    find_limit_class,
    find_wait_class,
    make_waiting_time,
)

NO_RULE = ""
"""In the sums by day: all jobs, whatever was found in them."""

_USE = (
    "jobs", "core_milliseconds", "measured_core_milliseconds", "used_core_milliseconds", "gpu_milliseconds",
    "measured_gpu_milliseconds", "used_gpu_milliseconds", "jobs_with_findings", "blocked_core_milliseconds",
    "energy_jobs", "energy_millijoules", "carbon_milligrams", "energy_millicost", "startup_core_milliseconds",
    "tail_core_milliseconds", "startup_gpu_milliseconds", "tail_gpu_milliseconds",
)  # fmt: skip
_LOSSES = (
    "failed_core_milliseconds", "timeout_core_milliseconds", "unused_core_milliseconds", "failed_gpu_milliseconds",
    "timeout_gpu_milliseconds", "unused_gpu_milliseconds",
)  # fmt: skip
_OUTCOMES = (
    "advised", "followed", "ignored", "gone", "completed", "saving_runs", "saved_core_milliseconds",
    "saved_gpu_milliseconds", "saved_memory_gib_milliseconds",
)  # fmt: skip


def _sums(*names: str) -> list[Column[int]]:
    return [Column(name, BigInteger, nullable=False) for name in names]


# Sums of ``span`` days from a day on, counted from 1970: single days, and blocks of them.
# Thousandths of seconds, as whole numbers: what is added and subtracted again leaves exactly nothing.
DAILY = make_table(
    "daily_sums",
    Column("rule", name_type(RULE_LENGTH), primary_key=True),
    Column("span", Integer, primary_key=True, autoincrement=False),
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("cluster", name_type(CLUSTER_LENGTH), primary_key=True),
    Column("user", name_type(), primary_key=True),
    Column("account", name_type(), primary_key=True),
    Column("partition", name_type(), primary_key=True),
    Column("state", name_type(STATE_LENGTH), primary_key=True),
    *_sums(*_USE),
    Index("slurmscope_daily_user", "user", "rule", "span", "day"),
    Index("slurmscope_daily_account", "account", "rule", "span", "day"),
    sqlite_with_rowid=False,
)

# The same sums over all jobs by one name of theirs, so that those of all users are added up over a
# year without reading those of every user in every partition. ``dimension`` is the column of the name, or "rule".
TOTALS = make_table(
    "totals",
    Column("dimension", name_type(STATE_LENGTH), primary_key=True),
    Column("span", Integer, primary_key=True, autoincrement=False),
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("cluster", name_type(CLUSTER_LENGTH), primary_key=True),
    Column("name", name_type(), primary_key=True),
    *_sums(*_USE),
    *_sums(*_LOSSES),
    Index("slurmscope_totals_name", "name", "dimension", "span", "day"),
    sqlite_with_rowid=False,
)

# How many jobs of a shape waited how long, by the day of submission. Classes are numbered as
# ``model.waiting_times`` does.
WAITS = make_table(
    "waits",
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("cluster", name_type(CLUSTER_LENGTH), primary_key=True),
    Column("partition", name_type(), primary_key=True),
    Column("cores_class", Integer, primary_key=True, autoincrement=False),
    Column("limit_class", Integer, primary_key=True, autoincrement=False),
    Column("wait_class", Integer, primary_key=True, autoincrement=False),
    Column("jobs", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

# How many jobs have a name: a part of a name is searched among the names, which are much fewer than jobs.
NAMES = make_table(
    "names",
    Column("name", name_type(TITLE_LENGTH), primary_key=True),
    Column("jobs", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

# Sums of the outcomes of advice by month, counted from the year 0; they are kept when jobs are
# deleted. Thousandths of seconds, and of GiB-seconds, as whole numbers.
ADVICE_SUMS = make_table(
    "advice_sums",
    Column("month", Integer, primary_key=True, autoincrement=False),
    Column("rule", name_type(RULE_LENGTH), primary_key=True),
    Column("user", name_type(), primary_key=True),
    Column("account", name_type(), primary_key=True),
    Column("cluster", name_type(CLUSTER_LENGTH), primary_key=True),
    *_sums(*_OUTCOMES),
    Index("slurmscope_advice_sums_user", "user", "month"),
    Index("slurmscope_advice_sums_account", "account", "month"),
    sqlite_with_rowid=False,
)


def change_sums(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add to the sums of a table, and delete rows of which nothing is left."""
    if not rows:
        return
    connection.execute(add_to_sums(connection.dialect.name, table), rows)
    keys, sums = tuple(table.primary_key), [column for column in table.c if not column.primary_key]
    smaller = [row for row in rows if any(row[column.name] < 0 for column in sums)]
    if smaller:
        same = (key == bindparam(f"old_{key.name}") for key in keys)
        old_keys = [{f"old_{key.name}": row[key.name] for key in keys} for row in smaller]
        connection.execute(delete(table).where(*same, *(column == 0 for column in sums)), old_keys)


def add_to_sums(dialect: str, table: Table) -> Any:
    """Return the statement that adds to all columns that are not part of the key."""
    keys = [column.name for column in table.primary_key]
    sums = [column for column in table.columns if column.name not in keys]
    if dialect == "mariadb":
        added = mysql.insert(table)
        return added.on_duplicate_key_update({column.name: column + added.inserted[column.name] for column in sums})
    kind = postgresql if dialect == "postgresql" else sqlite
    inserted = kind.insert(table)
    return inserted.on_conflict_do_update(
        index_elements=keys, set_={column.name: column + inserted.excluded[column.name] for column in sums}
    )


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


def change_all_sums(connection: Connection, taken: Rows, added: Rows = ()) -> None:
    """Count jobs out and in, in every table of sums of them."""
    change_daily_sums(connection, taken, added)
    change_waits(connection, taken, added)
    change_names(connection, (row["name"] for row in taken), (row["name"] for row in added))


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
        int(row["energy_joules"] is not None),
        *(_milliseconds(row[name] or 0.0) for name in ("energy_joules", "carbon_grams", "energy_cost", *EDGE_SECONDS)),
    )


def _milliseconds(seconds: float) -> int:
    """Return thousandths, also of other units."""
    return round(seconds * 1000)


MAX_GROUPS = 100_000


def change_waits(connection: Connection, taken: Rows, added: Rows = ()) -> None:
    """Count jobs out and in; always in the same order, so that two writers cannot wait for each other."""
    jobs = Counter(_wait_keys(added))
    jobs.subtract(_wait_keys(taken))
    changed = ((*key, count) for key, count in sorted(jobs.items()) if count)
    change_sums(connection, WAITS, [dict(zip(WAITS.c.keys(), values, strict=True)) for values in changed])


def change_names(connection: Connection, taken: Iterable[str], added: Iterable[str] = ()) -> None:
    """Count the names of jobs out and in, in the same order as every other writer."""
    jobs = Counter(added)
    jobs.subtract(Counter(taken))
    change_sums(connection, NAMES, [{"name": name, "jobs": count} for name, count in sorted(jobs.items()) if count])


def read_waiting_times(
    connection: Connection, since_seconds: int, *, cluster: str = "", partition: str = ""
) -> tuple[WaitingTime, ...]:
    """Return the waiting times of jobs that were submitted since this day, by partition and shape."""
    shape = (WAITS.c.partition, WAITS.c.cores_class, WAITS.c.limit_class)
    statement = select(*shape, WAITS.c.wait_class, func.sum(WAITS.c.jobs)).group_by(*shape, WAITS.c.wait_class)
    statement = statement.where(WAITS.c.day >= since_seconds // DAY_SECONDS).limit(MAX_GROUPS)
    if cluster:
        statement = statement.where(WAITS.c.cluster == cluster_name(cluster))
    if partition:
        statement = statement.where(WAITS.c.partition == person_name(partition))
    shapes: dict[tuple[str, int, int], dict[int, int]] = defaultdict(dict)
    for name, cores_class, limit_class, wait_class, jobs in connection.execute(statement):
        shapes[name, cores_class, limit_class][wait_class] = int(jobs)
    return tuple(make_waiting_time(*key, jobs_by_class) for key, jobs_by_class in sorted(shapes.items()))


def _wait_keys(rows: Rows) -> Iterable[tuple[int | str, ...]]:
    """Yield the name of one counter for each job, in the order of the key columns."""
    for row in rows:
        if row["wait_seconds"] is not None and row["cpus"]:
            yield (
                row["submit_seconds"] // DAY_SECONDS,
                row["cluster"],
                row["partition"],
                find_cores_class(row["cpus"]),
                find_limit_class(row["time_limit_seconds"]),
                find_wait_class(row["wait_seconds"]),
            )
