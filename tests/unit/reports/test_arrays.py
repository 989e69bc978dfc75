# SPDX-License-Identifier: Apache-2.0
"""The id of an array finds the last run of each of its tasks, archived or not."""

from __future__ import annotations

import pytest

from slurmscope.core.errors import CommandTimedOut
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.viewer import EVERYTHING, Viewer
from slurmscope.reports.local_jobs import find_array
from slurmscope.reports.make import ReportMaker
from tests.fakes.reporting import FakeAccounting, FakeArchive
from tests.fakes.reports import START, make_record, make_report

MAKER = ReportMaker(None, wall_clock=lambda: START + 9_000.0)


def task(number: int, job_id: int, **changed: object) -> JobRecord:
    return make_record(job_id, array_job_id=90, array_task_id=number, **changed)


def find(
    records: list[JobRecord], archived: list[JobRecord] | None = None, viewer: Viewer = EVERYTHING
) -> list[tuple[str, str]]:
    archive, accounting = FakeArchive(), FakeAccounting(records=records)
    archive.save([make_report(record) for record in archived or ()])
    found = find_array(viewer, 90, archive=archive, accounting=accounting, maker=MAKER)  # type: ignore[arg-type]
    return [(report.record.shown_id, report.record.state) for report in found]


def test_tasks_come_in_order_with_the_one_that_has_the_id_of_the_array() -> None:
    assert [("90_1", "COMPLETED"), ("90_2", "COMPLETED"), ("90_10", "RUNNING")] == find(
        [task(10, 90, state="RUNNING", end_seconds=None), task(2, 92), task(1, 91)]
    )


def test_only_the_last_run_of_a_task_is_listed() -> None:
    again = START + 500

    assert [("90_1", "FAILED")] == find(
        [task(1, 91, state="FAILED", submit_seconds=again), task(1, 91, state="REQUEUED")]
    )


def test_requeued_task_is_its_last_run_wherever_that_is() -> None:
    first, last = task(1, 91, state="REQUEUED"), task(1, 91, submit_seconds=START + 500)

    assert [("90_1", "COMPLETED")] == find([], [first, last])
    assert [("90_1", "COMPLETED")] == find([first, last], [first])
    assert [("90_1", "REQUEUED")] == find([first], [first])


def test_earlier_array_of_the_same_id_is_not_a_part_of_the_newest() -> None:
    earlier = [task(number, 95 + number, user="bob", submit_seconds=START - 10**6) for number in (1, 2, 3)]

    assert [("90_1", "COMPLETED")] == find([task(1, 91)], earlier)
    assert [("90_1", "COMPLETED")] == find([*earlier, task(1, 91)])


def test_ended_tasks_come_from_the_archive_and_others_from_accounting() -> None:
    archived = [task(1, 91, state="TIMEOUT"), task(2, 92, state="RUNNING", end_seconds=None)]

    assert [("90_1", "TIMEOUT"), ("90_2", "COMPLETED")] == find([task(1, 91), task(2, 92)], archived)


def test_rest_that_has_not_started_comes_last() -> None:
    rest = make_record(90, array_job_id=90, state="PENDING", start_seconds=None, end_seconds=None)

    assert [("90_7", "COMPLETED"), ("90", "PENDING")] == find([rest, task(7, 91)])


def test_revoked_copy_in_another_cluster_of_the_federation_is_no_second_array() -> None:
    copy = make_record(90, array_job_id=90, cluster="beta", state="REVOKED", start_seconds=None, end_seconds=None)

    assert [("90_1", "COMPLETED")] == find([copy, task(1, 91)])
    assert [("90_1", "COMPLETED")] == find([copy], [task(1, 91)])
    assert [("90", "REVOKED")] == find([copy])


def test_foreign_tasks_and_other_jobs_are_not_listed() -> None:
    assert [] == find([task(1, 91)], viewer=Viewer(name="other"))
    assert [] == find([make_record(90)])


def test_unreachable_accounting_leaves_what_is_archived() -> None:
    archive, accounting = FakeArchive(), FakeAccounting(error=CommandTimedOut(["sacct"], "was killed"))
    with pytest.raises(CommandTimedOut):
        find_array(EVERYTHING, 90, archive=None, accounting=accounting, maker=MAKER)

    archive.save([make_report(task(1, 91))])

    (report,) = find_array(EVERYTHING, 90, archive=archive, accounting=accounting, maker=MAKER)  # type: ignore[arg-type]
    assert "90_1" == report.record.shown_id
