# SPDX-License-Identifier: Apache-2.0
"""An archive in MariaDB or PostgreSQL passes the same contract tests as one in a file, and outlives its server."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, delete, make_url, select, text

from lab.databases import PASSWORD, DatabaseServer, run_mariadb, run_postgresql
from slurmscope.archive import partitions
from slurmscope.archive.interface import GroupBy, JobFilter
from slurmscope.archive.partitions import WEEK_SECONDS, prepare_weeks, read_weeks
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.archive.stored_reports import prepare_reports, write_reports
from slurmscope.archive.tables import CURVES, METADATA, REPORTS, SCHEMA
from slurmscope.core.errors import ArchiveError, ArchiveTooLarge
from slurmscope.core.units import DAY_SECONDS
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.reports.sources import open_archive
from tests.contracts.archive import ArchiveContract
from tests.contracts.election import ElectionContract
from tests.contracts.partition import PartitionContract
from tests.contracts.schema_version import SchemaVersionContract
from tests.contracts.sums import SumContract, check_sums
from tests.fakes.reports import START, make_record, make_report, make_unmeasured_report
from tests.processes import until

# PyMySQL forgets to close a unix socket that nobody listens to.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

SERVERS = {"mariadb": run_mariadb, "postgresql": run_postgresql}
TIMEOUT_SECONDS = 20.0
FIRST_WEEK = 2900
"""Of 1970; in 2025."""
PATIENCE_SECONDS = 60.0


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    run: AbstractContextManager[DatabaseServer] = SERVERS[request.param]()
    with run as server:
        yield server


def settings_of(server: DatabaseServer, timeout: float = TIMEOUT_SECONDS) -> ArchiveSettings:
    return ArchiveSettings(url=server.url, password_file=server.password_file, timeout=timeout)


@pytest.fixture
def archive(server: DatabaseServer) -> Iterator[SqlArchive]:
    archive = open_archive(settings_of(server))
    with archive.database.writing() as connection:
        for table in METADATA.sorted_tables:
            if table is not SCHEMA:
                connection.execute(delete(table))
    yield archive
    archive.close()
    # What PyMySQL forgot is found here, not in the next test.
    gc.collect()


class TestServers(ArchiveContract, SumContract):
    """Run the contract tests on both servers."""


@pytest.mark.scaling
class TestElectionsAndPartitions(ElectionContract, SchemaVersionContract, PartitionContract):
    """Let several processes share an archive on both servers."""


@pytest.mark.parametrize("is_old", [True, False])
def test_job_that_is_saved_while_its_day_is_deleted_stays_in_all_sums(archive: SqlArchive, is_old: bool) -> None:
    archive.save([make_report(make_record(job_id, user=user)) for job_id, user in ((1, "ada"), (2, "bob"))])
    before = START + 7 * DAY_SECONDS
    times = {"end_seconds": START + 60 if is_old else before}
    late = prepare_reports([make_report(make_record(3, user="eve", **times))])

    with archive.database.writing() as connection:
        write_reports(connection, late)
        deletion = threading.Thread(target=archive.delete_jobs, args=(before,))
        deletion.start()
        deletion.join(1.0)
    deletion.join(PATIENCE_SECONDS)

    check_sums(archive)
    archive.delete_jobs(before)
    check_sums(archive)
    assert ([] if is_old else [3]) == numbers(archive)


def numbers(archive: SqlArchive) -> list[int]:
    return sorted(row.job_id for row in archive.list_jobs(EVERYTHING, JobFilter(), limit=1000).rows)


def test_killed_server_costs_an_error_and_nothing_that_was_saved(server: DatabaseServer, archive: SqlArchive) -> None:
    archive.save([make_report(make_record(1))])

    server.kill()
    with pytest.raises(ArchiveError) as while_reading:
        archive.list_jobs(EVERYTHING, JobFilter())
    with pytest.raises(ArchiveError):
        archive.save([make_report(make_record(2))])
    server.start()
    archive.save([make_report(make_record(2))])

    assert [1, 2] == numbers(archive)
    assert PASSWORD not in str(while_reading.value)
    assert "\n" not in str(while_reading.value)


def test_server_killed_while_saving_keeps_whole_batches_only(server: DatabaseServer, archive: SqlArchive) -> None:
    saved: list[int] = []
    stopped = threading.Event()

    def save_for_ever() -> None:
        for batch in range(10_000):
            reports = [make_unmeasured_report(make_record(batch * 20 + n)) for n in range(20)]
            try:
                archive.save(reports)
            except ArchiveError:
                break
            saved.append(batch)
        stopped.set()

    thread = threading.Thread(target=save_for_ever)
    thread.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(saved) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    server.kill()
    assert stopped.wait(PATIENCE_SECONDS)
    thread.join()
    server.start()

    (total,) = archive.total(EVERYTHING, JobFilter(), GroupBy.USER)
    # The batch during which the server died may have been kept, whole, without our having heard of it.
    assert total.jobs in {20 * len(saved), 20 * (len(saved) + 1)}
    found = archive.list_jobs(EVERYTHING, JobFilter(), limit=1000).rows
    assert found
    for row in found:
        assert 1 == len(archive.find(EVERYTHING, row.job_id))


def answers(archive: SqlArchive) -> bool:
    """Return whether the archive finds its job; a busy machine may need longer than the timeout of the test."""
    try:
        return len(archive.find(EVERYTHING, 4711)) == 1
    except ArchiveError:
        return False


def test_frozen_server_costs_an_error_in_time(server: DatabaseServer, archive: SqlArchive) -> None:
    archive.save([make_report()])
    hurried = open_archive(settings_of(server, timeout=2.0))
    until(lambda: answers(hurried))

    started = time.monotonic()
    with server.frozen(), pytest.raises(ArchiveError):
        hurried.find(EVERYTHING, 4711)
    took = time.monotonic() - started

    # One limit for the test of the old connection, one for a new one: far from the hours of TCP.
    assert took < PATIENCE_SECONDS
    until(lambda: answers(hurried))
    hurried.close()


def test_old_weeks_of_curves_and_reports_are_dropped_as_partitions(
    server: DatabaseServer, archive: SqlArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "LARGE_WEEK_JOBS", 0)
    with archive.database.writing() as connection:
        METADATA.drop_all(connection)
    new = open_archive(settings_of(server))
    for week in range(3):
        end = (FIRST_WEEK + week) * WEEK_SECONDS + 3600
        with new.database.writing() as connection:
            prepare_weeks(connection, end)
        times = {"submit_seconds": end - 120, "start_seconds": end - 60, "end_seconds": end}
        new.save([make_report(make_record(10 * week + number, **times)) for number in (1, 2)])
    second = (FIRST_WEEK + 1) * WEEK_SECONDS

    # The day after the second week has begun, and at its end.
    assert [2, 0] == [new.delete_curves(second + 86400) for _ in range(2)]
    assert [(), make_report().charts] == [new.find(EVERYTHING, job)[0].charts for job in (1, 11)]
    assert [4, 0] == [new.delete_jobs(second + WEEK_SECONDS) for _ in range(2)]
    with new.database.reading() as connection:
        weeks = [sorted(read_weeks(connection, table)) for table in (CURVES, REPORTS)]
        left = [connection.scalars(select(table.c.run_id)).all() for table in (CURVES, REPORTS)]

    assert [[FIRST_WEEK + week for week in range(2, 6)]] * 2 == weeks
    assert [[2**32 * (FIRST_WEEK + 2) + number for number in (0, 1)]] * 2 == [
        [run_id - (new.database.dialect == "postgresql") for run_id in sorted(runs)] for runs in left
    ]
    assert [21, 22] == numbers(new)
    new.close()


def test_long_question_is_broken_off(server: DatabaseServer) -> None:
    hurried = open_archive(settings_of(server, timeout=1.0))
    sleep = "SELECT SLEEP(50)" if hurried.database.dialect == "mariadb" else "SELECT pg_sleep(50)"

    started = time.monotonic()
    try:
        with hurried.database.reading() as connection:
            ending = connection.scalar(text(sleep))
    except ArchiveError:
        ending = 1

    # MariaDB ends SLEEP with a 1 where it would otherwise give a 0.
    assert 1 == ending
    assert time.monotonic() - started < 40
    hurried.close()


@pytest.mark.parametrize("numbers_kept", [10_000, 500_000])
def test_row_over_the_limit_of_the_server_is_told_apart_from_a_server_that_is_away(
    server: DatabaseServer, archive: SqlArchive, numbers_kept: int
) -> None:
    large = noisy_report(numbers_kept)
    archive.save([make_report()])
    if archive.database.dialect != "mariadb":  # PostgreSQL takes a gigabyte
        archive.save([large])
        return
    # Some 8 bytes a number. MariaDB answers to a row that is a little too large, and hangs up on one far over it.
    set_packet_limit(server, 65_536)
    limited = open_archive(settings_of(server))
    with pytest.raises(ArchiveTooLarge):
        limited.save([large])
    limited.save([replace(large, charts=())])
    server.kill()
    with pytest.raises(ArchiveError) as told:
        limited.save([large])
    limited.close()
    server.start()

    assert not isinstance(told.value, ArchiveTooLarge)
    archive.save([large])
    assert (large,) == archive.find(EVERYTHING, 4711)


def noisy_report(numbers_kept: int) -> JobReport:
    """Make a report whose curve cannot be packed well."""
    report, noise = make_report(), random.Random(1)
    line = replace(report.charts[0].lines[0], values=tuple(noise.random() for _ in range(numbers_kept)))
    times = tuple(1_790_000_000.0 + 30 * number for number in range(numbers_kept))
    return replace(report, charts=(replace(report.charts[0], times=times, lines=(line,)),))


def set_packet_limit(server: DatabaseServer, limit_bytes: int) -> None:
    """Take smaller packets from new connections on, until the server is started again."""
    root = create_engine(make_url(server.url).set(drivername="mariadb+pymysql", username="root", database="mysql"))
    with root.connect() as connection:
        connection.execute(text(f"SET GLOBAL max_allowed_packet = {limit_bytes}"))
    root.dispose()


def test_server_that_is_away_keeps_nobody_from_starting(server: DatabaseServer, archive: SqlArchive) -> None:
    server.kill()
    early = open_archive(settings_of(server))
    with pytest.raises(ArchiveError):
        early.find(EVERYTHING, 1)
    server.start()

    early.save([make_report()])

    assert [4711] == numbers(early)
    early.close()


def test_wrong_password_is_told_without_it(server: DatabaseServer, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("a wrong guess\n", encoding="utf-8")
    shut_out = open_archive(replace(settings_of(server), password_file=tmp_path / "password"))

    with pytest.raises(ArchiveError, match="slurmscope") as told:
        shut_out.find(EVERYTHING, 1)

    assert "a wrong guess" not in str(told.value)
    (tmp_path / "password").write_text(PASSWORD, encoding="utf-8")
    assert () == shut_out.find(EVERYTHING, 999_999)
    shut_out.close()
