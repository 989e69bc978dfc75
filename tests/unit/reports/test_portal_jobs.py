# SPDX-License-Identifier: Apache-2.0
"""Jobs of a portal look as they do locally, and the jobs of others do not exist."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from slurmscope.archive.interface import JobFilter
from slurmscope.core.errors import ServerError
from slurmscope.http.client.address import parse_address
from slurmscope.jobs.render.text import render_text
from slurmscope.jobs.script import EnvironmentVariable, JobScript
from slurmscope.reports.portal_jobs import PortalJobs
from tests.fakes.browser import PortalClient
from tests.fakes.portal_backend import FakeBackend, make_backend, make_jobs

T = TypeVar("T")


class AsgiClient:
    """Call the portal's application in place of a server."""

    address = parse_address("https://portal.test")

    def __init__(self, backend: FakeBackend, user: str) -> None:
        self._browser = PortalClient(backend.make_app(), user)
        self.paths: list[str] = []

    def get(self, path: str, decode: Callable[[bytes], T], *, job: str = "") -> T | None:
        self.paths.append(path)
        answer = self._browser.get(path)
        assert answer.status_code in {200, 404}
        return decode(answer.content) if answer.status_code == 200 else None


def _jobs(user: str = "ada", backend: FakeBackend | None = None) -> PortalJobs:
    return PortalJobs(AsgiClient(backend or make_backend(), user))  # type: ignore[arg-type]


def _all_ids() -> Iterator[str]:
    return (report.record.shown_id for report in make_jobs() if report.record.user == "ada")


@pytest.mark.parametrize("shown_id", sorted(set(_all_ids())))
def test_report_is_rendered_as_the_portal_itself_does(shown_id: str) -> None:
    backend = make_backend()
    local = PortalClient(backend.make_app(), "ada").get(f"/jobs/{shown_id}/report.txt").text
    read = _jobs(backend=backend).report(shown_id)

    assert read is not None
    assert local == render_text(read)


def test_job_of_another_user_is_one_that_does_not_exist() -> None:
    jobs = _jobs()

    assert jobs.report("4712") is jobs.report("99") is None
    assert () == jobs.list_jobs(JobFilter(shown_ids=("4712", "99")), 10).rows
    assert () == jobs.list_jobs(JobFilter(user="bob"), 10).rows
    seen_by_staff = _jobs("sue").report("4712")
    assert seen_by_staff is not None
    assert "bob" == seen_by_staff.record.user


def test_own_name_is_that_of_the_portal() -> None:
    assert "ada" == _jobs().user()


def test_list_is_read_page_by_page_up_to_the_limit() -> None:
    jobs = _jobs()
    everything = jobs.list_jobs(JobFilter(user="ada"), 500)
    few = jobs.list_jobs(JobFilter(user="ada"), 3)

    assert (15, False) == (len(everything.rows), everything.is_cut)
    assert (everything.rows[:3], True) == (few.rows, few.is_cut)


def test_many_ids_are_requested_in_parts_that_web_servers_accept() -> None:
    client = AsgiClient(make_backend(), "ada")
    ids = tuple(str(job) for job in range(4700, 5650))
    found = PortalJobs(client).list_jobs(JobFilter(shown_ids=ids), 1000)  # type: ignore[arg-type]

    assert _jobs().list_jobs(JobFilter(user="ada"), 500).rows == found.rows
    assert 5 == len(client.paths)
    assert 4000 > max(map(len, client.paths))


def test_time_is_exact_although_the_portal_knows_days() -> None:
    rows = _jobs().list_jobs(JobFilter(user="ada"), 500).rows
    middle = sorted(row.submit_seconds for row in rows)[len(rows) // 2]
    found = _jobs().list_jobs(JobFilter(user="ada", since_seconds=middle), 500).rows

    assert {row.job_id for row in rows if row.submit_seconds >= middle} == {row.job_id for row in found}


def test_tasks_of_an_array_are_in_order() -> None:
    tasks = [row.shown_id for row in _jobs().read_array(4800).rows]

    assert tasks
    assert tasks == sorted(tasks, key=lambda shown_id: int(shown_id.partition("_")[2]))
    assert tasks == [report.record.shown_id for report in _jobs().array_reports(4800)]
    assert () == _jobs().read_array(4711).rows
    assert () == _jobs("eve").read_array(4800).rows


def test_script_is_that_of_an_own_job() -> None:
    backend, script = make_backend(), JobScript(text="#!/bin/sh\n", environment=(EnvironmentVariable(name="HOME"),))
    backend.scripts["4711"] = script
    report = _jobs().report("4711")

    assert report is not None
    assert script == _jobs(backend=backend).read_script(report)
    assert _jobs("sue", backend).read_script(report) is _jobs().read_script(report) is None


class AbsentApi(AsgiClient):
    """Answer as a portal without this API does."""

    def get(self, path: str, decode: Callable[[bytes], T], *, job: str = "") -> T | None:
        return None


def test_portal_without_the_api_is_reported() -> None:
    jobs = PortalJobs(AbsentApi(make_backend(), "ada"))  # type: ignore[arg-type]

    for ask in (jobs.user, lambda: jobs.list_jobs(JobFilter(user="ada"), 1)):
        with pytest.raises(ServerError, match=r"https://portal.test:443 has no API for slurmscope report"):
            ask()
    assert jobs.report("12") is None
