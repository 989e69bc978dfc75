# SPDX-License-Identifier: Apache-2.0
"""Open the database of the archive, and turn everything that goes wrong with it into one sentence.

Nothing is asked before the first question: a server that is away keeps no service from starting. A connection that
broke is replaced; every question, and every wait for a connection, has a time limit.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from slurmscope.errors import ArchiveError
from slurmscope.log import escape
from slurmscope.store.archive_settings import ArchiveSettings
from slurmscope.store.drivers import WRITES, Driver, choose_driver
from slurmscope.store.schema import prepare_schema

POOL_SIZE = 10
MAX_OVERFLOW = 14
RECYCLE_SECONDS = 1800

# Deadlock and lock wait in MariaDB; serialization failure and deadlock in PostgreSQL.
_CONFLICTS = frozenset({1205, 1213, "40001", "40P01"})
_MESSAGE_LIMIT = 300


class ArchiveConflict(ArchiveError):
    """Another writer was at the same rows; the same once more will do."""


class Database:
    """Lend connections to one database, from any thread. Everything that goes wrong is an ``ArchiveError``."""

    def __init__(self, settings: ArchiveSettings) -> None:
        """Keep where it is."""
        self._url = make_url(settings.url)
        self._driver = choose_driver(self._url, settings)
        self._engine = _make_engine(self._url, self._driver, settings)
        self._is_prepared = False
        self._preparing = threading.Lock()

    @property
    def dialect(self) -> str:
        """Return sqlite, mariadb or postgresql."""
        return self._engine.dialect.name

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Lend a connection for questions."""
        with self._told(), self._lend(self._engine.connect) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Lend a connection in one transaction: at the end of the block all of it is kept, after an error nothing."""
        with self._told(), self._lend(lambda: self._writer().begin()) as connection:
            yield connection

    def refresh_statistics(self) -> None:
        """Let SQLite look at its tables, to choose the right index; servers do so by themselves."""
        if self.dialect == "sqlite":
            with self.writing() as connection:
                connection.execute(text("ANALYZE"))

    def close(self) -> None:
        """Let go of all connections; a later question opens new ones."""
        with self._told():
            self._engine.dispose()

    @contextmanager
    def _lend(self, lend: Callable[[], Any]) -> Iterator[Connection]:
        self._prepare()
        with lend() as connection:
            yield connection

    def _prepare(self) -> None:
        if self._is_prepared:
            return
        with self._preparing:
            if not self._is_prepared:
                self._driver.make_room()
                self._prepare_schema()
                self._is_prepared = True

    def _prepare_schema(self) -> None:
        """Bring the tables up to date; once more if somebody else did so at the same moment."""
        for is_last in (False, True):
            try:
                with self._writer().begin() as connection:
                    prepare_schema(connection)
                return
            except DBAPIError as error:
                if is_last or error.connection_invalidated:
                    raise

    def _writer(self) -> Engine:
        return self._engine.execution_options(**{WRITES: True})

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except PoolTimeoutError as error:
            raise ArchiveError(f"the archive {self._shown} is busy: no connection was free in time") from error
        except DBAPIError as error:
            kind = ArchiveConflict if _is_conflict(error) else ArchiveError
            raise kind(self._sentence(error.orig)) from error
        except (SQLAlchemyError, sqlite3.Error, OSError) as error:
            raise ArchiveError(self._sentence(error)) from error

    @property
    def _shown(self) -> str:
        return escape(_without_password(self._url), _MESSAGE_LIMIT)

    def _sentence(self, error: BaseException | None) -> str:
        """Tell what the database said in its first line; the others may repeat data."""
        return f"the archive {self._shown} could not be read or written: {escape(_first_line(error), _MESSAGE_LIMIT)}"


def _make_engine(url: URL, driver: Driver, settings: ArchiveSettings) -> Engine:
    engine = create_engine(
        driver.make_url(url),
        connect_args=dict(driver.connect_arguments()),
        hide_parameters=True,
        isolation_level=driver.isolation_level,
        max_overflow=MAX_OVERFLOW,
        pool_pre_ping=driver.is_remote,
        pool_recycle=RECYCLE_SECONDS,
        pool_size=POOL_SIZE,
        pool_timeout=settings.timeout,
    )
    driver.attach(engine)
    return engine


def _without_password(url: URL) -> str:
    return url.set(query={}).render_as_string(hide_password=True)


def _first_line(error: BaseException | None) -> str:
    # PyMySQL gives a number and a sentence.
    said = str(error.args[-1]) if error is not None and error.args else repr(error)
    return next((line.strip() for line in said.splitlines() if line.strip()), "no reason was given")


def _is_conflict(error: DBAPIError) -> bool:
    if isinstance(error, IntegrityError):
        return True
    code = error.orig.args[0] if error.orig is not None and error.orig.args else None
    return code in _CONFLICTS or getattr(error.orig, "sqlstate", None) in _CONFLICTS
