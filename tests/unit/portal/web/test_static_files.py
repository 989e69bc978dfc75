# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from slurmscope.portal.web.middleware import protect
from slurmscope.portal.web.templates import FOLDER, StaticFiles
from tests.fakes.browser import Page, PortalClient
from tests.fakes.portal_backend import make_backend


@pytest.mark.parametrize("coding", ["gzip", "identity"])
def test_every_file_of_a_page_exists_and_is_cacheable(coding: str) -> None:
    backend = make_backend()
    browser = PortalClient(protect(backend.make_app(), identity_header=backend.settings.proxy_header), "ada")
    page = Page(browser.get("/jobs/4720").text)
    links = [attrs.get("href") for attrs in page.all("link")] + [attrs.get("src") for attrs in page.all("script")]
    names = {str(link).rpartition("/")[2] for link in links}
    assert {"icon.svg", "style.css", "time.js", "charts.js", "heat.js"} <= names
    for link in links:
        answer = browser.get(str(link), accept_encoding=coding)
        assert 200 == answer.status_code
        assert "immutable" in answer.headers["cache-control"]
        assert coding == answer.headers.get("content-encoding", "identity")
        assert str(link).split("/")[2] == hashlib.sha256(answer.content).hexdigest()[:12]


def test_everything_else_is_not_cacheable() -> None:
    backend = make_backend()
    browser = PortalClient(protect(backend.make_app(), identity_header=backend.settings.proxy_header), "ada")
    for path in ("/", "/jobs/4711", "/jobs/4711/charts.json", "/jobs?format=csv", "/nothing", "/api/v2/jobs"):
        assert "private, no-store" == browser.get(path).headers["cache-control"]


@pytest.mark.parametrize(
    "path", ["/static/", "/static/style.css", "/static/000000000000/style.css", "/static/../app.py"]
)
def test_other_addresses_are_not_found(path: str) -> None:
    assert 404 == PortalClient(make_backend().make_app()).get(path).status_code


def test_address_changes_with_the_content(tmp_path: Path) -> None:
    file = tmp_path / "a.css"
    file.write_text("a{}")
    first = StaticFiles(tmp_path).address("a.css")
    file.write_text("b{}")
    assert first != StaticFiles(tmp_path).address("a.css")


def test_other_file_types_are_not_served(tmp_path: Path) -> None:
    (tmp_path / "secret.py").write_text("x")
    with pytest.raises(KeyError):
        StaticFiles(tmp_path).address("secret.py")


def test_pages_load_nothing_from_other_hosts() -> None:
    # XML namespaces are not requested.
    names = {"http://www.w3.org/2000/svg"}
    own = [FOLDER / "style.css", FOLDER / "charts.js", FOLDER / "icon.svg", *FOLDER.parent.glob("templates/*.html")]
    found = {
        link for path in own for link in re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]+[^\s\"')]*", path.read_text())
    }
    assert set() == found - names


def test_vendored_files_have_their_licences() -> None:
    names = {path.name for path in (FOLDER / "vendor").iterdir()}
    assert {"uplot-LICENSE.txt", "htmx-LICENSE.txt", "VERSIONS.txt"} <= names
