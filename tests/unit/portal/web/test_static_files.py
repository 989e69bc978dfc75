# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from slurmscope.portal.app import make_app
from slurmscope.portal.web.server import protect
from slurmscope.portal.web.static_files import FOLDER, StaticFiles
from tests.fakes.browser import Page, Visitor
from tests.fakes.portal_desk import make_desk


@pytest.mark.parametrize("coding", ["gzip", "identity"])
def test_every_file_of_a_page_is_there_and_may_be_kept_for_ever(coding: str) -> None:
    desk = make_desk()
    browser = Visitor(protect(make_app(desk), desk.settings), "ada")
    page = Page(browser.get("/jobs/4720").text)
    links = [attrs.get("href") for attrs in page.all("link")] + [attrs.get("src") for attrs in page.all("script")]
    assert 6 == len(links)
    for link in links:
        answer = browser.get(str(link), accept_encoding=coding)
        assert 200 == answer.status_code
        assert "immutable" in answer.headers["cache-control"]
        assert coding == answer.headers.get("content-encoding", "identity")
        assert str(link).split("/")[2] == hashlib.sha256(answer.content).hexdigest()[:12]


def test_everything_else_is_kept_nowhere() -> None:
    desk = make_desk()
    browser = Visitor(protect(make_app(desk), desk.settings), "ada")
    for path in ("/", "/jobs/4711", "/jobs/4711/charts.json", "/jobs?format=csv", "/nothing", "/api/v2/jobs"):
        assert "private, no-store" == browser.get(path).headers["cache-control"]


@pytest.mark.parametrize(
    "path", ["/static/", "/static/style.css", "/static/000000000000/style.css", "/static/../app.py"]
)
def test_other_addresses_are_not_found(path: str) -> None:
    assert 404 == Visitor(make_app(make_desk())).get(path).status_code


def test_address_changes_with_the_content(tmp_path: Path) -> None:
    file = tmp_path / "a.css"
    file.write_text("a{}")
    first = StaticFiles(tmp_path).address("a.css")
    file.write_text("b{}")
    assert first != StaticFiles(tmp_path).address("a.css")


def test_files_that_are_not_for_browsers_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "secret.py").write_text("x")
    with pytest.raises(KeyError):
        StaticFiles(tmp_path).address("secret.py")


def test_nothing_comes_from_another_host() -> None:
    # The names of XML's own name spaces are no addresses that anybody asks.
    names = {"http://www.w3.org/2000/svg"}
    own = [FOLDER / "style.css", FOLDER / "charts.js", FOLDER / "icon.svg", *FOLDER.parent.glob("templates/*.html")]
    found = {
        link for path in own for link in re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]+[^\s\"')]*", path.read_text())
    }
    assert set() == found - names


def test_vendored_files_have_their_licences() -> None:
    names = {path.name for path in (FOLDER / "vendor").iterdir()}
    assert {"uplot-LICENSE.txt", "htmx-LICENSE.txt", "VERSIONS.txt"} <= names
