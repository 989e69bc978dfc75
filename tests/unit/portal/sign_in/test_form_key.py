# SPDX-License-Identifier: Apache-2.0
"""Portals that share an archive share the secret of their form tokens."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.core.errors import ArchiveError
from slurmscope.jobs.viewer import Viewer
from slurmscope.portal.sign_in.csrf import RETRY_SECONDS, Csrf, FormKey
from slurmscope.portal.sign_in.errors import Refused
from slurmscope.reports.sources import open_archive

ADA = Viewer(name="ada")
POST = {"type": "http", "method": "POST", "headers": []}


def make_csrf(folder: Path) -> Csrf:
    """Make what another process makes."""

    def create(name: str, text: str) -> str:
        with closing(open_archive(ArchiveSettings(url=f"sqlite:///{folder}/archive.db"))) as archive:
            return Checkpoints(archive.database).create_checkpoint(name, text)

    return Csrf(FormKey(create).read, is_by_token=lambda _: False)


def test_form_of_one_portal_is_accepted_by_another_one_and_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    token = make_csrf(tmp_path).issue(ADA)

    make_csrf(tmp_path).check(ADA, token, POST)
    with pytest.raises(Refused, match="expired"):
        make_csrf(tmp_path / "other").check(ADA, token, POST)
    with pytest.raises(Refused, match="expired"):
        make_csrf(tmp_path).check(Viewer(name="bob"), token, POST)


class Slow(Checkpoints):
    """Find no text, because another process writes it a moment later."""

    has_read = False

    def read_checkpoint(self, name: str) -> str | None:
        found = super().read_checkpoint(name) if self.has_read else None
        self.has_read = True
        return found


def test_first_of_two_secrets_counts(tmp_path: Path) -> None:
    with closing(open_archive(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db"))) as archive:
        first = Checkpoints(archive.database).create_checkpoint("x", "a")

        assert ("a", "a") == (first, Slow(archive.database).create_checkpoint("x", "b"))


def test_unreachable_archive_costs_no_page(tmp_path: Path) -> None:
    now, calls = [0.0], [0]

    def create(_name: str, text: str) -> str:
        calls[0] += 1
        if now[0] <= RETRY_SECONDS:
            raise ArchiveError("it is down")
        return text

    key = FormKey(create, clock=lambda: now[0])
    first = [key.read() for _ in range(3)]
    now[0] = RETRY_SECONDS + 1
    later = [key.read() for _ in range(3)]

    assert (1, 1, 2) == (len({*first}), len({*later}), calls[0])
    assert 32 == len(first[0]) == len(later[0])
    assert first[0] != later[0]
