# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import io
from urllib.parse import quote

import pytest

from tests.fakes.browser import Page, PortalClient
from tests.fakes.portal_backend import FakeBackend
from tests.fakes.reports import make_record, make_report
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


def test_pending_jobs_are_found_by_their_reason(backend: FakeBackend) -> None:
    details = "ReqNodeNotAvail, UnavailableNodes:n[1-3]"
    backend.waiting = make_queue(make_waiting(9001), make_waiting(9002, reason=details))
    client = PortalClient(backend.make_app(), "sue")
    reasons = ("Priority", "ReqNodeNotAvail")
    listed = {reason: Page(client.get(f"/jobs?reason={reason}").text).links for reason in reasons}
    assert "/jobs/9001" in listed["Priority"]
    assert "/jobs/9002" not in listed["Priority"]
    assert "/jobs/9002" in listed["ReqNodeNotAvail"]
    # Jobs that have started have no reason.
    assert "/jobs/4711" not in listed["Priority"]


def test_user_with_pending_jobs_only_is_found(backend: FakeBackend) -> None:
    backend.waiting = make_queue(make_waiting(9003, user="carl", account="new"))
    portal = open_portal(backend, "sue")
    assert portal.get("/search?q=carl").headers["location"].endswith("/users/carl")
    assert portal.get("/search?q=new").headers["location"].endswith("/accounts/new")
    assert portal.get("/users/carl").status_code == 200


def test_array_shows_pending_tasks_too(backend: FakeBackend) -> None:
    text = Page(open_portal(backend, "ada").get("/arrays/4800").text).text
    assert "25 tasks" in text
    assert "13 pending" in text


def test_array_without_started_tasks_lists_its_pending_tasks(backend: FakeBackend) -> None:
    backend.waiting = make_queue(make_waiting(9100, array_job_id=9100, tasks=(range(25),), tasks_text="0-24"))
    portal = open_portal(backend, "ada")
    assert portal.get("/arrays/9100").status_code in {200, 303}
    assert open_portal(backend, "bob").get("/arrays/9100").status_code == 404


def test_lists_work_while_the_queue_is_unknown(backend: FakeBackend) -> None:
    backend.waiting = None
    assert "4720" in Page(open_portal(backend, "ada").get("/jobs").text).text


@pytest.mark.parametrize("cluster", ["", "lab/"])
def test_every_listed_id_is_one_of_the_api(backend: FakeBackend, cluster: str) -> None:
    portal = open_portal(backend, "ada")
    listed = [job["shown_id"] for job in portal.get("/api/v2/jobs?state=PENDING").json()["jobs"]]
    explained = {shown_id: portal.get(f"/api/v2/jobs/{cluster}{quote(shown_id)}/waiting").json() for shown_id in listed}

    assert {"9001": 1, "4800_[12-24%2]": 13} == {name: view["tasks"] for name, view in explained.items()}
    # Tasks that have started since are no longer in the brackets.
    assert 13 == portal.get(f"/api/v2/jobs/{cluster}{quote('4800_[1-24%2]')}/waiting").json()["tasks"]


def test_report_of_pending_tasks_is_what_accounting_has_of_their_array(backend: FakeBackend) -> None:
    tasks = make_record(9500, array_job_id=9500, state="PENDING", start_seconds=None, end_seconds=None)
    backend.archive.save([make_report(tasks)])

    report = open_portal(backend, "ada").get(f"/api/v2/jobs/{quote('9500_[12-24%2]')}")

    assert (200, "PENDING") == (report.status_code, report.json()["summary"]["record"]["state"])


def test_page_of_pending_tasks_is_that_of_their_array(backend: FakeBackend) -> None:
    answer = open_portal(backend, "ada").get(f"/jobs/{quote('4800_[12-24%2]')}")
    assert (303, "/arrays/4800") == (answer.status_code, answer.headers["location"])


@pytest.mark.parametrize("shown_id", ["4800_[", "4800_[]", "4800_[x]", "_[1-2]", "4800_[1-2]x", f"4800_[{'1' * 4001}]"])
def test_id_that_slurm_does_not_write_is_no_id(backend: FakeBackend, shown_id: str) -> None:
    assert 422 == open_portal(backend, "ada").get(f"/api/v2/jobs/{quote(shown_id)}/waiting").status_code


def test_report_of_a_pending_job_has_the_reason_of_the_queue(backend: FakeBackend) -> None:
    record = make_record(9001, state="PENDING", start_seconds=None, end_seconds=None, reason="None")
    backend.archive.save([make_report(record)])

    report = open_portal(backend, "ada").get("/api/v2/jobs/9001").json()

    assert "Priority" == report["summary"]["record"]["reason"]
