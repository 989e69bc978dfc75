# SPDX-License-Identifier: Apache-2.0
"""The portal accepts the tokens of the archive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slurmscope.archive.access import TokenStore
from slurmscope.archive.engine import Database
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.jobs.viewer import Viewer, ViewerRole
from slurmscope.portal.sign_in.errors import NotSignedIn
from slurmscope.portal.sign_in.identity import Identifier, limit_failures
from tests.fakes.sign_in import PROXY_SETTINGS, STRANGER, FakeClock, coordinates_nothing, make_scope


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database(ArchiveSettings(url=f"sqlite:///{tmp_path / 'archive.db'}"))) as opened:
        yield opened


def test_token_is_valid_until_it_expires_or_is_revoked(database: Database) -> None:
    clock = FakeClock(1000.0)
    store = TokenStore(database, wall_clock=clock)
    identifier = Identifier(PROXY_SETTINGS, store.find, coordinates_nothing, limit_failures())

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
