# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import struct
from dataclasses import replace

import pytest
from pypdf import PdfReader

from slurmscope.jobs.render.pdf import render_chart_png
from slurmscope.jobs.report import ChartLine
from slurmscope.portal.settings import PortalSettings
from tests.fakes.browser import PortalClient
from tests.fakes.portal_backend import FakeBackend
from tests.fakes.reports import make_chart, make_record, make_report, make_unmeasured_report

PNG = b"\x89PNG\r\n\x1a\n"


def test_mail_ends_with_the_warning_line(ada: PortalClient) -> None:
    answer = ada.get("/mail/4711")
    assert "text/plain; charset=utf-8" == answer.headers["content-type"]
    assert "WARNING=true" == answer.text.splitlines()[-1]
    # Without a public address in the settings it is the one that the script has called.
    assert "Charts of this job: http://portal.test/pdf/4711" in answer.text.splitlines()


@pytest.mark.parametrize("portal_url", ["https://jobs.example.org", "https://jobs.example.org/"])
def test_mail_links_to_the_public_url(backend: FakeBackend, portal_url: str) -> None:
    # The proxy terminates TLS, so the request itself is http.
    answer = PortalClient(backend.make_app(portal_url=portal_url), "ada").get("/mail/4711")
    assert "Charts of this job: https://jobs.example.org/pdf/4711" in answer.text.splitlines()


def test_mail_links_include_the_base_path(backend: FakeBackend) -> None:
    backend.settings = PortalSettings(base_path="/portal")
    answer = PortalClient(backend.make_app(), "ada").get("/portal/mail/4711")
    assert "Charts of this job: http://portal.test/portal/pdf/4711" in answer.text.splitlines()


@pytest.mark.parametrize(
    ("headers", "link"),
    [
        ({"Host": "jobs.example.org", "X-Forwarded-Proto": "https"}, "https://jobs.example.org/pdf/4711"),
        ({"Host": "[::1]:8080", "X-Forwarded-Proto": "gopher"}, "http://[::1]:8080/pdf/4711"),
        ({"Host": "x/evil?", "X-Forwarded-Proto": "https"}, "/pdf/4711"),
    ],
)
def test_mail_link_is_absolute_behind_a_proxy(ada: PortalClient, headers: dict[str, str], link: str) -> None:
    assert f"Charts of this job: {link}" in ada.get("/mail/4711", **headers).text.splitlines()


@pytest.mark.parametrize("name", ["", "ada"])
@pytest.mark.parametrize("path", ["/jobs/", "/mail/4711/", "/pdf/4711/", "/api/v2/jobs/"])
def test_trailing_slash_is_not_found(backend: FakeBackend, name: str, path: str) -> None:
    answer = PortalClient(backend.make_app(), name).get(path)
    assert (404, None) == (answer.status_code, answer.headers.get("location"))


@pytest.mark.parametrize("name", ["", "ada"])
def test_base_path_redirects_to_the_first_page(backend: FakeBackend, name: str) -> None:
    backend.settings = PortalSettings(base_path="/portal")
    answer = PortalClient(backend.make_app(), name).get("/portal")
    assert (307, "/portal/") == (answer.status_code, answer.headers["location"])


@pytest.mark.parametrize("path", ["/plot/4711/jobs_rss", "/plot/4711/jobs_cpu_percent", "/pie/4711/", "/pie/4711"])
def test_images_are_png(ada: PortalClient, path: str) -> None:
    answer = ada.get(path)
    width, height = struct.unpack(">II", answer.content[16:24])
    assert ("image/png", PNG) == (answer.headers["content-type"], answer.content[:8])
    assert width > 100
    assert height > 100


def test_pdf_has_the_older_name(ada: PortalClient) -> None:
    answer = ada.get("/pdf/4711")
    assert 'inline; filename="4711_summary.pdf"' == answer.headers["content-disposition"]
    assert PdfReader(io.BytesIO(answer.content)).pages


def test_usage_has_the_older_keys(ada: PortalClient) -> None:
    usage = ada.get("/api/v1/jobs/4711/usage").json()
    expected = {
        "jobid", "sponsor", "username", "runtime", "uses_scratch", "alloc_tres", "threads", "cpu", "ram", "io"
    }  # fmt: skip
    assert expected <= set(usage)


def test_absent_inaccessible_and_unfinished_jobs_have_the_older_messages(ada: PortalClient) -> None:
    answers = {number: ada.get(f"/api/v1/jobs/{number}/usage") for number in ("99", "4712", "4720")}
    assert {404} == {answer.status_code for answer in answers.values()}
    assert {"error": "Job 99 does not exist"} == answers["99"].json()
    assert {"error": "Job 4712 does not exist"} == answers["4712"].json()
    assert {"error": "Job 4720 is not finished"} == answers["4720"].json()


@pytest.mark.parametrize("path", ["/mail/{}", "/plot/{}/jobs_rss", "/pie/{}/", "/pie/{}", "/pdf/{}"])
def test_inaccessible_job_is_absent_in_every_format(ada: PortalClient, path: str) -> None:
    inaccessible, absent = ada.get(path.format(4712)), ada.get(path.format(99))
    assert (404, absent.content) == (inaccessible.status_code, inaccessible.content)


@pytest.mark.parametrize("metric", ["jobs_unknown", "jobs_read_mb", "memory"])
def test_metric_without_a_chart_is_not_found(ada: PortalClient, metric: str) -> None:
    assert 404 == ada.get(f"/plot/4711/{metric}").status_code


@pytest.mark.parametrize(("mode", "other"), [("user", "system"), ("system", "user")])
def test_user_and_system_time_have_a_picture_each(
    backend: FakeBackend, ada: PortalClient, mode: str, other: str
) -> None:
    lines = {name: ChartLine(label=name, values=(level,) * 3) for name, level in (("user", 1.0), ("system", 3.0))}
    split = replace(make_chart("cpu_split"), times=(0.0, 60.0, 120.0), lines=tuple(lines.values()))
    alone = replace(split, title=f"{mode.capitalize()} time", lines=(lines[mode],))
    backend.archive.save([make_report(make_record(6), charts=(split,))])

    shown = ada.get(f"/plot/6/jobs_{mode}_time").content

    assert render_chart_png(alone) == shown
    assert ada.get(f"/plot/6/jobs_{other}_time").content != shown


def test_only_the_usage_of_a_running_job_has_to_wait_for_its_end(ada: PortalClient) -> None:
    paths = ("/api/v1/jobs/4720/usage", "/mail/4720", "/pdf/4720", "/plot/4720/jobs_rss")
    assert [404, 200, 200, 200] == [ada.get(path).status_code for path in paths]


def test_usage_has_the_older_types(backend: FakeBackend, ada: PortalClient) -> None:
    report = make_report(make_record(6))
    io = replace(report.summary.io, mean_open_files=7.9)
    memory = replace(report.summary.memory, requested_bytes=4000 << 20)
    summary = replace(report.summary, program_threads={"relax": 12.0}, io=io, memory=memory)
    backend.archive.save([replace(report, summary=summary)])

    usage = ada.get("/api/v1/jobs/6/usage").text

    # The older application wrote int(...) of both, and what sacct prints without its unit.
    assert '"threads":{"relax":12}' in usage
    assert '"opened_files":7,' in usage
    assert '"available":{"amount":"4000","unit":"MB"}' in usage


def test_pie_without_measurements_is_not_found(backend: FakeBackend, ada: PortalClient) -> None:
    backend.archive.save([make_unmeasured_report(make_record(5))])
    assert 404 == ada.get("/pie/5/").status_code


def test_user_has_uid_and_jobs(ada: PortalClient) -> None:
    user = ada.get("/api/v1/users/ada").json()
    assert ("ada", 1001, 15) == (user["user"], user["uid"], len(user["jobs"]))


def test_inaccessible_and_absent_users_are_alike(backend: FakeBackend, ada: PortalClient) -> None:
    answers = [ada.get(f"/api/v1/users/{name}") for name in ("bob", "nobody")]
    assert [404, 404] == [answer.status_code for answer in answers]
    assert {"error": "User bob does not exist"} == answers[0].json()
    staff = PortalClient(backend.make_app(), "sue")
    assert 200 == staff.get("/api/v1/users/bob").status_code
    assert 404 == staff.get("/api/v1/users/nobody").status_code
    assert [("sue", "/api/v1/users/{name}", "user bob")] == backend.audited
