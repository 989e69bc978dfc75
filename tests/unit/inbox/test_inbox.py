# SPDX-License-Identifier: Apache-2.0
"""Check that an inbox is opened only when it is enabled, and that a reload keeps what is in it."""

from __future__ import annotations

import zlib
from pathlib import Path

from slurmscope.http.server.request import HttpRequest
from slurmscope.inbox.inbox import INBOX_METRICS, Inbox
from slurmscope.inbox.store import InboxSettings
from slurmscope.metrics.parse import parse
from slurmscope.metrics.write import Format
from tests.fakes.push_inbox import OWN


def make(settings: InboxSettings) -> Inbox:
    return Inbox(settings, OWN, label_length_limit=100)


def push(inbox: Inbox, job: str) -> int:
    (route,) = set(inbox.routes.values())
    request = HttpRequest(method="PUT", path=f"/metrics/job/{job}", headers={}, body=b"a 1\n", peer="127.0.0.1")
    return route.answer(request).status


def jobs(inbox: Inbox) -> set[str]:
    page = zlib.decompress(b"".join(inbox.page().blocks), wbits=31).decode()
    return {sample.labels["job"] for family in parse(page, Format.TEXT) for sample in family.samples}


def test_inbox_that_is_not_enabled_has_no_path_and_no_page() -> None:
    inbox = make(InboxSettings())
    inbox.open(None)

    assert not inbox.is_open
    assert ({}, (), []) == (inbox.routes, inbox.page().blocks, list(inbox.families()))
    inbox.close()


def test_inbox_exports_metrics_about_itself() -> None:
    inbox = make(InboxSettings(enabled=True))
    inbox.open(None)
    assert 200 == push(inbox, "x")
    assert 400 == push(inbox, "x/y")

    families = list(inbox.families())
    assert INBOX_METRICS == tuple(family.metric for family in families)
    groups, series, _, expired, refused = (family.samples for family in families)
    assert ({(): 1}, {(): 1}, {(): 0}, {("path",): 1}) == (groups, series, expired, refused)
    inbox.close()


def test_reload_keeps_groups_and_uses_new_limits(tmp_path: Path) -> None:
    first = make(InboxSettings(enabled=True, directory=tmp_path))
    first.open(None)
    assert 200 == push(first, "x")

    second = make(InboxSettings(enabled=True, directory=tmp_path, size=20 * 640))
    second.open(first)
    # A request that began before the reload ends in the same inbox.
    assert 200 == push(first, "y")
    first.close()
    assert {"x", "y"} == jobs(second)
    assert 503 == push(second, "z")
    second.close()

    third = make(InboxSettings(enabled=True, directory=tmp_path))
    third.open(make(InboxSettings()))
    assert {"x", "y"} == jobs(third)
    third.close()
