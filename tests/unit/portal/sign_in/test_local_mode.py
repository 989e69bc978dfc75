# SPDX-License-Identifier: Apache-2.0
"""Local mode accepts local users, and no other host names, machines or proxies."""

from __future__ import annotations

import os
import pwd

import pytest

from slurmscope.jobs.viewer import Viewer, ViewerRole
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.sign_in.errors import NotSignedIn, Refused
from slurmscope.portal.sign_in.identity import LocalUsers, find_local_users
from tests.fakes.sign_in import GOOD_TOKEN, STRANGER, make_identifier, make_scope, owned_by

IDENTIFIER = make_identifier(PortalSettings())


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8080", "LOCALHOST:9", "127.0.0.1:8080", "127.0.0.1", "[::1]:8080", "[::1]"]
)
@pytest.mark.parametrize("client", ["127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1", None])
def test_local_user_has_full_access(host: str, client: str | None) -> None:
    viewer = IDENTIFIER.identify(make_scope(("host", host), client=client))

    assert Viewer(name="runner", role=ViewerRole.ADMIN) == viewer


def test_settings_can_set_the_local_user() -> None:
    identifier = make_identifier(PortalSettings(local_user="ada"))

    assert "ada" == identifier.identify(make_scope(("host", "localhost"))).name


@pytest.mark.parametrize("client", [STRANGER, "10.0.0.1", "::ffff:10.0.0.1", "fe80::1"])
def test_other_machine_is_rejected(client: str) -> None:
    with pytest.raises(Refused):
        IDENTIFIER.identify(make_scope(("host", "localhost"), client=client))


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "localhost.evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost:8080@evil",
        "", "127.0.0.2", "[::1", "localhost:", "localhost:123456", "localhost\n", "127x0x0x1",
    ],
)  # fmt: skip
def test_other_host_name_is_rejected(host: str) -> None:
    with pytest.raises(Refused):
        IDENTIFIER.identify(make_scope(("host", host)))


def test_missing_or_second_host_is_rejected() -> None:
    with pytest.raises(Refused):
        IDENTIFIER.identify(make_scope())
    with pytest.raises(Refused):
        IDENTIFIER.identify(make_scope(("host", "localhost"), ("Host", "localhost")))


@pytest.mark.parametrize(
    "header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP", "X-Forwarded-Host", "X-Remote-User"]
)
@pytest.mark.parametrize("client", ["127.0.0.1", None])
def test_request_through_a_proxy_is_rejected(header: str, client: str | None) -> None:
    with pytest.raises(Refused):
        IDENTIFIER.identify(make_scope(("host", "127.0.0.1:8080"), (header, "ada"), client=client))


@pytest.mark.parametrize(("uid", "name"), [(1001, "runner"), (0, "runner"), (1002, "eve")])
def test_viewer_is_the_owner_of_the_connection(uid: int, name: str) -> None:
    local_users = LocalUsers(name="runner", names={0: "runner", 1001: "runner", 1002: "eve"}, find_owner=owned_by(uid))
    identifier = make_identifier(PortalSettings(), local_users=local_users)

    assert Viewer(name=name, role=ViewerRole.ADMIN) == identifier.identify(make_scope(("host", "localhost")))


@pytest.mark.parametrize("uid", [1003, None])
def test_other_users_of_this_machine_are_rejected(uid: int | None) -> None:
    local_users = LocalUsers(name="runner", names={0: "runner", 1001: "runner"}, find_owner=owned_by(uid))
    identifier = make_identifier(PortalSettings(), local_users=local_users)

    with pytest.raises(Refused, match="another user"):
        identifier.identify(make_scope(("host", "localhost")))


def test_local_users_are_root_the_runner_the_local_user_and_the_administrators() -> None:
    own = pwd.getpwuid(os.geteuid())
    other = next(entry for entry in pwd.getpwall() if entry.pw_uid not in {0, own.pw_uid})

    local_users = find_local_users(PortalSettings(admins=(other.pw_name, "no-such-user")))
    served = find_local_users(PortalSettings(local_user=other.pw_name))

    assert own.pw_name == local_users.name
    assert {0: own.pw_name, own.pw_uid: own.pw_name, other.pw_uid: other.pw_name} == local_users.names
    assert {0: other.pw_name, own.pw_uid: other.pw_name, other.pw_uid: other.pw_name} == served.names


def test_token_works_in_local_mode() -> None:
    def sign_in(token: str) -> Viewer:
        return IDENTIFIER.identify(make_scope(("host", "localhost"), ("authorization", f"Bearer {token}")))

    assert Viewer(name="ada") == sign_in(GOOD_TOKEN)
    with pytest.raises(NotSignedIn):
        sign_in("wrong-token-0123456789")
