# SPDX-License-Identifier: Apache-2.0
"""Create the tables of a new archive, and refuse an archive whose tables are those of another release.

The version is written last: a creation that was interrupted is completed by the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from sqlalchemy import Connection, Engine, insert, inspect, select, text

from slurmscope.archive.columns import METADATA
from slurmscope.archive.tables import SCHEMA, SCHEMA_VERSION
from slurmscope.core.errors import ArchiveError, ArchiveSchemaError

LOCK_NAME = "slurmscope_schema"
LOCK_NUMBER = 0x736C7572
"""PostgreSQL numbers its advisory locks; any number that nothing else uses will do."""
LOCK_SECONDS = 60


def has_tables(connection: Connection) -> bool:
    """Return whether the archive was created; raise ArchiveSchemaError if another release did so."""
    return inspect(connection).has_table(SCHEMA.name) and check_version(connection)


def check_version(connection: Connection) -> bool:
    """Return whether the version was written; raise ArchiveSchemaError if it is that of another release."""
    version = connection.scalar(select(SCHEMA.c.version))
    if version is not None and version != SCHEMA_VERSION:
        raise ArchiveSchemaError(
            f"the archive has schema {version}, and this release supports only schema {SCHEMA_VERSION}: "
            "run the release of slurmscope that wrote it, or choose another archive with archive.url"
        )
    return version is not None


def create_tables(engine: Engine) -> None:
    """Create all tables unless another process did so meanwhile."""
    with _one_creation_at_a_time(engine) as connection:
        if not has_tables(connection):
            METADATA.create_all(connection)
            connection.execute(insert(SCHEMA).values(id=1, version=SCHEMA_VERSION))


@contextmanager
def _one_creation_at_a_time(engine: Engine) -> Iterator[Connection]:
    """Yield a connection in a transaction that other processes wait for; SQLite locks its file with it."""
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
    """Lock until the transaction has ended: MariaDB commits after every new table."""
    lock = {"name": LOCK_NAME, "seconds": LOCK_SECONDS}
    # A name counts for the whole server: other archives on it have their own.
    if connection.scalar(text("SELECT GET_LOCK(CONCAT(DATABASE(), '.', :name), :seconds)"), lock) != 1:
        raise ArchiveError("the archive is being created by another process; try again later")
    connection.rollback()
    try:
        yield
    except BaseException:
        connection.invalidate()  # its end releases the lock, also where it no longer answers
        raise
    connection.execute(text("SELECT RELEASE_LOCK(CONCAT(DATABASE(), '.', :name))"), {"name": LOCK_NAME})
