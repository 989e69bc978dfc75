# SPDX-License-Identifier: Apache-2.0
"""Ended jobs of a period and a cluster are read, each once, however many there are."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select, update

from slurmscope.archive.stored_reports import RECORDS_AT_ONCE, read_ended_records
from slurmscope.archive.tables import JOBS, REPORTS
from tests.fakes.archive_file import open_at
from tests.fakes.reports import START, make_record, make_report


def test_jobs_that_ran_and_ended_in_the_period_are_read_once(tmp_path: Path) -> None:
    many = range(1, 2 * RECORDS_AT_ONCE + 2)
    others = (
        make_record(9001, end_seconds=START + 100),
        make_record(9002, end_seconds=START - 1, start_seconds=START - 50),
        make_record(9003, end_seconds=None, state="RUNNING"),
        make_record(9004, start_seconds=None, end_seconds=START, state="CANCELLED"),
        make_record(9005, cluster="other", end_seconds=START),
    )
    with closing(open_at(tmp_path / "archive.db")) as archive:
        archive.save([make_report(make_record(number, end_seconds=START + number % 100)) for number in many])
        archive.save([make_report(record) for record in others])
        found = [each.job_id for each in read_ended_records(archive.database, "lab", START, START + 100)]
        empty = list(read_ended_records(archive.database, "lab", START + 101, START + 200))

    assert list(many) == sorted(found)
    assert [] == empty


def test_damaged_report_does_not_end_the_export(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with closing(open_at(tmp_path / "archive.db")) as archive:
        archive.save([make_report(make_record(number, end_seconds=START)) for number in (1, 2, 3)])
        damaged = REPORTS.c.run_id.in_(select(JOBS.c.run_id).where(JOBS.c.job_id == 2))
        archive.database.write(lambda connection: connection.execute(update(REPORTS).where(damaged).values(body=b"x")))
        found = [each.job_id for each in read_ended_records(archive.database, "lab", START, START + 100)]

    assert [1, 3] == sorted(found)
    assert 1 == [record.message for record in caplog.records].count("a job is left out")
