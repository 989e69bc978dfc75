# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.archive.interface import JobFilter, JobPage, PagePosition
from slurmscope.archive.job_columns import JobRow, make_pending_row
from slurmscope.jobs.pending.queue import PendingQueue
from slurmscope.jobs.rule import Severity
from slurmscope.jobs.viewer import Viewer, ViewerRole
from slurmscope.portal.pending_lists import list_pending, read_merged
from tests.fakes.waiting import NOW, make_queue, make_waiting

ADA = Viewer(name="ada")
STAFF = Viewer(name="sue", role=ViewerRole.SUPPORT)


class Archived:
    """Page through rows like the archive, newest first."""

    def __init__(self, keys: list[tuple[int, int]]) -> None:
        self.rows = [
            make_pending_row(make_waiting(job_id, submit_seconds=submit, state="COMPLETED", reason=""), "lab")
            for submit, job_id in sorted(keys, reverse=True)
        ]
        self.reads = 0

    def read(self, after: PagePosition | None, limit: int) -> JobPage:
        self.reads += 1
        left = [row for row in self.rows if after is None or (row.submit_seconds, row.job_id) < after[:2]]
        last = left[limit - 1] if len(left) > limit else None
        return JobPage(
            rows=tuple(left[:limit]), next_key=PagePosition(last.submit_seconds, last.job_id) if last else None
        )


def read_all(archived: Archived, queue: PendingQueue | None, wanted: JobFilter, limit: int) -> list[JobRow]:
    rows: list[JobRow] = []
    after: PagePosition | None = None
    for _ in range(100):
        queues = [queue] if queue else []
        page = read_merged(queues, lambda: archived.read(after, limit), STAFF, wanted, after=after, limit=limit)  # noqa: B023
        assert len(page.rows) <= limit
        rows += page.rows
        after = page.next_key
        if after is None:
            return rows
    raise AssertionError("the list has no end")


KEYS = st.sets(st.tuples(st.integers(1000, 1010), st.integers(1, 60)), max_size=30)


@given(archived=KEYS, waiting=KEYS, limit=st.integers(1, 7))
def test_every_job_is_on_exactly_one_page_in_order(
    archived: set[tuple[int, int]], waiting: set[tuple[int, int]], limit: int
) -> None:
    queue = make_queue(*(make_waiting(job_id, submit_seconds=submit) for submit, job_id in waiting))
    rows = read_all(Archived(sorted(archived)), queue, JobFilter(), limit)
    assert sorted(archived | waiting, reverse=True) == [(row.submit_seconds, row.job_id) for row in rows]


def test_job_that_started_a_moment_ago_is_listed_once_as_archived() -> None:
    queue = make_queue(make_waiting(7, submit_seconds=1000))
    assert ["COMPLETED"] == [row.state for row in read_all(Archived([(1000, 7)]), queue, JobFilter(), 10)]


def test_pending_filter_does_not_read_the_archive() -> None:
    archived = Archived([(1000, 1)])
    queue = make_queue(make_waiting(7), make_waiting(8, state="REQUEUE_HOLD"))
    assert [8, 7] == [row.job_id for row in read_all(archived, queue, JobFilter(state="PENDING"), 10)]
    assert 0 == archived.reads


def test_unknown_queue_leaves_the_archive_alone() -> None:
    assert [1] == [row.job_id for row in read_all(Archived([(1000, 1)]), None, JobFilter(), 10)]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (JobFilter(), [4, 3, 2, 1]),
        (JobFilter(user="bob"), [2]),
        (JobFilter(user="nix"), []),
        (JobFilter(account="bio"), [3]),
        (JobFilter(partition="long"), [4]),
        (JobFilter(name="tr"), [4, 3, 2]),
        (JobFilter(array_job_id=1), [1]),
        (JobFilter(cluster="lab"), [4, 3, 2, 1]),
        (JobFilter(cluster="beta"), []),
        (JobFilter(since_seconds=NOW - 100), [4]),
        (JobFilter(until_seconds=NOW - 100), [3, 2, 1]),
        (JobFilter(state="RUNNING"), []),
        (JobFilter(rule="x"), []),
        (JobFilter(worst=Severity.INFO), []),
        (JobFilter(is_running=False), []),
        (JobFilter(node="n1"), []),
        (JobFilter(het_job_id=2), []),
        (JobFilter(shown_ids=("2", "4")), [4, 2]),
        (JobFilter(shown_ids=("1",)), [1]),
        (JobFilter(shown_ids=("1_2", "3_0")), [1]),
        (JobFilter(shown_ids=("1_3", "7")), []),
    ],
)
def test_filters_apply_to_pending_jobs(wanted: JobFilter, found: list[int]) -> None:
    queue = make_queue(
        make_waiting(1, array_job_id=1, tasks=(range(3),), tasks_text="0-2", name="sweep"),
        make_waiting(2, user="bob"),
        make_waiting(3, account="bio"),
        make_waiting(4, partitions=("batch", "long"), submit_seconds=NOW - 50),
    )
    assert found == [row.job_id for row in list_pending(queue, STAFF, wanted)]


def test_others_see_no_pending_jobs_of_a_user() -> None:
    queue = make_queue(make_waiting(1), make_waiting(2, user="bob", account="bio"))
    assert [1] == [row.job_id for row in list_pending(queue, ADA, JobFilter())]
    assert [] == list(list_pending(queue, ADA, JobFilter(user="bob")))
    assert [] == list(list_pending(queue, ADA, JobFilter(account="bio")))
    cora = Viewer(name="cora", coordinates=frozenset({"bio"}))
    assert [2] == [row.job_id for row in list_pending(queue, cora, JobFilter())]


def test_pending_tasks_of_an_array_are_one_row() -> None:
    job = make_waiting(9, array_job_id=9, tasks=(range(3, 25),), tasks_text="3-24%2")
    row = make_pending_row(job, "lab")
    assert ("9_[3-24%2]", 22, "Priority") == (row.shown_id, row.array_tasks, row.reason)
    assert row.is_pending


@given(one=KEYS, other=KEYS, limit=st.integers(1, 7))
def test_queues_of_two_clusters_are_merged(one: set[tuple[int, int]], other: set[tuple[int, int]], limit: int) -> None:
    queues = [
        replace(make_queue(*(make_waiting(job_id, submit_seconds=submit) for submit, job_id in keys)), cluster=name)
        for name, keys in (("alpha", one), ("beta", other))
    ]
    rows: list[JobRow] = []
    after: PagePosition | None = None
    for _ in range(100):
        page = read_merged(
            queues, lambda: JobPage(rows=(), next_key=None), STAFF, JobFilter(), after=after, limit=limit
        )
        rows += page.rows
        after = page.next_key
        if after is None:
            break
    expected = [("alpha", *key) for key in one] + [("beta", *key) for key in other]
    assert sorted(expected) == sorted((row.cluster, row.submit_seconds, row.job_id) for row in rows)
    positions = [(row.submit_seconds, row.job_id) for row in rows]
    assert sorted(positions, reverse=True) == positions
