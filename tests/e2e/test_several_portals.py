# SPDX-License-Identifier: Apache-2.0
"""Two portals share an archive in PostgreSQL: one archives jobs; if it is killed, the other does so within a minute."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import ProgrammingError

from lab.databases import DatabaseServer, run_postgresql, run_standby
from slurmscope.archive.election import Election, find_elected
from slurmscope.archive.settings import ArchiveSettings, parse_archive_url
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.core.errors import ArchiveError
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.reports.sources import open_archive
from tests.fakes.forms import find_form
from tests.fakes.reports import make_record, make_report
from tests.processes import PATIENCE_SECONDS, Exporter, run_slurmscope, running, until, values

pytestmark = pytest.mark.scaling

ELECTED = "slurmscope_reporter_elected"
ROUNDS = "slurmscope_reporter_rounds_total"


@pytest.fixture
def server() -> Iterator[DatabaseServer]:
    with run_postgresql() as server:
        yield server


@pytest.fixture
def flags(server: DatabaseServer, tmp_path: Path) -> tuple[str, ...]:
    slurm = tmp_path / "slurm"
    run_slurmscope("simulate", "--output", str(slurm), "--jobs", "50", "--nodes", "8")
    return (
        *("--archive.url", server.url, "--archive.password-file", str(server.password_file)),
        *("--slurm.bin-path", str(slurm), "--portal.listen-address", "127.0.0.1:0"),
        *("--reporter.look-back", "10m", "--reporter.interval", "1s"),
    )


def read(portal: Exporter, metric: str) -> list[float]:
    page = httpx.get(f"{portal.addresses[0]}metrics", timeout=PATIENCE_SECONDS).text
    return [*values(page, metric).values()]


def test_killed_portal_is_replaced_and_forms_of_both_are_accepted(flags: tuple[str, ...]) -> None:
    with (
        running("portal", *flags, wait_for="msg=listening") as first,
        running("portal", *flags, "--no-reporter", wait_for="msg=listening") as serving,
    ):
        until(lambda: read(first, ELECTED) == [1])
        until(lambda: read(first, ROUNDS)[0] > 0)
        with running("portal", *flags, wait_for="msg=listening") as second:
            until(lambda: read(second, ELECTED) == [0])
            before = read(first, ROUNDS)[0]
            until(lambda: read(first, ROUNDS)[0] > before + 2)
            assert ([0], [0], []) == (read(second, ELECTED), read(second, ROUNDS), read(serving, ELECTED))
            doctor = run_slurmscope("doctor", "portal", *flags).stdout
            assert f"process {first.process.pid}, since" in doctor

            # A form of one portal is accepted by the others.
            form = find_form(httpx.get(f"{first.addresses[0]}jobs", timeout=PATIENCE_SECONDS).text, "/views")
            assert form is not None
            for portal in (second, serving):
                data = {**form.fields, "name": "mine"}
                answer = httpx.post(f"{portal.addresses[0]}views", data=data, timeout=PATIENCE_SECONDS)
                assert 303 == answer.status_code

            started = time.monotonic()
            first.process.kill()
            until(lambda: read(second, ELECTED) == [1])
            took = time.monotonic() - started
            until(lambda: read(second, ROUNDS)[0] > 0)

            assert took < 60
            assert 0 == second.end()


def test_standby_that_is_promoted_takes_over(server: DatabaseServer) -> None:
    with run_standby(server) as standby:
        hosts = "&".join(f"host={one.url.partition('host=')[2]}" for one in (standby, server))
        both = ArchiveSettings(
            url=parse_archive_url(f"postgresql://slurmscope@/postgres?{hosts}"),
            password_file=server.password_file,
            timeout=5.0,
        )
        with closing(open_archive(both)) as archive, closing(Election(archive.database, "failover")) as election:
            archive.save([make_report(make_record(1))])
            election.hold_lock()
            wait_for_copy(standby)
            server.kill()
            with pytest.raises(ArchiveError):
                archive.save([make_report(make_record(2))])
            run_on(standby, "SELECT pg_promote()")
            started = time.monotonic()
            until(lambda: can_save(archive))
            took = time.monotonic() - started
            with pytest.raises(ArchiveError):
                election.hold_lock()
            until(lambda: is_elected(election))

            assert took < 30
            assert [1, 2] == [report.record.job_id for job_id in (1, 2) for report in archive.find(EVERYTHING, job_id)]
            assert 2 == getattr(find_elected(archive.database, "failover"), "term", None)


def can_save(archive: SqlArchive) -> bool:
    try:
        archive.save([make_report(make_record(2))])
    except ArchiveError:
        return False
    return True


def is_elected(election: Election) -> bool:
    election.hold_lock()
    return election.elected.is_set()


def wait_for_copy(standby: DatabaseServer) -> None:
    """Wait until the standby has the first job and the first election."""
    until(lambda: run_on(standby, "SELECT count(*) FROM slurmscope_jobs WHERE job_id = 1 AND \"user\" = 'ada'") == 1)
    until(lambda: run_on(standby, "SELECT count(*) FROM slurmscope_checkpoints WHERE name LIKE '%failover'") == 1)


def run_on(server: DatabaseServer, statement: str) -> object:
    password = server.password_file.read_text().strip()
    engine = create_engine(make_url(server.url).set(drivername="postgresql+psycopg", password=password))
    try:
        with engine.connect() as connection:
            return connection.scalar(text(statement))
    except ProgrammingError:  # the table is not there yet
        return None
    finally:
        engine.dispose()
