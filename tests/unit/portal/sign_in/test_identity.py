# SPDX-License-Identifier: Apache-2.0
"""User names become viewers with their role and accounts."""

from __future__ import annotations

import pytest

from slurmscope.jobs.viewer import Viewer, ViewerRole
from tests.fakes.sign_in import GOOD_TOKEN, PROXY_SETTINGS, FakeTokens, make_identifier, make_scope


def must_not_query(user: str) -> frozenset[str]:
    raise AssertionError(f"queried {user}")


@pytest.mark.parametrize(
    ("name", "role"), [("eve", ViewerRole.ADMIN), ("root", ViewerRole.ADMIN), ("sue", ViewerRole.SUPPORT)]
)
def test_staff_are_set_by_the_settings_and_slurm_is_not_queried(name: str, role: ViewerRole) -> None:
    identifier = make_identifier(PROXY_SETTINGS, coordinators=must_not_query)

    assert Viewer(name=name, role=role) == identifier.identify(make_scope(("x-remote-user", name), client=None))


@pytest.mark.parametrize("name", ["ada", "Eve", "SUE", "eve@example.org"])
def test_others_are_users(name: str) -> None:
    identifier = make_identifier(PROXY_SETTINGS)

    assert Viewer(name=name) == identifier.identify(make_scope(("x-remote-user", name), client=None))


def test_coordinator_is_a_user_with_accounts() -> None:
    identifier = make_identifier(PROXY_SETTINGS, coordinators={"bob": frozenset({"physics", "bio"})}.__getitem__)

    viewer = identifier.identify(make_scope(("x-remote-user", "bob"), client=None))

    assert Viewer(name="bob", coordinates=frozenset({"physics", "bio"})) == viewer


def test_coordinator_is_one_in_the_clusters_of_accounting_only() -> None:
    coordinators = {"bob": frozenset({"physics"}), "ada": frozenset[str]()}.__getitem__
    identifier = make_identifier(PROXY_SETTINGS, coordinators=coordinators, clusters=frozenset({"alpha"}))

    bob, ada = (identifier.identify(make_scope(("x-remote-user", name), client=None)) for name in ("bob", "ada"))

    assert [True, False] == [bob.sees("eve", "physics", cluster) for cluster in ("alpha", "beta")]
    assert Viewer(name="ada") == ada


def test_user_token_of_staff_has_the_role_user() -> None:
    tokens = FakeTokens(known={GOOD_TOKEN: Viewer(name="eve")})
    identifier = make_identifier(PROXY_SETTINGS, tokens=tokens)

    viewer = identifier.identify(make_scope(("authorization", f"Bearer {GOOD_TOKEN}"), client="203.0.113.9"))

    assert ViewerRole.USER == viewer.role
