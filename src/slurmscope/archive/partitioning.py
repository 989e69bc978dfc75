# SPDX-License-Identifier: Apache-2.0
"""Partition the reports and curves of an archive that was created before schema 3, without copying a row.

The table becomes the first partition, ``w0``, of a new one: its runs have numbers below those of the first week. The
server reads each row once to check that. PostgreSQL does so in the transaction of the migration. MariaDB commits every
statement, so each of them can be the last one before an interruption, and the next migration goes on from there.
"""

from __future__ import annotations

from sqlalchemy import Connection, Table, func, inspect, select, text

from slurmscope.archive.partitions import OLDER_WEEK, RUNS_A_WEEK, is_partitioned, partition_name

_FIRST = f"PARTITION {partition_name(OLDER_WEEK)} VALUES LESS THAN ({RUNS_A_WEEK})"


def can_be_partitioned(connection: Connection, table: Table) -> bool:
    """Return whether a table has no partitions yet, or an interrupted migration has left something to do."""
    found = inspect(connection)
    if connection.dialect.name == "sqlite" or not found.has_table(table.name):
        return False
    if any(found.has_table(name) for name in _names(table)):
        return True
    newest = connection.scalar(select(func.max(table.c.run_id)))
    return not is_partitioned(connection, table.name) and (newest or 0) < RUNS_A_WEEK


def partition_table(connection: Connection, table: Table) -> None:
    """Make a table the first partition of a new one with its name."""
    if connection.dialect.name == "postgresql":
        _attach(connection, table)
    else:
        _exchange(connection, table)


def _attach(connection: Connection, table: Table) -> None:
    suffix = partition_name(OLDER_WEEK)
    first = f"{table.name}_{suffix}"
    _run(connection, f"ALTER TABLE {table.name} RENAME TO {first}")
    # The names of indexes are those of the new table, too.
    for index in (f"{table.name}_pkey", *sorted(str(index.name) for index in table.indexes)):
        _run(connection, f"ALTER INDEX {index} RENAME TO {index}_{suffix}")
    table.create(connection)
    _run(connection, f"ALTER TABLE {table.name} ATTACH PARTITION {first} FOR VALUES FROM (0) TO ({RUNS_A_WEEK})")


def _exchange(connection: Connection, table: Table) -> None:
    """Give the rows to a partitioned table, which then takes the name."""
    new, emptied = _names(table)
    if not is_partitioned(connection, table.name):
        if not is_partitioned(connection, new):
            _run(connection, f"DROP TABLE IF EXISTS {new}")
            _run(connection, f"CREATE TABLE {new} LIKE {table.name}")
            partitions = f"({_FIRST}, PARTITION rest VALUES LESS THAN MAXVALUE)"
            _run(connection, f"ALTER TABLE {new} PARTITION BY RANGE (run_id) {partitions}")
        if connection.scalar(select(table.c.run_id).limit(1)) is not None:
            # Within a transaction, the locks of the check would be in the way of the exchange itself.
            _run(connection, "SET autocommit = 1")
            _run(
                connection, f"ALTER TABLE {new} EXCHANGE PARTITION {partition_name(OLDER_WEEK)} WITH TABLE {table.name}"
            )
            _run(connection, "SET autocommit = 0")
        _run(connection, f"RENAME TABLE {table.name} TO {emptied}, {new} TO {table.name}")
    _run(connection, f"DROP TABLE IF EXISTS {emptied}")


def _names(table: Table) -> tuple[str, str]:
    """Return the names that MariaDB has for the new table and the emptied one in the meantime."""
    return f"{table.name}_new", f"{table.name}_emptied"


def _run(connection: Connection, statement: str) -> None:
    connection.execute(text(statement))
