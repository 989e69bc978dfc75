# SPDX-License-Identifier: Apache-2.0
"""Curves are thinned a few at a time, while others can write."""

from __future__ import annotations

from contextlib import closing
from itertools import count
from types import SimpleNamespace

import pytest

from slurmscope.archive import retention
from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.archive.stored_reports import THINNED, thin_curves
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.reports.sources import open_archive
from tests.fakes.reports import START, make_record, make_report

DAY = 86400
JOBS = 7


@pytest.fixture
def archive(archive: SqlArchive) -> SqlArchive:
    archive.save([make_report(make_record(job, submit_seconds=START + job // 2)) for job in range(1, JOBS + 1)])
    return archive


def _thinned(archive: SqlArchive) -> list[int]:
    found = {job: archive.find(EVERYTHING, job)[0] for job in range(1, JOBS + 1)}
    return [job for job, report in found.items() if THINNED in report.missing]


def test_others_write_while_curves_are_thinned(archive: SqlArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    # A writer that waited would never get its turn: the same thread thins and writes.
    other = open_archive(ArchiveSettings(url=archive.database.settings.url, timeout=5.0))

    def thin(body: bytes, points: int) -> bytes | None:
        Checkpoints(other.database).write_checkpoint("other", "written")
        return thin_curves(body, points)

    monkeypatch.setattr(retention, "thin_curves", thin)
    monkeypatch.setattr(retention, "CURVES_AT_ONCE", 3)
    with closing(other):
        assert [JOBS, 0] == [archive.thin_curves(START + DAY, 12) for _ in range(2)]
    assert list(range(1, JOBS + 1)) == _thinned(archive)


def test_thinning_that_takes_long_goes_on_in_the_next_call(
    archive: SqlArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By a clock that is read at the begin, after the step before all jobs, and after each job: 6 > 5 after the third.
    ticks = count(step=1.5)
    monkeypatch.setattr(retention, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))

    assert 3 == archive.thin_curves(START + DAY, 12)
    monkeypatch.undo()
    assert [1, 2, 3] == _thinned(archive)
    # A day later: first the rest of the pass, then one more, of which there is nothing.
    assert [JOBS - 3, 0] == [archive.thin_curves(START + 2 * DAY, 12) for _ in range(2)]
    assert list(range(1, JOBS + 1)) == _thinned(archive)


@pytest.mark.parametrize("error", [ValueError, ZeroDivisionError, IndexError])
def test_curves_that_cannot_be_thinned_cost_their_own_job_only(
    archive: SqlArchive, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    bodies = count()

    def thin(body: bytes, points: int) -> bytes | None:
        if next(bodies) == 1:
            raise error("odd")
        return thin_curves(body, points)

    monkeypatch.setattr(retention, "thin_curves", thin)

    assert [JOBS, 0] == [archive.thin_curves(START + DAY, 12) for _ in range(2)]
    assert [1, 3, 4, 5, 6, 7] == _thinned(archive)


def test_curves_of_jobs_that_are_archived_late_are_thinned_by_the_next_pass(
    archive: SqlArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "CURVES_AT_ONCE", 2)
    monkeypatch.setattr(retention, "LATE_RUNS_AT_ONCE", 3)
    archive.thin_curves(START + DAY, 12)
    late = [make_report(make_record(job, submit_seconds=START)) for job in (21, 22, 23, 24, 25)]
    times = {"submit_seconds": START, "start_seconds": START, "end_seconds": START + 5 * DAY}
    in_time = [make_report(make_record(job, **times)) for job in (31, 32)]
    archive.save([*late[:3], *in_time, *late[3:]])

    # There is nothing to do for the limit of the last pass.
    assert 0 == archive.thin_curves(START + DAY, 12)
    assert [5, 0] == [archive.thin_curves(START + 2 * DAY, 12) for _ in range(2)]
    assert [True] * 5 == [is_thinned(archive, job) for job in (21, 22, 23, 24, 25)]
    assert [False] * 2 == [is_thinned(archive, job) for job in (31, 32)]
    # They are not read once more, and the others come when they are old enough.
    assert [0, 2] == [archive.thin_curves(START + days * DAY, 12) for days in (3, 6)]
    assert [True] * 2 == [is_thinned(archive, job) for job in (31, 32)]


def test_late_curves_that_take_long_go_on_in_the_next_call(
    archive: SqlArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.thin_curves(START + DAY, 12)
    archive.save([make_report(make_record(job, submit_seconds=START)) for job in (21, 22, 23)])
    ticks = count(step=3.0)
    monkeypatch.setattr(retention, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))

    assert 2 == archive.thin_curves(START + 2 * DAY, 12)
    monkeypatch.undo()
    assert [True, True, False] == [is_thinned(archive, job) for job in (21, 22, 23)]
    assert [1, 0] == [archive.thin_curves(START + 2 * DAY, 12) for _ in range(2)]
    assert is_thinned(archive, 23)


def is_thinned(archive: SqlArchive, job_id: int) -> bool:
    return THINNED in archive.find(EVERYTHING, job_id)[0].missing
