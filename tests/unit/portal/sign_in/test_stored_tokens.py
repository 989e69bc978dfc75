# SPDX-License-Identifier: Apache-2.0
"""Tokens and traces that the archive keeps are those that the portal works with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slurmscope.model.viewer import Viewer, ViewerRole
from slurmscope.portal.pages.audit_trail import audit_view
from slurmscope.portal.sign_in.identity import Identifier, NotSignedIn
from slurmscope.portal.sign_in.limits import SignInLimits
from slurmscope.store.archive.audit import AuditLog
from slurmscope.store.archive.engine import Database
from slurmscope.store.archive.settings import ArchiveSettings
from slurmscope.store.archive.tokens import TokenStore
from tests.fakes.sign_in import PROXY_SETTINGS, STRANGER, FakeClock, coordinates_nothing, make_scope


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database(ArchiveSettings(url=f"sqlite:///{tmp_path / 'archive.db'}"))) as opened:
        yield opened


def test_token_lets_in_until_it_expires_or_is_taken_back(database: Database) -> None:
    clock = FakeClock(1000.0)
    store = TokenStore(database, wall_clock=clock)
    identifier = Identifier(PROXY_SETTINGS, store, coordinates_nothing, SignInLimits())

    def sign_in(token: str) -> Viewer:
        return identifier.identify(make_scope(("authorization", f"Bearer {token}"), client=STRANGER))

    token = store.create("robot", ViewerRole.SUPPORT, expires_seconds=2000)
    other = store.create("ada")
    assert Viewer(name="robot", role=ViewerRole.SUPPORT) == sign_in(token)
    assert Viewer(name="ada") == sign_in(other)

    clock.seconds = 2000.0
    with pytest.raises(NotSignedIn):
        sign_in(token)
    store.revoke(next(info.token_id for info in store.list_tokens("ada")))
    with pytest.raises(NotSignedIn):
        sign_in(other)


def test_look_of_staff_is_a_row(database: Database) -> None:
    trail = AuditLog(database, wall_clock=FakeClock(1000.0))

    audit_view(trail, Viewer(name="sue", role=ViewerRole.SUPPORT), "/jobs/{shown_id}", "job 4711", owner="ada")
    audit_view(trail, Viewer(name="ada"), "/jobs/{shown_id}", "job 4711", owner="ada")

    rows = [(row.at_seconds, row.viewer, row.role, row.route, row.subject) for row in trail.list_rows()]
    assert [(1000, "sue", "support", "/jobs/{shown_id}", "job 4711")] == rows
