# SPDX-License-Identifier: Apache-2.0
"""Bring the tables of an older archive up to date.

A step only adds: columns that may be NULL, indexes, and sums of what is there. No row is rewritten, and what older rows
do not have stays NULL, which means unknown. MariaDB commits after every change of a table, so a step that was
interrupted goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from sqlalchemy import Connection, Index, Table, insert, inspect, select, text, update
from sqlalchemy.schema import CreateColumn

from slurmscope.errors import ArchiveError
from slurmscope.store.archive import schema
from slurmscope.store.archive.columns import METADATA
from slurmscope.store.archive.dimension_sums import fill_totals
from slurmscope.store.archive.schema import FINDINGS, JOBS, SCHEMA
from slurmscope.store.archive.sum_tables import ADVICE_SUMS, DAILY

LOCK_NAME = "slurmscope_schema"
LOCK_NUMBER = 0x736C7572
"""PostgreSQL numbers its advisory locks; any number that nothing else uses will do."""
LOCK_SECONDS = 60


def read_version(connection: Connection) -> int | None:
    """Return the version of the tables; None for an empty database. Raise ArchiveError for that of a later release."""
    if not inspect(connection).has_table(SCHEMA.name):
        return None
    version: int | None = connection.scalar(select(SCHEMA.c.version).where(SCHEMA.c.id == 1))
    if version is not None and version > schema.SCHEMA_VERSION:
        raise ArchiveError(
            f"the archive has the schema {version} of a later release, and this one knows {schema.SCHEMA_VERSION}: "
            "update slurmscope"
        )
    return version


def is_migration_due(connection: Connection) -> bool:
    """Return whether the tables are those of an older release."""
    version = read_version(connection)
    return version is not None and version < schema.SCHEMA_VERSION


def prepare_schema(connection: Connection) -> None:
    """Create what is missing and run the migrations that are due; refuse what a later release has made."""
    version = read_version(connection)
    METADATA.create_all(connection)
    if version is None:
        connection.execute(insert(SCHEMA).values(id=1, version=schema.SCHEMA_VERSION))
        return
    for older in range(version, schema.SCHEMA_VERSION):
        MIGRATIONS[older](connection)
    if version < schema.SCHEMA_VERSION:
        connection.execute(update(SCHEMA).values(version=schema.SCHEMA_VERSION))


@contextmanager
def one_migration_at_a_time(connection: Connection) -> Iterator[None]:
    """Wait for other processes that prepare the same tables. SQLite has locked its file already."""
    dialect = connection.dialect.name
    if dialect == "postgresql":
        # Released at the end of the transaction.
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": LOCK_NUMBER})
    if dialect != "mariadb":
        yield
        return
    lock = {"name": LOCK_NAME, "seconds": LOCK_SECONDS}
    # A name counts for the whole server: other archives on it have their own.
    if connection.scalar(text("SELECT GET_LOCK(CONCAT(DATABASE(), '.', :name), :seconds)"), lock) != 1:
        raise ArchiveError("the archive is being migrated by another process; try again later")
    try:
        yield
    finally:
        connection.execute(text("SELECT RELEASE_LOCK(CONCAT(DATABASE(), '.', :name))"), {"name": LOCK_NAME})


def _from_1_to_2(connection: Connection) -> None:
    for table in (JOBS, FINDINGS, DAILY):
        _add_columns(connection, table)
    _add_indexes(connection, JOBS)


def _from_2_to_3(connection: Connection) -> None:
    for table in (JOBS, ADVICE_SUMS):
        _add_indexes(connection, table)
    fill_totals(connection)
    if connection.dialect.name == "sqlite":
        # It takes an index without statistics for a good one.
        connection.execute(text("ANALYZE"))


def _add_columns(connection: Connection, table: Table) -> None:
    known = {column["name"] for column in inspect(connection).get_columns(table.name)}
    for column in table.columns:
        if column.name not in known:
            definition = CreateColumn(column).compile(dialect=connection.dialect)
            connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {definition}"))


def _add_indexes(connection: Connection, table: Table) -> None:
    known = {index["name"] for index in inspect(connection).get_indexes(table.name)}
    missing: list[Index] = [index for index in table.indexes if index.name not in known]
    for index in sorted(missing, key=lambda index: str(index.name)):
        index.create(connection)


MIGRATIONS: Mapping[int, Callable[[Connection], None]] = MappingProxyType({1: _from_1_to_2, 2: _from_2_to_3})
"""What brings a schema of this version to the next one."""
