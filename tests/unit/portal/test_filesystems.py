# SPDX-License-Identifier: Apache-2.0
"""Staff see who uses each file system most."""

from __future__ import annotations

import csv
import io

import pytest

from slurmscope.lustre.use import TopClients
from tests.fakes.browser import Page, open_portal
from tests.fakes.portal_backend import TOP_CLIENTS, FakeBackend


def test_lists_are_for_staff_and_access_is_audited(backend: FakeBackend) -> None:
    assert 403 == open_portal(backend, "ada").get("/filesystems").status_code
    assert 403 == open_portal(backend, "cora").get("/filesystems?format=csv").status_code
    assert [] == backend.audited

    assert 200 == open_portal(backend, "sue").get("/filesystems").status_code
    assert [("sue", "file systems of all users")] == [(who, what) for who, _, what in backend.audited]


def test_page_has_jobs_users_and_programs_now_and_of_the_last_day(backend: FakeBackend) -> None:
    page = Page(open_portal(backend, "sue").get("/filesystems").text)

    assert {"/jobs/4711", "/users/ada", "/accounts/physics"} <= set(page.links)
    for text in (
        "Jobs now", "Users now", "Programs outside jobs now", "Jobs in the last 24 hours", "1.86 GiB/s", "5,000/s",
        "6.55 TiB", "18,000,000",
    ):  # fmt: skip
        assert text in page.text


def test_lists_are_available_as_files(backend: FakeBackend) -> None:
    rows = list(csv.DictReader(io.StringIO(open_portal(backend, "root").get("/filesystems?format=csv").text)))

    assert len(TOP_CLIENTS.clients) == len(rows)
    assert {
        "filesystem": "work", "period": "now", "kind": "job", "quantity": "read", "name": "4711", "user": "ada",
        "account": "physics", "amount": "2000000000.0", "cluster": "",
    } == rows[0]  # fmt: skip


@pytest.mark.parametrize(
    ("top", "sentence"),
    [
        (None, "no Prometheus server"),
        (TopClients(), "file systems are idle"),
        (TopClients(problems=("prometheus:9090 timed out <b>",)), "prometheus:9090 timed out &lt;b&gt;"),
    ],
)
def test_missing_statistics_are_explained(backend: FakeBackend, top: TopClients | None, sentence: str) -> None:
    backend.top_clients = top

    assert sentence in open_portal(backend, "sue").get("/filesystems").text
    assert 200 == open_portal(backend, "sue").get("/filesystems?format=json").status_code
