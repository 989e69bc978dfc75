# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import io

import pytest

from tests.fakes.browser import Page, PortalClient
from tests.fakes.portal_backend import FakeBackend
from tests.fakes.waiting import make_queue, make_waiting


@pytest.fixture
def backend(backend: FakeBackend) -> FakeBackend:
    backend.waiting = make_queue(
        make_waiting(9001, name="train-a"),
        make_waiting(9002, user="bob", account="bio", name="secret-b"),
        make_waiting(
            4800, array_job_id=4800, tasks=(range(12, 25),), tasks_text="12-24%2", name="sweep",
            reason="JobArrayTaskLimit",
        ),
    )  # fmt: skip
    return backend


def open_portal(backend: FakeBackend, name: str) -> PortalClient:
    return PortalClient(backend.make_app(), name)


def test_pending_jobs_are_listed_with_their_reason(backend: FakeBackend) -> None:
    text = Page(open_portal(backend, "ada").get("/jobs?state=PENDING").text).text
    assert "9001" in text
    assert "Priority" in text
    assert "4800_[12-24%2]" in text
    assert "13 tasks" in text
    assert "secret-b" not in text


def test_pending_jobs_are_in_the_list_of_all_jobs_newest_first(backend: FakeBackend) -> None:
    jobs = open_portal(backend, "ada").get("/api/v2/jobs").json()["jobs"]
    assert "9001" == jobs[0]["shown_id"]
    assert ("PENDING", "Priority", 1) == (jobs[0]["state"], jobs[0]["reason"], jobs[0]["array_tasks"])
    assert None is jobs[0]["cpu_ratio"]
    assert jobs == sorted(jobs, key=lambda job: (job["submit_seconds"], job["job_id"]), reverse=True)


def test_pending_jobs_are_in_the_files(backend: FakeBackend) -> None:
    rows = list(csv.DictReader(io.StringIO(open_portal(backend, "ada").get("/jobs?state=PENDING&format=csv").text)))
    assert ["9001", "4800_[12-24%2]"] == [row["shown_id"] for row in rows]
    assert ["1", "13"] == [row["array_tasks"] for row in rows]


def test_pending_jobs_are_found_by_name(backend: FakeBackend) -> None:
    portal = open_portal(backend, "ada")
    assert "9001" in Page(portal.get("/jobs?name=train-").text).text
    assert "9001" not in Page(portal.get("/jobs?name=other").text).text


def test_user_with_pending_jobs_only_is_found(backend: FakeBackend) -> None:
    backend.waiting = make_queue(make_waiting(9003, user="carl", account="new"))
    portal = open_portal(backend, "sue")
    assert portal.get("/search?q=carl").headers["location"].endswith("/users/carl")
    assert portal.get("/search?q=new").headers["location"].endswith("/accounts/new")
    assert portal.get("/users/carl").status_code == 200


def test_array_shows_pending_tasks_too(backend: FakeBackend) -> None:
    text = Page(open_portal(backend, "ada").get("/arrays/4800").text).text
    assert "25 tasks" in text
    assert "pending 13" in text.lower()


def test_array_without_started_tasks_lists_its_pending_tasks(backend: FakeBackend) -> None:
    backend.waiting = make_queue(make_waiting(9100, array_job_id=9100, tasks=(range(25),), tasks_text="0-24"))
    portal = open_portal(backend, "ada")
    assert portal.get("/arrays/9100").status_code in {200, 303}
    assert open_portal(backend, "bob").get("/arrays/9100").status_code == 404


def test_lists_work_while_the_queue_is_unknown(backend: FakeBackend) -> None:
    backend.waiting = None
    assert "4720" in Page(open_portal(backend, "ada").get("/jobs").text).text
