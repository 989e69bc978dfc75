# SPDX-License-Identifier: Apache-2.0
"""Keep the newest samples in memory and in the journal, pack them when a period is over, and drop old ones.

A damaged file is renamed and a new one is started with the samples in memory: recording must continue.

A row costs the same however many samples it holds, so the file takes them at the speed of a copy.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf

from slurmscope.core.errors import ArchiveError
from slurmscope.core.log import escape, fields
from slurmscope.recorder.schema import is_damage, lock, move_aside, open_writer, used_bytes, writing
from slurmscope.recorder.settings import RecorderSettings
from slurmscope.recorder.slabs import Head, Heads, job_of, write_slabs

logger = logging.getLogger(__name__)


def write_moment(connection: sqlite3.Connection, at_seconds: float, ids: array[int], values: array[float]) -> None:
    connection.execute(
        "INSERT INTO journal (at, series, numbers) VALUES (?, ?, ?)", (at_seconds, ids.tobytes(), values.tobytes())
    )


def write_heads(connection: sqlite3.Connection, heads: Iterable[Head]) -> None:
    """Write which series the numbers in the journal stand for."""
    rows = ((head.id, head.metric, head.job_id, json.dumps(dict(head.labels))) for head in heads)
    connection.executemany("INSERT INTO heads (id, metric, job_id, labels) VALUES (?, ?, ?, ?)", rows)


def clear_journal(connection: sqlite3.Connection, idle: Iterable[Head]) -> None:
    """Drop the journal, which is packed now, and series that are gone."""
    connection.execute("DELETE FROM journal")
    connection.executemany("DELETE FROM heads WHERE id = ?", ((head.id,) for head in idle))


def read_all_heads(connection: sqlite3.Connection) -> Heads:
    """Return all series with the samples that are not packed yet; a damaged row is a ValueError."""
    return _fill(connection, connection.execute("SELECT id, metric, job_id, labels FROM heads"))


def read_heads(connection: sqlite3.Connection, metric: str, job_ids: Iterable[int]) -> Heads:
    query = "SELECT id, metric, job_id, labels FROM heads WHERE metric = ? AND job_id = ?"
    return _fill(connection, (row for job_id in job_ids for row in connection.execute(query, (metric, job_id))))


def _fill(connection: sqlite3.Connection, rows: Iterable[tuple[int, str, int, str]]) -> Heads:
    heads = Heads()
    for number, metric, job_id, labels in rows:
        heads.add(Head(number, metric, job_id, json.loads(labels)))
    if len(heads):
        for at, series, numbers in connection.execute("SELECT at, series, numbers FROM journal ORDER BY id"):
            heads.feed(at, array("q", series), array("d", numbers))
    return heads


DURABLE_SECONDS = 5.0
"""The first samples after this time flush all earlier ones to disk, not only to the page cache."""
PERIOD_SECONDS = 3600.0
"""How much time is packed at once."""
SAMPLES_LIMIT = 5_000_000
"""Maximum number of samples in memory, at 16 bytes each; beyond it they are packed early."""
CLOCK_STEP_SECONDS = 60.0
"""A sample that is older than the newest one by more means that the clock was set back."""
_FUTURE_SECONDS = 86400.0
_MAX_STEP_SECONDS = 86400.0
_VACUUM_PAGES = 10_000
_CUTS_LIMIT = 20


class RecorderFile:
    """Own the file of the recorder. Not thread-safe. Every failure is an ArchiveError."""

    def __init__(self, settings: RecorderSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._file = settings.file
        self._clock = clock
        self._lock = lock(settings.file)
        try:
            with self._raising_archive_errors():
                self._connection, self.heads = self._open()
        except BaseException:
            os.close(self._lock)
            raise
        self._began_at = min((head.times[0] for head in self.heads if head.times), default=inf)
        self._newest_at = max((head.last_at for head in self.heads), default=-inf)
        self._settled = clock()
        self._next_id = max((head.id for head in self.heads), default=0) + 1
        self._new: list[Head] = []

    def prepare(self, at_seconds: float) -> None:
        """Prepare for new samples: pack those of a period that is over."""
        with self._raising_archive_errors():
            self._repairing(lambda: self._prepare(at_seconds))

    def begin(self, metric: str, labels: Mapping[str, str]) -> Head:
        """Add a series; it is written to the file with its first sample."""
        head = Head(self._next_id, metric, job_of(labels), labels)
        self._next_id += 1
        self._new.append(head)
        self.heads.add(head)
        return head

    def write(self, at_seconds: float, ids: array[int], values: array[float]) -> int:
        """Append samples to the journal, then to memory; return how many came too late."""
        with self._raising_archive_errors():
            self._repairing(lambda: self._write(at_seconds, ids, values))
            self._new.clear()
            self._began_at, self._newest_at = min(self._began_at, at_seconds), max(self._newest_at, at_seconds)
            late = self.heads.feed(at_seconds, ids, values)
            if self._clock() - self._settled >= DURABLE_SECONDS:
                self._settle()
        return late

    def settle(self) -> None:
        with self._raising_archive_errors():
            self._settle()

    def close(self) -> None:
        try:
            with self._raising_archive_errors():
                self._pack(self.heads.idle())
        finally:
            self._connection.close()
            os.close(self._lock)

    def _open(self) -> tuple[sqlite3.Connection, Heads]:
        try:
            return self._load()
        except (sqlite3.DatabaseError, ValueError) as error:
            if isinstance(error, sqlite3.Error) and not is_damage(error):
                raise
            self._move_aside(error)
        return self._load()

    def _load(self) -> tuple[sqlite3.Connection, Heads]:
        connection = open_writer(self._file)
        try:
            return connection, read_all_heads(connection)
        except BaseException:
            connection.close()
            raise

    def _repairing(self, work: Callable[[], None]) -> None:
        """Do some work, and do it again in a new file when the old one is damaged."""
        try:
            work()
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            self._start_new_file(error)
            work()

    def _start_new_file(self, error: sqlite3.Error) -> None:
        """Save what is in memory into a new file."""
        self._connection.close()
        self._move_aside(error)
        self._connection = open_writer(self._file)
        self._pack(())
        self._new = list(self.heads)

    def _move_aside(self, error: Exception) -> None:
        aside = move_aside(self._file)
        logger.warning(
            "the recorder file is damaged; it was renamed and a new one started",
            extra=fields(file=str(self._file), moved_to=str(aside), error=str(error)),
        )

    def _prepare(self, at_seconds: float) -> None:
        if at_seconds < self._newest_at - CLOCK_STEP_SECONDS:
            self._pack(self.heads.idle())
            self.heads.reset_times()
        elif at_seconds - self._began_at >= PERIOD_SECONDS or self.heads.samples >= SAMPLES_LIMIT:
            now = self._began_at
            self._pack(self.heads.idle())
            self._drop_old(now)

    def _write(self, at_seconds: float, ids: array[int], values: array[float]) -> None:
        with writing(self._connection):
            write_heads(self._connection, self._new)
            write_moment(self._connection, at_seconds, ids, values)

    def _pack(self, idle: Sequence[Head]) -> None:
        """Move the journal into slabs, in one transaction, and then free the memory."""
        jobs: dict[int, list[tuple[str, list[Head]]]] = {}
        for metric, job_id, heads in self.heads.groups():
            jobs.setdefault(job_id, []).append((metric, heads))
        with writing(self._connection):
            for job_id, metrics in jobs.items():
                write_slabs(self._connection, self._newest_at, job_id, metrics)
            clear_journal(self._connection, idle)
        self.heads.let_go(idle)
        self._new = [head for head in self._new if self.heads.has(head)]
        self._began_at, self._newest_at = inf, -inf

    def _drop_old(self, now: float) -> None:
        """Delete samples beyond the retention or the size limit, and samples from the future (a wrong clock)."""
        # A clock that jumped ahead would make everything old: an hour deletes at most a day.
        oldest = self._connection.execute("SELECT min(period) FROM slabs").fetchone()[0]
        limit = now - self._settings.retention
        before = limit if oldest is None else min(limit, oldest + _MAX_STEP_SECONDS)
        self._drop("period < ? OR period > ?", before, now + _FUTURE_SECONDS)
        for _ in range(_CUTS_LIMIT):
            if used_bytes(self._connection) <= self._settings.max_size:
                break
            oldest = self._connection.execute("SELECT min(period) FROM slabs").fetchone()[0]
            if oldest is None:
                break
            self._drop("period <= ?", oldest + (now - oldest) / 10)
        self._connection.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()

    def _drop(self, condition: str, *bounds: float) -> None:
        with writing(self._connection):
            for table in ("slabs", "times"):
                self._connection.execute(f"DELETE FROM {table} WHERE {condition}", bounds)  # noqa: S608 - constants only

    def _settle(self) -> None:
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        self._settled = self._clock()

    @contextmanager
    def _raising_archive_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise ArchiveError(f"cannot write samples to {escape(str(self._file))}: {error}") from error
