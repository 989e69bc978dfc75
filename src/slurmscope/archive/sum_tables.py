# SPDX-License-Identifier: Apache-2.0
"""Add to sums that are kept in a table: insert a row, or add to the one that is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Index, Integer, Table, bindparam, delete
from sqlalchemy.dialects import mysql, postgresql, sqlite

from slurmscope.archive.columns import make_table, name_type
from slurmscope.archive.texts import CLUSTER_LENGTH, RULE_LENGTH, STATE_LENGTH

NO_RULE = ""
"""In the sums by day: all jobs, whatever was found in them."""

_USE = (
    "jobs", "core_milliseconds", "measured_core_milliseconds", "used_core_milliseconds", "gpu_milliseconds",
    "measured_gpu_milliseconds", "used_gpu_milliseconds", "jobs_with_findings", "blocked_core_milliseconds",
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
