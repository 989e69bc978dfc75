# SPDX-License-Identifier: Apache-2.0
"""Bring the tables of an older archive up to date.

What differs from the declared tables is added: tables, columns that may be NULL, and indexes; then come the steps of
each version, such as sums and partitions of what is there. No row is rewritten, and what older rows do not have stays
NULL, which means unknown. MariaDB commits after every change of a table, so a migration that was interrupted continues
where it stopped; while it runs, a second row of the version table keeps other releases from writing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from sqlalchemy import Connection, Engine, Index, Table, TextClause, delete, func, insert, inspect, select, text, update
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable

from slurmscope.archive import tables as schema
from slurmscope.archive.columns import METADATA
from slurmscope.archive.daily_sums import fill_totals
from slurmscope.archive.partitioning import can_be_partitioned, partition_table
from slurmscope.archive.partitions import PARTITIONED
from slurmscope.archive.sum_tables import DAILY
from slurmscope.archive.tables import JOBS, SCHEMA
from slurmscope.core.errors import ArchiveError, ArchiveSchemaError

LOCK_NAME = "slurmscope_schema"
LOCK_NUMBER = 0x736C7572
"""PostgreSQL numbers its advisory locks; any number that nothing else uses will do."""
LOCK_SECONDS = 60
INDEXED_A_SECOND, SUMMED_A_SECOND, CHECKED_A_SECOND = 200_000.0, 20_000.0, 1_000_000.0
"""Rough rates, measured by ``python -m bench migration`` on two cores; databases differ by a factor of a few."""
OLDER_NAMES = MappingProxyType({DAILY.name: "slurmscope_daily"})
"""Tables that were renamed, so that an older release that is still running cannot write."""
_VERSION_ROW, _UNDER_WAY_ROW = 1, 2


class Step(NamedTuple):
    """Do one part of a migration; ``title`` is its statement, or what it does."""

    title: str
    table: Table
    run: Callable[[Connection], object]
    is_needed: Callable[[Connection], bool] = lambda _: True
    rows_a_second: float | None = None
    """Roughly, on an ordinary server; None if it takes no time however many rows there are."""


ShowStep = Callable[[int, int, Step], None]
"""Called before each step with its number, the number of steps, and the step."""


def _partitioning(table: Table) -> Step:
    title = f"partition {table.name} by week; its rows become the first partition and are not copied"
    is_needed = partial(can_be_partitioned, table=table)
    return Step(title, table, partial(partition_table, table=table), is_needed, CHECKED_A_SECOND)


def _analyze(connection: Connection) -> None:
    connection.execute(text("ANALYZE"))


def _is_sqlite(connection: Connection) -> bool:
    return connection.dialect.name == "sqlite"


MIGRATIONS: Mapping[int, Sequence[Step]] = MappingProxyType(
    {
        2: (
            Step("sum up all jobs", JOBS, fill_totals, rows_a_second=SUMMED_A_SECOND),
            *(_partitioning(table) for table in PARTITIONED),
            # Without statistics, SQLite may choose a poor index; servers collect them by themselves.
            Step("collect statistics", JOBS, _analyze, _is_sqlite),
        )
    }
)
"""What is to be done to a schema of this version beside adding what it lacks."""


def read_version(connection: Connection, *, is_locking: bool = False) -> int | None:
    """Return the version of the tables; None for an empty database. Raise ArchiveSchemaError for a later release's.

    With ``is_locking``, a migration waits until the transaction has ended.
    """
    if not inspect(connection).has_table(SCHEMA.name):
        return None
    return check_version(connection, is_locking=is_locking)


def check_version(connection: Connection, *, is_locking: bool = False) -> int | None:
    """Return the version in a table that is there; raise ArchiveSchemaError for that of a later release."""
    statement = select(SCHEMA.c.id, SCHEMA.c.version)
    rows = connection.execute(statement.with_for_update(read=True) if is_locking else statement).all()
    versions = {row.id: row.version for row in rows}
    newest = max(versions.values(), default=0)
    if newest > schema.SCHEMA_VERSION:
        raise ArchiveSchemaError(
            f"the archive has the schema {newest} of a later release, and this one supports {schema.SCHEMA_VERSION}: "
            "update slurmscope"
        )
    version: int | None = versions.get(_VERSION_ROW)
    return version


def is_older(version: int | None) -> bool:
    """Return whether these tables need a migration."""
    return version is not None and version < schema.SCHEMA_VERSION


def plan_steps(connection: Connection) -> tuple[Step, ...]:
    """Return what is to be done to the tables, in order; nothing is changed."""
    version = read_version(connection)
    known = set(inspect(connection).get_table_names())
    steps: list[Step] = []
    for table in METADATA.sorted_tables:
        older_name = OLDER_NAMES.get(table.name)
        if table.name in known:
            steps += _additions(connection, table, table.name) if is_older(version) else ()
        elif older_name in known:
            steps = [_renaming(table, older_name), *steps, *_additions(connection, table, older_name)]
        else:
            steps.append(_creation(connection, table))
    for older in range(version or schema.SCHEMA_VERSION, schema.SCHEMA_VERSION):
        steps += (step for step in MIGRATIONS.get(older, ()) if step.is_needed(connection))
    return tuple(steps)


def prepare_schema(connection: Connection, show_step: ShowStep | None = None) -> None:
    """Create what is missing and run the migrations that are due; refuse what a later release has made."""
    version = read_version(connection)
    steps = plan_steps(connection)
    if is_older(version):
        # Wait for the transactions of others, and block their next ones. MariaDB releases this lock and commits the row
        # with the first change of a table.
        connection.execute(select(SCHEMA).with_for_update())
        connection.execute(delete(SCHEMA).where(SCHEMA.c.id == _UNDER_WAY_ROW))
        connection.execute(insert(SCHEMA).values(id=_UNDER_WAY_ROW, version=schema.SCHEMA_VERSION))
    for number, step in enumerate(steps, 1):
        if show_step is not None:
            show_step(number, len(steps), step)
        step.run(connection)
    if version is None:
        connection.execute(insert(SCHEMA).values(id=_VERSION_ROW, version=schema.SCHEMA_VERSION))
    elif is_older(version):
        connection.execute(update(SCHEMA).where(SCHEMA.c.id == _VERSION_ROW).values(version=schema.SCHEMA_VERSION))
        connection.execute(delete(SCHEMA).where(SCHEMA.c.id == _UNDER_WAY_ROW))


@contextmanager
def one_migration_at_a_time(engine: Engine) -> Iterator[Connection]:
    """Yield a connection in a transaction, which other processes that prepare the same tables wait for.

    SQLite locks its file with the transaction.
    """
    dialect = engine.dialect.name
    with (
        engine.connect() as connection,
        _mariadb_lock(connection) if dialect == "mariadb" else nullcontext(),
        connection.begin(),
    ):
        if dialect == "postgresql":
            # Released at the end of the transaction.
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": LOCK_NUMBER})
        yield connection


@contextmanager
def _mariadb_lock(connection: Connection) -> Iterator[None]:
    """Hold a lock of the session until its transaction has ended: the next one must see the new version."""
    lock = {"name": LOCK_NAME, "seconds": LOCK_SECONDS}
    # A name counts for the whole server: other archives on it have their own.
    if connection.scalar(text("SELECT GET_LOCK(CONCAT(DATABASE(), '.', :name), :seconds)"), lock) != 1:
        raise ArchiveError("the archive is being migrated by another process; try again later")
    connection.rollback()
    try:
        yield
    except BaseException:
        connection.invalidate()  # its end releases the lock, also where it no longer answers
        raise
    connection.execute(text("SELECT RELEASE_LOCK(CONCAT(DATABASE(), '.', :name))"), {"name": LOCK_NAME})


def estimate_rows(connection: Connection, table: Table) -> int:
    """Return about how many rows a table has; servers estimate it without counting."""
    dialect = connection.dialect.name
    name = {"name": table.name}
    if not inspect(connection).has_table(table.name):
        return 0
    if dialect == "postgresql":
        found = connection.scalar(text("SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass(:name)"), name)
        if found is not None and found >= 0:  # -1 before the first ANALYZE
            return int(found)
    if dialect == "mariadb":
        rows = "SELECT table_rows FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = :name"
        return int(connection.scalar(text(rows), name) or 0)
    return int(connection.scalar(select(func.count()).select_from(table)) or 0)


def has_more_rows(connection: Connection, table: Table, count: int) -> bool:
    """Return whether a table has more rows than this, without counting all of them."""
    some = select(table.c[next(iter(table.primary_key)).name]).limit(count + 1).subquery()
    return int(connection.scalar(select(func.count()).select_from(some)) or 0) > count


def _creation(connection: Connection, table: Table) -> Step:
    statement = CreateTable(table).compile(dialect=connection.dialect)
    return Step(_one_line(statement), table, table.create)


def _renaming(table: Table, older_name: str) -> Step:
    statement = text(f"ALTER TABLE {older_name} RENAME TO {table.name}")
    return Step(_one_line(statement), table, partial(_execute, statement))


def _additions(connection: Connection, table: Table, present_name: str) -> Iterator[Step]:
    inspector = inspect(connection)
    columns = {column["name"] for column in inspector.get_columns(present_name)}
    for column in table.columns:
        if column.name not in columns:
            definition = CreateColumn(column).compile(dialect=connection.dialect)
            statement = text(f"ALTER TABLE {table.name} ADD COLUMN {definition}")
            yield Step(_one_line(statement), table, partial(_execute, statement))
    indexes = {index["name"] for index in inspector.get_indexes(present_name)}
    missing: list[Index] = [index for index in table.indexes if index.name not in indexes]
    for index in sorted(missing, key=lambda index: str(index.name)):
        title = _one_line(CreateIndex(index).compile(dialect=connection.dialect))
        yield Step(title, table, index.create, rows_a_second=INDEXED_A_SECOND)


def _execute(statement: TextClause, connection: Connection) -> None:
    connection.execute(statement)


def _one_line(statement: object) -> str:
    return " ".join(str(statement).split())
