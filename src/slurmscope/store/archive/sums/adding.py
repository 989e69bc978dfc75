# SPDX-License-Identifier: Apache-2.0
"""Add to sums that are kept in a table: insert a row, or add to the one that is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, bindparam, delete, func, literal_column
from sqlalchemy.dialects import mysql, postgresql, sqlite


def change_sums(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add to the sums of a table, and delete those without jobs."""
    if not rows:
        return
    connection.execute(add_to_sums(connection.dialect.name, table), rows)
    keys = tuple(table.primary_key)
    smaller = [{f"old_{key.name}": row[key.name] for key in keys} for row in rows if row["jobs"] < 0]
    if smaller:
        same = (key == bindparam(f"old_{key.name}") for key in keys)
        connection.execute(delete(table).where(*same, table.c.jobs == 0), smaller)


def add_to_sums(dialect: str, table: Table) -> Any:
    """Return the statement that adds to all columns that are not part of the key."""
    keys = [column.name for column in table.primary_key]
    sums = [column for column in table.columns if column.name not in keys]
    if dialect == "mariadb":
        added = mysql.insert(table)
        return added.on_duplicate_key_update({column.name: _sum(column, added.inserted) for column in sums})
    kind = postgresql if dialect == "postgresql" else sqlite
    inserted = kind.insert(table)
    return inserted.on_conflict_do_update(
        index_elements=keys, set_={column.name: _sum(column, inserted.excluded) for column in sums}
    )


def _sum(column: Any, added: Any) -> Any:
    """Add; a sum that an older release wrote may be NULL. PyMySQL takes no parameters after the values."""
    return (func.coalesce(column, literal_column("0")) if column.nullable else column) + added[column.name]
