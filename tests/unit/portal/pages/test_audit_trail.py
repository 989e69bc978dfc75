# SPDX-License-Identifier: Apache-2.0
"""Staff leave a trace where they look at what is not theirs, and nobody else does."""

from __future__ import annotations

import pytest

from slurmscope.errors import ArchiveError
from slurmscope.model.viewer import Viewer, ViewerRole
from slurmscope.portal.pages.audit_trail import audit_view

USER = Viewer(name="ada", coordinates=frozenset({"physics"}))
SUPPORT = Viewer(name="sue", role=ViewerRole.SUPPORT)
ADMIN = Viewer(name="eve", role=ViewerRole.ADMIN)


class FakeTrail:
    """Keep rows in a list."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str]] = []

    def audit(self, viewer: Viewer, route: str, subject: str) -> None:
        self.rows.append((viewer.name, route, subject))


@pytest.mark.parametrize("viewer", [SUPPORT, ADMIN])
@pytest.mark.parametrize("owner", ["ada", ""])
def test_staff_who_look_at_what_is_not_theirs_are_written_down(viewer: Viewer, owner: str) -> None:
    trail = FakeTrail()

    audit_view(trail, viewer, "/jobs/{id}", "job 4711", owner=owner)

    assert [(viewer.name, "/jobs/{id}", "job 4711")] == trail.rows


@pytest.mark.parametrize(("viewer", "owner"), [(USER, "bob"), (USER, "ada"), (SUPPORT, "sue"), (ADMIN, "eve")])
def test_other_looks_are_not(viewer: Viewer, owner: str) -> None:
    trail = FakeTrail()

    audit_view(trail, viewer, "/jobs/{id}", "job 4711", owner=owner)

    assert [] == trail.rows


def test_what_cannot_be_written_down_is_not_shown() -> None:
    class BrokenTrail:
        def audit(self, viewer: Viewer, route: str, subject: str) -> None:
            raise ArchiveError("the archive is away")

    with pytest.raises(ArchiveError):
        audit_view(BrokenTrail(), SUPPORT, "/jobs/{id}", "job 4711", owner="ada")
