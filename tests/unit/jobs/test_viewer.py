# SPDX-License-Identifier: Apache-2.0
"""People see their own jobs, coordinators those of their accounts, staff all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.jobs.viewer import EVERYTHING, Viewer, ViewerRole

ADA = Viewer(name="ada")
COORDINATOR = Viewer(name="ada", coordinates=frozenset({"physics"}))
SUPPORT = Viewer(name="ada", role=ViewerRole.SUPPORT)
ADMIN = Viewer(name="ada", role=ViewerRole.ADMIN)


@pytest.mark.parametrize(
    ("viewer", "user", "account", "expected"),
    [
        (ADA, "ada", "chemistry", True),
        (ADA, "bob", "chemistry", False),
        (COORDINATOR, "bob", "physics", True),
        (COORDINATOR, "bob", "chemistry", False),
        (COORDINATOR, "ada", "chemistry", True),
        (SUPPORT, "bob", "chemistry", True),
        (ADMIN, "bob", "chemistry", True),
        (EVERYTHING, "bob", "chemistry", True),
    ],
)
def test_viewer_sees_only_permitted_jobs(viewer: Viewer, user: str, account: str, expected: bool) -> None:
    assert expected == viewer.sees(user, account, "lab")


def test_coordinator_of_some_clusters_sees_accounts_of_these_only() -> None:
    viewer = replace(COORDINATOR, coordinated_clusters=frozenset({"alpha"}))
    assert [True, False, False] == [viewer.sees("bob", "physics", cluster) for cluster in ("alpha", "beta", "")]
    assert viewer.sees("ada", "physics", "beta")
    assert not replace(viewer, coordinated_clusters=frozenset()).sees("bob", "physics", "alpha")
    assert replace(viewer, role=ViewerRole.SUPPORT).sees("bob", "physics", "beta")


def test_only_support_and_admins_are_staff() -> None:
    assert [False, False, True, True] == [viewer.is_staff for viewer in (ADA, COORDINATOR, SUPPORT, ADMIN)]
