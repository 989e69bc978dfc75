# SPDX-License-Identifier: Apache-2.0
"""Staff write notes and tags that users never see, and viewers save filters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.fakes.archive_backend import ArchiveBackend, open_archive_backend
from tests.fakes.browser import Page, PortalClient
from tests.fakes.forms import post
from tests.fakes.portal_backend import VIEWERS
from tests.fakes.reports import HOSTILE_NAME, make_record, make_report


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[ArchiveBackend]:
    reports = [make_report(), make_report(make_record(5, user="bob"))]
    with open_archive_backend(tmp_path, reports) as backend:
        yield backend


def send(backend: ArchiveBackend, who: str, path: str, **fields: str) -> httpx.Response:
    app = backend.make_app()
    token = app.state.services.csrf.issue(VIEWERS[who])
    return post(app, path, {**fields, "csrf_token": token}, who)


def read(backend: ArchiveBackend, who: str, path: str) -> str:
    return str(PortalClient(backend.make_app(), who).get(path).text)


@pytest.mark.parametrize(("kind", "name", "page"), [("job", "4711", "/jobs/4711"), ("user", "ada", "/users/ada")])
def test_notes_and_tags_are_shown_to_staff_only(backend: ArchiveBackend, kind: str, name: str, page: str) -> None:
    note = f"Ask about input files.\r\n{HOSTILE_NAME}"
    answers = [
        send(backend, "sue", "/staff/notes", kind=kind, name=name, change=change, text=text)
        for change, text in (("add-note", note), ("add-tag", "Slow-IO"))
    ]

    assert [(303, f"{page}#staff")] * 2 == [(answer.status_code, answer.headers["location"]) for answer in answers]
    shown = read(backend, "root", page)
    assert "Ask about input files." in shown
    assert "<script>alert(1)" not in shown
    assert "slow-io" in shown
    assert "Ask about" not in read(backend, "ada", page)
    assert "slow-io" not in read(backend, "ada", page)
    assert "slow-io" in read(backend, "sue", "/tags")
    assert ["add-note", "add-tag"] == [
        entry[2].split()[0] for entry in backend.fake.audited if entry[1] == "/staff/notes"
    ]
    send(backend, "root", "/staff/notes", kind=kind, name=name, change="delete-note", text="1")
    send(backend, "root", "/staff/notes", kind=kind, name=name, change="remove-tag", text="slow-io")
    assert "Ask about" not in read(backend, "sue", page)
    assert "slow-io" not in read(backend, "sue", page)


@pytest.mark.parametrize(
    ("change", "text"),
    [("add-note", " "), ("add-note", "x" * 2001), ("add-tag", "two words"), ("add-tag", ""), ("delete-note", "all")],
)
def test_unfit_notes_and_tags_are_rejected(backend: ArchiveBackend, change: str, text: str) -> None:
    answer = send(backend, "sue", "/staff/notes", kind="job", name="4711", change=change, text=text)

    assert 400 == answer.status_code


def test_note_on_what_does_not_exist_is_rejected(backend: ArchiveBackend) -> None:
    for kind, name in (("job", "99"), ("user", "nobody-here"), ("user", "")):
        answer = send(backend, "sue", "/staff/notes", kind=kind, name=name, change="add-tag", text="slow")
        assert answer.status_code in {404, 422}


def test_one_view_too_many_is_refused_with_what_to_do(backend: ArchiveBackend) -> None:
    statuses = {send(backend, "ada", "/views", name=f"view {number}", query="").status_code for number in range(50)}

    answer = send(backend, "ada", "/views", name="one more", query="")

    assert ({303}, 400) == (statuses, answer.status_code)
    assert "There are 50 saved views already. Delete one first." in answer.text


def test_view_is_saved_shared_and_deleted(backend: ArchiveBackend) -> None:
    shared = send(
        backend, "sue", "/views", name="Leaking", query="?state=out_of_memory&cpu_max=20&evil=1", shared="true"
    )
    send(backend, "ada", "/views", name="mine <b>", query="?user=ada")

    assert "/jobs?state=OUT_OF_MEMORY&cpu_max=20#views" == shared.headers["location"]
    assert "/jobs?state=OUT_OF_MEMORY&cpu_max=20" in Page(read(backend, "root", "/jobs")).links
    own = read(backend, "ada", "/jobs")
    assert "mine &lt;b&gt;" in own
    assert "Leaking" not in own
    assert 403 == send(backend, "ada", "/views", name="x", query="", shared="true").status_code
    assert 400 == send(backend, "ada", "/views", name="x", query="?cpu_max=much").status_code
    assert 400 == send(backend, "ada", "/views", name=" ", query="").status_code
    send(backend, "ada", "/views/delete", view_id="1")
    assert "Leaking" in read(backend, "sue", "/jobs")
    send(backend, "sue", "/views/delete", view_id="1")
    assert "Leaking" not in read(backend, "sue", "/jobs")
