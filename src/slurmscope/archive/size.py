# SPDX-License-Identifier: Apache-2.0
"""Measure how large the archive is and how fast it grows, and foresee when its disk is full."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, func, select, text

from slurmscope.archive.engine import Database
from slurmscope.archive.tables import JOBS
from slurmscope.core.units import DAY_SECONDS

RECENT_DAYS = 30
_SIZES = {
    "mariadb": "SELECT sum(data_length + index_length) FROM information_schema.tables WHERE table_schema = database()",
    "postgresql": "SELECT pg_database_size(current_database())",
}
"""Of the whole database: an archive should have one of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSize:
    """The room that the archive takes; of a database server, the free space is not known from here."""

    used_bytes: int
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How many ended jobs there are, and how many ended within the last ``days``, which are at most 30."""

    jobs: int
    recent_jobs: int
    days: float

    @property
    def jobs_per_day(self) -> float | None:
        """Return the rate; None for an archive that is younger than a day."""
        return self.recent_jobs / self.days if self.days >= 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What the archive will take if as many jobs go on to end; None for what is unknown."""

    bytes_per_job: float | None = None
    bytes_per_day: float | None = None
    full_in_days: float | None = None
    most_bytes: float | None = None
    """The size at which deletions balance additions, where jobs are kept for a limited time."""


def measure_size(database: Database) -> ArchiveSize:
    file = database.file
    if file is not None:
        with database.reading() as connection:
            del connection  # raises an ArchiveError where there is no archive
        return measure_file(file)
    with database.reading() as connection:
        return ArchiveSize(used_bytes=int(connection.scalar(text(_SIZES[database.dialect])) or 0))


def measure_file(file: Path) -> ArchiveSize:
    """Return the size of a file of SQLite with its log, and what is free beside it."""
    parts = (file, file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm"))
    used_bytes = sum(part.stat().st_size for part in parts if part.exists())
    found = os.statvfs(file.parent)
    return ArchiveSize(used_bytes=used_bytes, free_bytes=found.f_bavail * found.f_frsize)


def count_growth(connection: Connection, now_seconds: float) -> Growth:
    """Count all ended jobs, and the recent ones."""
    since = int(now_seconds - RECENT_DAYS * DAY_SECONDS)
    ended = JOBS.c.end_seconds
    jobs, first = connection.execute(select(func.count(), func.min(ended)).where(ended.is_not(None))).one()
    recent = connection.scalar(select(func.count()).select_from(JOBS).where(ended >= since, ended <= int(now_seconds)))
    days = min(RECENT_DAYS, (now_seconds - first) / DAY_SECONDS) if jobs else 0.0
    return Growth(jobs=int(jobs), recent_jobs=int(recent or 0), days=max(0.0, days))


def forecast(size: ArchiveSize, growth: Growth, keep_seconds: float) -> Forecast:
    """Foresee the size; ``keep_seconds`` is how long jobs are kept, 0 if for ever."""
    if not growth.jobs:
        return Forecast()
    bytes_per_job = size.used_bytes / growth.jobs
    if growth.jobs_per_day is None:
        return Forecast(bytes_per_job=bytes_per_job)
    per_day = bytes_per_job * growth.jobs_per_day
    most_bytes = per_day * keep_seconds / DAY_SECONDS if keep_seconds else None
    room = size.free_bytes
    is_bounded = most_bytes is not None and room is not None and most_bytes <= size.used_bytes + room
    full_in_days = room / per_day if room is not None and per_day and not is_bounded else None
    return Forecast(
        bytes_per_job=bytes_per_job, bytes_per_day=per_day, full_in_days=full_in_days, most_bytes=most_bytes
    )
