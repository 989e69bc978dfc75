# SPDX-License-Identifier: Apache-2.0
"""Keep reports and curves of each week in partitions of their own, which retention drops instead of deleting rows.

Tables of PostgreSQL and MariaDB are partitioned by the number of the run, which grows: in each week the numbers begin
at the week times 2^32. Rows without a partition of their week are in ``rest``. SQLite has no partitions.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import ColumnElement, Connection, Table, and_, func, not_, select, text

from slurmscope.archive.tables import CURVES, JOBS, REPORTS
from slurmscope.core.errors import ArchiveError
from slurmscope.core.units import DAY_SECONDS, MIB


def ended_before(before_seconds: int) -> ColumnElement[bool]:
    """Choose jobs that ended earlier; that they were submitted earlier, too, is what the index is by."""
    end_seconds = func.coalesce(JOBS.c.end_seconds, JOBS.c.submit_seconds)
    return and_(JOBS.c.submit_seconds < before_seconds, end_seconds < before_seconds, JOBS.c.is_unfinished.is_(False))


WEEK_SECONDS = 7 * DAY_SECONDS
RUNS_A_WEEK = 2**32
WEEKS_AHEAD = 4
LARGE_WEEK_JOBS = 10_000
LARGE_REST_BYTES = 512 * MIB
"""How much MariaDB may copy to make a partition while writers wait; it takes some seconds."""
LATE_WEEKS = 4
"""For how long rows of large weeks are left to be dropped with their partition."""
PATIENCE_SECONDS = 2
"""How long readers and writers of a table may have to wait while a partition is made or dropped."""
LOCK_NUMBER = 0x70617274
"""Advisory lock of PostgreSQL."""
PARTITIONED = (REPORTS, CURVES)

_PREFIX = "w"


def week_of(seconds: int) -> int:
    """Return the number of a week, counted from 1970."""
    return seconds // WEEK_SECONDS


def read_weeks(connection: Connection, table: Table) -> Mapping[int, str]:
    """Return the partitions of a table by week; none where it has no partitions."""
    if connection.dialect.name == "sqlite":
        return {}
    names = connection.scalars(text(_LISTS[connection.dialect.name]), {"table": table.name})
    weeks = {name.rpartition("_")[2].removeprefix(_PREFIX): name for name in names if name}
    return {int(week): name for week, name in weeks.items() if week.isdecimal()}


def prepare_weeks(connection: Connection, now_seconds: int) -> None:
    """Make the partitions of this week and the next ones, and let the numbers of new runs begin in this week.

    Raise ``ArchiveError`` if MariaDB would have to copy much for that, and say how to do so.
    """
    if connection.dialect.name == "sqlite":
        return
    this_week = week_of(now_seconds)
    _be_patient(connection)
    for table in PARTITIONED:
        newest = max(read_weeks(connection, table), default=0)
        for week in range(max(this_week, newest + 1), this_week + WEEKS_AHEAD):
            _create(connection, table, week, is_next=week == newest + 1)
            newest = week
    _advance(connection, this_week * RUNS_A_WEEK)


def drop_week(connection: Connection, table: Table, before_seconds: int) -> int | None:
    """Drop the partition of one week all of whose jobs ended before a time; return their number, None if there is none.

    One in a transaction: it keeps the table locked, and shortens the time limit of what follows.
    """
    for week, name in sorted(read_weeks(connection, table).items()):
        if (week + 1) * WEEK_SECONDS > before_seconds:
            break
        needed = select(JOBS.c.run_id).where(of_week(JOBS, week))
        if table is CURVES:
            needed = needed.where(not_(ended_before(before_seconds)))
        if connection.scalar(needed.limit(1)) is None:
            jobs: int = connection.scalar(select(func.count()).select_from(JOBS).where(of_week(JOBS, week))) or 0
            _be_patient(connection)
            _drop(connection, table, name)
            return jobs
    return None


def find_dropped_weeks(connection: Connection, table: Table, before_seconds: int) -> frozenset[int]:
    """Return the large weeks whose partitions are dropped now, or soon after jobs of theirs have expired.

    Rows of small weeks are deleted on their day, and so are those of weeks in which a job began that still runs.
    """
    last = week_of(before_seconds)
    weeks = [week for week in read_weeks(connection, table) if last - LATE_WEEKS <= week <= last]
    return frozenset(week for week in weeks if _is_large(connection, week))


def _is_large(connection: Connection, week: int) -> bool:
    runs = select(JOBS.c.run_id).where(of_week(JOBS, week)).order_by(JOBS.c.run_id)
    return connection.scalar(runs.offset(LARGE_WEEK_JOBS).limit(1)) is not None


def of_week(table: Table, week: int) -> ColumnElement[bool]:
    return table.c.run_id.between(week * RUNS_A_WEEK, (week + 1) * RUNS_A_WEEK - 1)


def _be_patient(connection: Connection) -> None:
    """Give up soon: all that reads or writes the table waits."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = '{PATIENCE_SECONDS}s'"))
        connection.execute(text(f"SET LOCAL statement_timeout = '{PATIENCE_SECONDS}s'"))


def _alter(connection: Connection, table: Table, change: str) -> None:
    patience = f"lock_wait_timeout = {PATIENCE_SECONDS}"
    connection.execute(text(f"SET STATEMENT {patience} FOR ALTER TABLE {table.name} {change}"))


def _create(connection: Connection, table: Table, week: int, *, is_next: bool) -> None:
    begin, end, name = week * RUNS_A_WEEK, (week + 1) * RUNS_A_WEEK, f"{_PREFIX}{week}"
    if connection.dialect.name == "postgresql":
        bounds = f"FOR VALUES FROM ({begin}) TO ({end})"
        connection.execute(text(f"CREATE TABLE {table.name}_{name} PARTITION OF {table.name} {bounds}"))
        return
    # Rows of earlier weeks that have no partition get one of their own.
    before = "" if is_next else f"PARTITION before{week} VALUES LESS THAN ({begin}), "
    new = f"{before}PARTITION {name} VALUES LESS THAN ({end}), PARTITION rest VALUES LESS THAN MAXVALUE"
    change = f"REORGANIZE PARTITION rest INTO ({new})"
    rest_bytes = connection.scalar(text(_REST_BYTES), {"table": table.name}) or 0
    if rest_bytes > LARGE_REST_BYTES:
        raise ArchiveError(
            f"{rest_bytes // MIB} MiB of {table.name} are not in partitions of a week, and writers would wait while "
            f"MariaDB copies them: stop all portals, and run in MariaDB: ALTER TABLE {table.name} {change}"
        )
    _alter(connection, table, change)


def _drop(connection: Connection, table: Table, name: str) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"DROP TABLE {name}"))
    else:
        _alter(connection, table, f"DROP PARTITION {name}")


def _advance(connection: Connection, first_run: int) -> None:
    """Let the next number be at least this one; numbers never go back."""
    if connection.dialect.name == "postgresql":
        # Otherwise another process could advance the numbers between the two statements, and this one set them back.
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": LOCK_NUMBER})
    last = connection.scalar(text(_NUMBERS[connection.dialect.name]))
    if int(last or 0) >= first_run:
        return
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT setval('slurmscope_jobs_run_id_seq', {first_run})"))
    else:
        _alter(connection, JOBS, f"AUTO_INCREMENT = {first_run}")


_NUMBERS = {
    "postgresql": "SELECT last_value FROM slurmscope_jobs_run_id_seq",
    "mariadb": (
        "SELECT auto_increment FROM information_schema.tables "
        "WHERE table_schema = DATABASE() AND table_name = 'slurmscope_jobs'"
    ),
}
_LISTS = {
    "postgresql": (
        "SELECT child.relname FROM pg_inherits JOIN pg_class child ON child.oid = pg_inherits.inhrelid "
        "WHERE pg_inherits.inhparent = CAST(:table AS regclass)"
    ),
    "mariadb": (
        "SELECT partition_name FROM information_schema.partitions "
        "WHERE table_schema = DATABASE() AND table_name = :table"
    ),
}
_REST_BYTES = (
    "SELECT data_length FROM information_schema.partitions "
    "WHERE table_schema = DATABASE() AND table_name = :table AND partition_name = 'rest'"
)
