# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable

import pytest
from starlette.exceptions import HTTPException

from slurmscope.core.errors import ArchiveError, ArchiveSchemaError, MissingExtraError, ServerBusy
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.viewer import Viewer
from slurmscope.portal.scope import Scope
from slurmscope.portal.sign_in.errors import Refused, TooMany
from tests.fakes.browser import Page, PortalClient
from tests.fakes.portal_backend import FakeBackend, FakeIdentifier, make_backend

PATHS = ("/", "/jobs", "/jobs/4711", "/jobs/4711/report.pdf", "/arrays/4800", "/users/ada", "/accounts/physics")


class BrokenBackend(FakeBackend):
    """Fail with an unexpected error."""

    failure: Callable[[], Exception] = lambda: RuntimeError("secret detail")

    def find_report(self, viewer: Viewer, shown_id: str, cluster: str = "") -> JobReport | None:
        raise type(self).failure()


class UnreachableIdentifier(FakeIdentifier):
    """Fail as token lookups do while the archive is unreachable."""

    def identify(self, scope: Scope) -> Viewer:
        raise ArchiveError("db.example.org does not answer")


@pytest.mark.parametrize("path", PATHS)
def test_unreachable_archive_gives_a_page_with_the_cluster(path: str) -> None:
    backend = make_backend()
    backend.archive.is_down = True
    answer = PortalClient(backend.make_app(), "ada").get(path)
    page = Page(answer.text)
    assert (503, "60") == (answer.status_code, answer.headers["retry-after"])
    assert "Running jobs 812" in page.text
    assert "Archive unreachable" in page.text
    assert "db.example.org" not in answer.text
    assert "bad DIMM" not in answer.text
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("path", PATHS)
def test_unreachable_archive_shows_no_cluster_if_the_token_cannot_be_checked(path: str) -> None:
    backend = make_backend()
    backend.identifier = UnreachableIdentifier()
    answer = PortalClient(backend.make_app(), "ada").get(path)
    assert 503 == answer.status_code
    assert "Past jobs cannot be shown" in Page(answer.text).text
    assert "812" not in answer.text
    assert "<h2>Cluster</h2>" not in answer.text


def test_recovered_archive_is_used_again() -> None:
    backend = make_backend()
    browser = PortalClient(backend.make_app(), "ada")
    backend.archive.is_down = True
    assert 503 == browser.get("/jobs").status_code
    backend.archive.is_down = False
    assert 200 == browser.get("/jobs").status_code


@pytest.mark.parametrize("path", ["/api/v2/jobs", "/jobs?format=json", "/jobs/4711/charts.json"])
def test_errors_are_json_where_json_is_requested(path: str) -> None:
    backend = make_backend()
    backend.archive.is_down = True
    answer = PortalClient(backend.make_app(), "ada").get(path)
    assert (503, ["error"]) == (answer.status_code, list(answer.json()))


def test_unexpected_error_reveals_no_detail() -> None:
    backend = BrokenBackend(archive=make_backend().archive)
    answer = PortalClient(backend.make_app(), "ada").get("/jobs/4711")
    assert 500 == answer.status_code
    assert "secret detail" not in answer.text
    assert "Internal error" in Page(answer.text).text


def test_missing_package_is_reported_without_package_names() -> None:
    class Missing(BrokenBackend):
        failure = lambda: MissingExtraError("PDF", "reports")  # noqa: E731

    answer = PortalClient(Missing(archive=make_backend().archive).make_app(), "ada").get("/jobs/4711/report.pdf")
    assert 501 == answer.status_code
    assert "pip install" not in answer.text


def test_pages_require_sign_in() -> None:
    answer = PortalClient(make_backend().make_app()).get("/jobs")
    assert (401, 'Bearer realm="slurmscope"') == (answer.status_code, answer.headers["www-authenticate"])
    assert "You are not signed in." in Page(answer.text).text


def test_rejected_requests_say_why() -> None:
    backend = make_backend()
    browser = PortalClient(backend.make_app(), "ada")
    backend.identifier.refusal = Refused("The header is not trusted.")
    assert (403, {"error": "The header is not trusted."}) == (
        browser.get("/api/v2/jobs").status_code, browser.get("/api/v2/jobs").json(),
    )  # fmt: skip
    backend.identifier.refusal = TooMany("wrong tokens", 30)
    assert (429, "30") == (browser.get("/").status_code, browser.get("/").headers["retry-after"])


def test_unknown_path_looks_like_an_inaccessible_job() -> None:
    browser = PortalClient(make_backend().make_app(), "ada")
    unknown, inaccessible = browser.get("/no/such/page"), browser.get("/jobs/4712/live")
    assert (404, inaccessible.text) == (unknown.status_code, unknown.text)


@pytest.mark.parametrize("path", ["/no/such/page", "/jobs/99999", "/jobs?days=x&sort=wrong", "/users/nobody"])
def test_error_pages_have_the_menu_of_the_viewer(path: str) -> None:
    app = make_backend().make_app()
    for name in ("sue", "ada"):
        page = Page(PortalClient(app, name).get(path).text)
        assert f"/users/{name}" in page.links
        assert ("sue" == name) == ("/waste" in page.links)


def test_error_pages_without_sign_in_have_no_links_of_a_user() -> None:
    links = Page(PortalClient(make_backend().make_app()).get("/no/such/page").text).links
    assert [] == [link for link in links if link.startswith(("/users/", "/waste"))]


def test_missing_job_is_named_with_the_day_since_which_there_are_jobs() -> None:
    app = make_backend().make_app()
    text = Page(PortalClient(app, "ada").get("/jobs/99999").text).text
    assert "Job 99999 does not exist, or you do not have access to it." in text
    # That of the oldest job of ada.
    assert "The archive has jobs that you may see since 2026-09-21." in text
    assert "The archive has jobs since" in Page(PortalClient(app, "sue").get("/jobs/99999").text).text


def test_missing_job_of_a_user_without_jobs_has_no_day() -> None:
    text = Page(PortalClient(make_backend([]).make_app(), "ada").get("/jobs/99999").text).text
    assert "Job 99999 does not exist, or you do not have access to it." in text
    assert "since" not in text


@pytest.mark.parametrize("name", ["12abc", "<b>", "1'--"])
def test_name_that_is_no_job_id_is_not_repeated(name: str) -> None:
    answer = PortalClient(make_backend().make_app(), "ada").get(f"/jobs/{name}")
    assert "This does not exist" in Page(answer.text).text
    assert name not in answer.text


UNREACHABLE = "Slurm accounting is unreachable."


@pytest.mark.parametrize(
    "path", ["/jobs/{}", "/jobs/{}/live", "/jobs/{}/charts.json", "/mail/{}", "/api/v2/jobs/{}", "/arrays/{}"]
)
def test_missing_job_may_be_current_while_a_server_is_unreachable(path: str) -> None:
    backend = make_backend()
    backend.failures = (UNREACHABLE,)
    browser = PortalClient(backend.make_app(), "ada")
    absent, inaccessible = browser.get(path.format(99)), browser.get(path.format(4712))
    text = Page(absent.text).text
    assert "does not exist, or you do not have access to it." in text
    assert "so a job may be missing." in text
    assert UNREACHABLE in text
    assert (404, 404) == (absent.status_code, inaccessible.status_code)
    assert absent.text.replace("Job 99 ", "Job 4712 ") == inaccessible.text


def test_api_says_that_a_current_job_may_be_missing() -> None:
    backend = make_backend()
    backend.failures = (UNREACHABLE,)
    answer = PortalClient(backend.make_app(), "ada").get("/api/v1/jobs/99/usage")
    expected = (
        "Job 99 does not exist. Not all jobs have been read, so a job may be missing. Slurm accounting is unreachable."
    )
    assert (404, {"error": expected}) == (answer.status_code, answer.json())


@pytest.mark.parametrize("path", ["/no/such/page", "/jobs/99", "/static/nothing"])
def test_unreachable_servers_are_hidden_without_sign_in(path: str) -> None:
    backend = make_backend()
    backend.failures = (UNREACHABLE,)
    answer = PortalClient(backend.make_app()).get(path)
    assert UNREACHABLE not in Page(answer.text).text


def test_error_page_does_not_repeat_the_address() -> None:
    answer = PortalClient(make_backend().make_app(), "ada").get("/<script>alert(1)</script>")
    assert "alert" not in answer.text


def test_accept_header_selects_json() -> None:
    answer = PortalClient(make_backend().make_app(), "ada").get("/nothing", Accept="application/json")
    assert ["error"] == list(answer.json())


def test_invalid_parameter_is_named() -> None:
    answer = PortalClient(make_backend().make_app(), "ada").get("/api/v2/jobs?limit=0")
    assert 422 == answer.status_code
    assert answer.json()["error"].startswith("limit: ")


class BusyBackend(BrokenBackend):
    """Reject a viewer who requested too many jobs."""

    failure = lambda: ServerBusy("too many jobs")  # noqa: E731


class FullBackend(BrokenBackend):
    """Fail as the renderer of PDF files does while too many are made."""

    failure = lambda: HTTPException(503, "Too many PDF files.", headers={"Retry-After": "10"})  # noqa: E731


@pytest.mark.parametrize(
    ("kind", "status", "title", "seconds"),
    [(BusyBackend, 429, "Too many requests", "5"), (FullBackend, 503, "Busy", "10")],
)
def test_busy_portal_is_not_called_unreachable(kind: type[FakeBackend], status: int, title: str, seconds: str) -> None:
    answer = PortalClient(kind(archive=make_backend().archive).make_app(), "ada").get("/jobs/4711")
    text = Page(answer.text).text

    assert (status, seconds) == (answer.status_code, answer.headers["retry-after"])
    assert title in text
    assert "unreachable" not in text


def test_archive_of_another_release_is_named() -> None:
    class Older(BrokenBackend):
        failure = lambda: ArchiveSchemaError("the archive has schema 99, and this release supports only schema 1")  # noqa: E731

    client = PortalClient(Older(archive=make_backend().archive).make_app(), "ada")
    page, answer = client.get("/jobs/4711"), client.get("/api/v2/jobs/4711")
    assert (503, 503, "60") == (page.status_code, answer.status_code, page.headers["retry-after"])
    sentence = "Jobs cannot be shown: the archive has schema 99, and this release supports only schema 1."
    assert sentence in Page(page.text).text
    assert {"error": sentence} == answer.json()
