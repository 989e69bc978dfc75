# SPDX-License-Identifier: Apache-2.0
"""After a week of outages, the archive is the same, row by row, as one whose time series server never failed.

Jobs start and end all the time, the server fails in most hours and in many ways, also silently, for one job it fails
until the end of the week, and the reporter is restarted now and then.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from slurmscope.archive.daily_sums import ADVICE_SUMS, DAILY, TOTALS, WAITS
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.archive.stored_reports import decode_report
from slurmscope.archive.tables import ADVICE, CURVES, FINDINGS, INCOMPLETE, JOB_NODES, JOBS, REPORTS
from slurmscope.core.errors import ServerRefused, ServerTimedOut
from slurmscope.http.client.request import HttpAnswer
from slurmscope.jobs.record import JobRecord
from tests.fakes.reports import START, make_record
from tests.unit.reporter.test_flaky_server import LOUD, NODES, Site, whole_answer, whole_stores

HOUR = 3600
GOOD_HOURS, FAILING_HOURS, HOURS = 24, 168, 216
"""Jobs are measured on all nodes before the server begins to fail; else nothing shows that these have agents."""
BAD_JOB = 120
PER_RUN = (JOBS, FINDINGS, JOB_NODES, ADVICE, INCOMPLETE)
SUMS = (DAILY, TOTALS, WAITS, ADVICE_SUMS)


def _make_jobs(seed: int) -> list[JobRecord]:
    """Make jobs of five names, each of which runs again and again with the same request or a smaller one."""
    chance = random.Random(f"jobs {seed}")
    jobs = []
    for number in range(100, 250):
        start = START + chance.randrange(FAILING_HOURS * HOUR)
        nodes = tuple(sorted(chance.sample(NODES, chance.randint(1, 3))))
        jobs.append(
            make_record(
                number, name=f"model{number % 5}", user=f"user{number % 2}", nodes=nodes, node_count=len(nodes),
                cpus=chance.choice((4, 8, 16)) * len(nodes), cpu_seconds=None, submit_seconds=start - 60,
                start_seconds=start, end_seconds=start + chance.choice((300, 900, 3600, 40_000)),
            )
        )  # fmt: skip
    return jobs


def _fail(site: Site, chance: random.Random) -> None:
    """Choose how the server fails from now on."""
    failure = chance.choice(LOUD)
    lost = {*chance.sample(NODES, chance.randint(1, 3))}
    answers = random.Random(chance.random())

    def fail(error: Exception) -> Callable[[bytes], HttpAnswer]:
        def answer(_: bytes) -> HttpAnswer:
            raise error

        return answer

    site.client.stores, site.client.answer = chance.choice(
        [
            (whole_stores, whole_answer),
            (whole_stores, fail(ServerRefused("it is unreachable: Connection refused"))),
            (whole_stores, fail(ServerTimedOut("timed out before its answer was complete"))),
            (whole_stores, failure),
            (whole_stores, lambda body: failure(body) if answers.random() < 0.1 else whole_answer(body)),
            (set, whole_answer),
            (lambda: {*NODES} - lost, whole_answer),
        ]
    )


def _at(job: JobRecord, now: float) -> JobRecord:
    has_ended = (job.end_seconds or 0) <= now
    return job if has_ended else replace(job, state="RUNNING", end_seconds=None)


def run_week(folder: Path, seed: int, *, is_failing: bool) -> SqlArchive:
    """Return the archive that a reporter made in a week of failures, or without any, and two days more."""
    folder.mkdir()
    jobs, chance = _make_jobs(seed), random.Random(f"failures {seed}")
    site = Site(folder, seed)
    site.client.jobs = {job.job_id: job for job in jobs}
    phase_ends = GOOD_HOURS
    for hour in range(HOURS):
        site.now = float(START + hour * HOUR + 1800)
        site.accounting.records[:] = [_at(job, site.now) for job in jobs if (job.start_seconds or 0) < site.now]
        if is_failing and hour >= phase_ends:
            phase_ends = hour + chance.choice((1, 3, 12, 30))
            _fail(site, chance)
            site.client.bad_job = BAD_JOB
        if is_failing and hour >= FAILING_HOURS:
            site.recover()
            site.client.bad_job = 0
        if chance.random() < 0.1:
            site.restart()
        site.reporter.work()
    return site.archive


def read_rows(archive: SqlArchive) -> dict[str, list[str]]:
    """Return all rows of jobs and sums; runs by job instead of by their number, reports without the time of making."""
    with archive.database.reading() as connection:
        names = dict(connection.execute(select(JOBS.c.run_id, JOBS.c.job_id)).all())
        found = {table.name: sorted(map(repr, _rows(connection, table, names))) for table in (*PER_RUN, *SUMS)}
        joined = select(REPORTS.c.body, CURVES.c.body).join(CURVES, CURVES.c.run_id == REPORTS.c.run_id)
        reports = [decode_report(body, curves) for body, curves in connection.execute(joined)]
    found["reports"] = sorted(repr(replace(report, made_seconds=0)) for report in reports)
    return found


def _rows(connection: Any, table: Any, names: dict[int, int]) -> Iterator[dict[str, Any]]:
    for row in connection.execute(select(table)):
        values = row._asdict()
        yield {name: names.get(value, value) if name.endswith("run_id") else value for name, value in values.items()}


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", [1])
def test_archive_is_the_same_as_if_the_server_had_never_failed(tmp_path: Path, seed: int) -> None:
    expected, found = (run_week(tmp_path / str(fails), seed, is_failing=fails) for fails in (False, True))
    rows, same = read_rows(found), read_rows(expected)
    expected.close()
    found.close()
    assert 150 == len(same["reports"])
    assert [] == rows["slurmscope_incomplete"]
    assert {name: len(each) for name, each in same.items()} == {name: len(each) for name, each in rows.items()}
    for name, each in same.items():
        assert each == rows[name], name
