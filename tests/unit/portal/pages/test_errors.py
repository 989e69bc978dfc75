# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

import pytest

from slurmscope.errors import ArchiveError, MissingExtraError
from slurmscope.model.report import JobReport
from slurmscope.model.viewer import Viewer
from slurmscope.portal.app import make_app
from slurmscope.portal.sign_in.errors import Refused, TooManyFailures
from tests.fakes.browser import Page, Visitor
from tests.fakes.portal_desk import FakeDesk, FakeIdentifier, make_desk

PATHS = ("/", "/jobs", "/jobs/4711", "/jobs/4711/report.pdf", "/arrays/4800", "/users/ada", "/accounts/physics")


class BrokenDesk(FakeDesk):
    """Fail in a way that nobody thought of."""

    failure: Callable[[], Exception] = lambda: RuntimeError("secret detail")

    def report(self, viewer: Viewer, shown_id: str) -> JobReport | None:
        raise type(self).failure()


class ForgetfulIdentifier(FakeIdentifier):
    """Fail as tokens do while their database is away."""

    def identify(self, scope: MutableMapping[str, Any]) -> Viewer:
        raise ArchiveError("db.example.org does not answer")


@pytest.mark.parametrize("path", PATHS)
def test_archive_that_is_down_gives_a_page_with_the_cluster_as_it_is(path: str) -> None:
    desk = make_desk()
    desk.archive.is_down = True
    answer = Visitor(make_app(desk), "ada").get(path)
    page = Page(answer.text)
    assert (503, "60") == (answer.status_code, answer.headers["retry-after"])
    assert "Running jobs 812" in page.text
    assert "db.example.org" not in answer.text
    assert "bad DIMM" not in answer.text
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("path", PATHS)
def test_archive_that_is_down_shows_no_cluster_to_those_whose_token_it_cannot_find(path: str) -> None:
    desk = make_desk()
    desk.identifier = ForgetfulIdentifier()
    answer = Visitor(make_app(desk), "ada").get(path)
    assert 503 == answer.status_code
    assert "Jobs of the past cannot be shown now" in Page(answer.text).text
    assert "812" not in answer.text
    assert "The cluster now" not in answer.text


def test_archive_that_came_back_is_used_again() -> None:
    desk = make_desk()
    browser = Visitor(make_app(desk), "ada")
    desk.archive.is_down = True
    assert 503 == browser.get("/jobs").status_code
    desk.archive.is_down = False
    assert 200 == browser.get("/jobs").status_code


@pytest.mark.parametrize("path", ["/api/v2/jobs", "/jobs?format=json", "/jobs/4711/charts.json"])
def test_programs_get_the_same_sentence_as_json(path: str) -> None:
    desk = make_desk()
    desk.archive.is_down = True
    answer = Visitor(make_app(desk), "ada").get(path)
    assert (503, ["error"]) == (answer.status_code, list(answer.json()))


def test_surprise_gives_no_detail_away() -> None:
    desk = BrokenDesk(archive=make_desk().archive)
    answer = Visitor(make_app(desk), "ada").get("/jobs/4711")
    assert 500 == answer.status_code
    assert "secret detail" not in answer.text
    assert "Something broke" in Page(answer.text).text


def test_missing_package_is_told_without_names_of_packages() -> None:
    class Missing(BrokenDesk):
        failure = lambda: MissingExtraError("PDF", "reports")  # noqa: E731

    answer = Visitor(make_app(Missing(archive=make_desk().archive)), "ada").get("/jobs/4711/report.pdf")
    assert 501 == answer.status_code
    assert "pip install" not in answer.text


def test_nobody_gets_a_page_without_signing_in() -> None:
    answer = Visitor(make_app(make_desk())).get("/jobs")
    assert (401, 'Bearer realm="slurmscope"') == (answer.status_code, answer.headers["www-authenticate"])
    assert "You are not signed in." in Page(answer.text).text


def test_refused_and_limited_visitors_are_told_why() -> None:
    desk = make_desk()
    browser = Visitor(make_app(desk), "ada")
    desk.identifier.refusal = Refused("The header is not believed.")
    assert (403, {"error": "The header is not believed."}) == (
        browser.get("/api/v2/jobs").status_code, browser.get("/api/v2/jobs").json(),
    )  # fmt: skip
    desk.identifier.refusal = TooManyFailures(30)
    assert (429, "30") == (browser.get("/").status_code, browser.get("/").headers["retry-after"])


def test_unknown_path_reads_like_a_foreign_job() -> None:
    browser = Visitor(make_app(make_desk()), "ada")
    unknown, foreign = browser.get("/no/such/page"), browser.get("/jobs/4712")
    assert (404, foreign.text) == (unknown.status_code, unknown.text)


AWAY = "Slurm's accounting does not answer."


@pytest.mark.parametrize(
    "path", ["/jobs/{}", "/jobs/{}/live", "/jobs/{}/charts.json", "/mail/{}", "/api/v2/jobs/{}", "/arrays/{}"]
)
def test_absent_job_may_be_one_of_now_while_a_server_is_away(path: str) -> None:
    desk = make_desk()
    desk.missing = (AWAY,)
    browser = Visitor(make_app(desk), "ada")
    absent, foreign = browser.get(path.format(99)), browser.get(path.format(4712))
    told = Page(absent.text).text
    assert "it does not exist, or it is not yours to see." in told
    assert "so a job of this moment may be missing." in told
    assert AWAY in told
    assert (404, 404, absent.content) == (absent.status_code, foreign.status_code, foreign.content)


def test_programs_hear_too_that_a_job_of_now_may_be_missing() -> None:
    desk = make_desk()
    desk.missing = (AWAY,)
    answer = Visitor(make_app(desk), "ada").get("/api/v1/jobs/99/usage")
    expected = (
        "Job 99 does not exist. Not everything that knows of jobs answers now, so a job of this moment may be missing. "
        "Slurm's accounting does not answer."
    )
    assert (404, {"error": expected}) == (answer.status_code, answer.json())


@pytest.mark.parametrize("path", ["/no/such/page", "/jobs/99", "/static/nothing"])
def test_who_is_not_signed_in_does_not_hear_what_is_away(path: str) -> None:
    desk = make_desk()
    desk.missing = (AWAY,)
    answer = Visitor(make_app(desk)).get(path)
    assert AWAY not in Page(answer.text).text


def test_page_of_an_error_does_not_repeat_the_address() -> None:
    answer = Visitor(make_app(make_desk()), "ada").get("/<script>alert(1)</script>")
    assert "alert" not in answer.text


def test_reader_of_json_gets_json() -> None:
    answer = Visitor(make_app(make_desk()), "ada").get("/nothing", Accept="application/json")
    assert ["error"] == list(answer.json())


def test_parameter_without_meaning_is_named() -> None:
    answer = Visitor(make_app(make_desk()), "ada").get("/api/v2/jobs?limit=0")
    assert 422 == answer.status_code
    assert answer.json()["error"].startswith("limit: ")
