# SPDX-License-Identifier: Apache-2.0
"""Elect the process that leads a role, such as archiving jobs; refuse the writes of one that was replaced.

The holder of the lock writes its host and PID, with the number of its term, into the archive. Each of its transactions
begins by reading that row: when another process has been elected meanwhile, nothing is written, even if the loss of the
lock was not noticed yet.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, select

from slurmscope.archive.checkpoints import put_row
from slurmscope.archive.engine import Database
from slurmscope.archive.tables import CHECKPOINTS
from slurmscope.archive.texts import person_name
from slurmscope.core.errors import ArchiveError
from slurmscope.core.log import escape, fields

logger = logging.getLogger(__name__)


_LONGEST_HOST = 255


class NotElected(ArchiveError):
    """Another process has been elected meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectedProcess:
    """Name the process that was elected last; it may have ended."""

    term: int
    host: str
    pid: int
    since_seconds: int


class Election:
    """Take part in an election until elected; ``database`` is for the writes of the elected process."""

    def __init__(self, database: Database, role: str, *, wall_clock: Callable[[], float] = time.time) -> None:
        """Take the archive, whose owner closes it; nothing is opened yet."""
        self.database = database.fenced(self.check, self._leave)
        self.elected = threading.Event()
        """Set while this process is elected; it may be replaced before that is noticed."""
        self._archive = database
        self._role = role
        self._name = record_name(role)
        self._lock = database.make_lock(self._name)
        self._wall_clock = wall_clock
        self._record = ""
        self._is_replaced = False
        self._is_closed = False
        self._not_before = float("-inf")
        self._is_waiting = False
        self._holding = threading.Lock()

    def hold_lock(self) -> None:
        """Take the lock if it is free, or confirm it. An unreachable server means not elected."""
        with self._holding:
            was_elected = bool(self._record)
            try:
                if not self._is_closed:
                    self._hold_lock()
            finally:
                if was_elected and not self.elected.is_set():
                    logger.warning("this process is no longer elected", extra=fields(self._name, role=self._role))

    def check(self, connection: Connection) -> None:
        """Raise NotElected in a transaction of a process that is not elected.

        The row stays locked until the end of the transaction: the next one to be elected waits for it.
        """
        statement = select(CHECKPOINTS.c.value).where(CHECKPOINTS.c.name == self._name)
        current = connection.scalar(statement.with_for_update(read=True))
        mine = self._record
        if not mine or current != mine:
            self._is_replaced = bool(mine)
            self.elected.clear()
            raise NotElected("another process was elected meanwhile; nothing was written")

    def resign(self, seconds: float) -> None:
        """Let another process be elected; take part again after some seconds."""
        with self._holding:
            self._not_before = time.monotonic() + seconds
            self._step_down()
        logger.warning("this process has resigned", extra=fields(self._name, role=self._role))

    def close(self) -> None:
        """Let another process be elected, and never be elected again."""
        self._is_closed = True
        with self._holding:
            self._step_down()

    def _hold_lock(self) -> None:
        if self._is_replaced:
            self._step_down()
            return
        if time.monotonic() < self._not_before:
            return
        try:
            if not self._lock.hold():
                self.elected.clear()
                self._record = ""
                self._wait()
                return
            if not self._record:
                self._record = self._announce()
                self._is_waiting = False
                logger.info("this process was elected", extra=fields(self._name, role=self._role))
            # Each time: a check that began before may have cleared it after the election.
            self.elected.set()
        except ArchiveError:
            self._step_down()
            raise

    def _wait(self) -> None:
        if not self._is_waiting:
            logger.info("another process is elected; waiting", extra=fields(self._name, role=self._role))
        self._is_waiting = True

    def _leave(self) -> None:
        """Let another process be elected: the tables are those of another release."""
        self._is_replaced = bool(self._record)
        self.elected.clear()

    def _step_down(self) -> None:
        self.elected.clear()
        self._record = ""
        self._is_replaced = False
        self._lock.release()

    def _announce(self) -> str:
        """Write that this process is elected now, after a transaction of the one before has ended."""
        with self._archive.writing() as connection:
            before = read_elected(connection, self._name, is_locking=True)
            now = ElectedProcess(
                term=1 + (before.term if before else 0),
                host=socket.gethostname()[:_LONGEST_HOST],
                pid=os.getpid(),
                since_seconds=int(self._wall_clock()),
            )
            record = json.dumps(asdict(now))
            put_row(connection, CHECKPOINTS, {"name": self._name}, {"value": record})
        return record


def record_name(role: str) -> str:
    """Return the name of the lock, and of the row in which the process that has it is named."""
    return person_name(f"elected as {role}")


def read_elected(connection: Connection, name: str, *, is_locking: bool = False) -> ElectedProcess | None:
    """Return who was elected last; None if the row is missing or not of this form."""
    statement = select(CHECKPOINTS.c.value).where(CHECKPOINTS.c.name == name)
    value = connection.scalar(statement.with_for_update() if is_locking else statement)
    try:
        found = json.loads(value or "")
        numbers = {name: int(found[name]) for name in ("term", "pid", "since_seconds")}
        return ElectedProcess(host=escape(str(found["host"]), _LONGEST_HOST), **numbers)
    except (KeyError, TypeError, ValueError):
        return None


def find_elected(database: Database, role: str) -> ElectedProcess | None:
    """Return which process leads this role now; None if there is none."""
    name = record_name(role)
    lock = database.make_lock(name)
    try:
        if not lock.is_taken():
            return None
    finally:
        lock.release()
    with database.reading() as connection:
        return read_elected(connection, name)
