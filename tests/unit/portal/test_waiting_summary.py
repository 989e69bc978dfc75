# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from slurmscope.jobs.wait_times import WaitingTime
from slurmscope.portal.cluster_now import QueueRow, rate_wait
from tests.fakes.browser import Page, PortalClient
from tests.fakes.portal_backend import CLUSTER, FakeBackend
from tests.fakes.waiting import NOW, make_queue, make_waiting

WAITS = {
    (1, 0): WaitingTime(
        partition="batch", cores_class=1, limit_class=0, jobs=40, median_seconds=90.0, p90_seconds=600.0
    ),
    (2, 3): WaitingTime(
        partition="gpu", cores_class=2, limit_class=3, jobs=7, median_seconds=7200.0, p90_seconds=9000.0
    ),
}


def open_portal(backend: FakeBackend, name: str = "ada") -> PortalClient:
    return PortalClient(backend.make_app(), name)


def test_first_page_groups_own_pending_jobs_by_reason(backend: FakeBackend) -> None:
    backend.waiting = make_queue(
        make_waiting(9001),
        make_waiting(9002, start_seconds=NOW + 60, reason="Resources"),
        make_waiting(9003, array_job_id=9003, tasks=(range(10),), tasks_text="0-9"),
        make_waiting(9004, user="bob", name="secret"),
    )
    text = Page(open_portal(backend).get("/").text).text
    assert "Pending 12 jobs" in text
    assert "Jobs with a higher priority are ahead in this partition. 11 not estimated 9003_[0-9] train, 9001" in text
    # One job of a reason has the advice for it.
    assert "The job waits until enough resources are free. Wait, or request less" in text
    assert text.count("Jobs with a higher priority") == 1
    assert "secret" not in text


def test_first_page_without_pending_jobs_has_no_such_table(backend: FakeBackend) -> None:
    assert "Why they are pending" not in Page(open_portal(backend).get("/").text).text
    backend.waiting = make_queue(make_waiting(9001, user="eve", account="x"))
    text = Page(open_portal(backend, "eve").get("/").text).text
    assert "You have no jobs yet" not in text
    assert "9001" in text


def test_page_of_a_user_lists_pending_jobs(backend: FakeBackend) -> None:
    backend.waiting = make_queue(make_waiting(9001), make_waiting(9002, user="bob"))
    text = Page(open_portal(backend).get("/users/ada").text).text
    assert "Newest pending jobs" in text
    assert "9001" in text
    assert "9002" not in text


def test_cluster_page_updates_its_queue_by_partition_and_reason(backend: FakeBackend) -> None:
    backend.cluster = replace(
        CLUSTER, queue=(QueueRow(partition="batch", reason="Priority", jobs=1001, cpus=5000, gpus=12),)
    )
    portal = open_portal(backend)
    assert 'hx-get="/cluster/now"' in portal.get("/cluster").text
    update = portal.get("/cluster/now").text
    assert "<html" not in update
    text = Page(update).text
    assert "batch Priority Jobs with a higher priority are ahead in this partition. 1,001 5,000 12" in text
    assert "bad DIMM" not in text
    assert "bad DIMM" in Page(open_portal(backend, "sue").get("/cluster/now").text).text
    rows = list(csv.DictReader(io.StringIO(portal.get("/cluster?table=queue&format=csv").text)))
    assert [{"partition": "batch", "reason": "Priority", "jobs": "1001", "cpus": "5000", "gpus": "12"}] == rows


def test_waiting_times_are_a_table_with_the_number_of_jobs_in_each_cell(backend: FakeBackend) -> None:
    backend.waits = WAITS
    portal = open_portal(backend)
    page = Page(portal.get("/cluster").text)
    assert "Median waiting time in batch by cores and time limit" in page.text
    assert "40 jobs of the last four weeks" in page.text
    assert "2-4 1 min 30 s 40 jobs – – – – – –" in page.text
    assert "2 h 7 jobs" in Page(portal.get("/cluster?partition=gpu").text).text
    rows = list(csv.DictReader(io.StringIO(portal.get("/cluster?table=waiting&partition=gpu&format=csv").text)))
    assert [("gpu", "5-16", "up to 24 h", "7", "7200.0")] == [
        (row["partition"], row["cores"], row["time_limit"], row["jobs"], row["median_seconds"]) for row in rows
    ]


def test_cluster_without_known_waiting_times_has_no_such_table(backend: FakeBackend) -> None:
    assert "Waiting times" not in Page(open_portal(backend).get("/cluster").text).text


@pytest.mark.parametrize(("seconds", "level"), [(0, 0), (59, 0), (60, 1), (3599, 2), (3600, 3), (90_000, 5)])
def test_longer_waits_are_darker(seconds: float, level: int) -> None:
    assert level == rate_wait(seconds)
