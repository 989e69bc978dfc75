# SPDX-License-Identifier: Apache-2.0
"""Measure how long ``slurmscope archive migrate`` takes for the archive of the previous release.

``python -m bench migration --database postgresql --jobs 1000000`` takes another database and more jobs.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, func, select, update

from bench.archive import DATABASES, open_private_archive
from bench.archive_rows import fill, insert_rows
from slurmscope.archive.columns import METADATA
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.archive.sum_tables import TOTALS
from slurmscope.archive.tables import CURVES, JOBS, REPORTS, SCHEMA
from tests.fakes import archive_version_2

JOBS_COUNT = 200_000
BODY_BYTES = 2_000
"""Of a report, and of its curves."""
BLOCK_ROWS = 5_000
BEFORE = 2


def main(argv: Sequence[str] = ()) -> int:
    """Make an archive of the previous release, migrate it by the command, and print how long each step takes."""
    parser = argparse.ArgumentParser(prog="python -m bench migration")
    parser.add_argument("--database", choices=DATABASES, default="sqlite")
    parser.add_argument("--jobs", type=int, default=JOBS_COUNT)
    given = parser.parse_args(argv)
    with open_private_archive(given.database) as archive:
        fill(archive, given.jobs)
        _make_older(archive)
        archive.close()
        took, jobs = _run_command(archive), given.jobs
        print(f"migration of {jobs} jobs in {given.database}: {took:.1f} s, {jobs / took:.0f} jobs a second")
        return 0 if _counts(archive) == [jobs] * 3 else 1


def _make_older(archive: SqlArchive) -> None:
    """Remove the tables and indexes that the previous release did not have."""
    before = archive_version_2.METADATA.tables
    with archive.database.writing() as connection:
        for table in METADATA.sorted_tables:
            if table in (TOTALS, REPORTS, CURVES):
                table.drop(connection)
            elif table.name in before:
                known = {index.name for index in before[table.name].indexes}
                for index in table.indexes:
                    if index.name not in known:
                        index.drop(connection)
        connection.execute(update(SCHEMA).values(version=BEFORE))
        for table in (archive_version_2.REPORTS, archive_version_2.CURVES):
            table.create(connection)
        _write_bodies(connection)


def _write_bodies(connection: Connection) -> None:
    dice = random.Random(1)
    rows = connection.execute(select(JOBS.c.run_id, JOBS.c.submit_seconds)).all()
    for some in _blocks(rows):
        made = [{**row._asdict(), "version": 1, "body": dice.randbytes(BODY_BYTES)} for row in some]
        for table in (archive_version_2.REPORTS, archive_version_2.CURVES):
            insert_rows(connection, table, made)


def _blocks(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for first in range(0, len(rows), BLOCK_ROWS):
        yield rows[first : first + BLOCK_ROWS]


def _run_command(archive: SqlArchive) -> float:
    """Run the command and print its lines with the seconds after which they came; return how long it took."""
    settings = archive.database.settings
    password = ("--archive.password-file", str(settings.password_file)) if settings.password_file else ()
    argv = [sys.executable, "-m", "slurmscope", "archive", "migrate", "--archive.url", settings.url, *password]
    subprocess.run([*argv, "--dry-run"], check=True)
    began = time.perf_counter()
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(f"{time.perf_counter() - began:8.1f} s  {line[:100].rstrip()}", flush=True)
    if process.returncode != 0:
        raise RuntimeError(f"the migration ended with {process.returncode}")
    return time.perf_counter() - began


def _counts(archive: SqlArchive) -> list[int]:
    with archive.database.reading() as connection:
        return [connection.scalar(select(func.count()).select_from(table)) or 0 for table in (JOBS, REPORTS, CURVES)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
