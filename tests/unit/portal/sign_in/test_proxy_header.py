# SPDX-License-Identifier: Apache-2.0
"""The user name header is trusted from listed proxies only, and only if it is unambiguous (W2)."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.sign_in.errors import NotSignedIn, Refused
from slurmscope.portal.sign_in.identity import parse_user
from tests.fakes.sign_in import GOOD_TOKEN, PROXY_ADDRESS, PROXY_SETTINGS, STRANGER, make_identifier, make_scope

NAME_BYTES = (string.ascii_letters + string.digits + "_.+@-").encode()
IDENTIFIER = make_identifier(PROXY_SETTINGS)


def name_for(*headers: tuple[str, str | bytes], client: str | None = PROXY_ADDRESS) -> str:
    return IDENTIFIER.identify(make_scope(*headers, client=client)).name


@pytest.mark.parametrize("spelling", ["x-remote-user", "X-Remote-User", "X-REMOTE-USER"])
@pytest.mark.parametrize("client", [PROXY_ADDRESS, f"::ffff:{PROXY_ADDRESS}", "::FFFF:0A00:0005", None])
def test_listed_proxy_passes_the_user_name(spelling: str, client: str | None) -> None:
    assert "ada" == name_for((spelling, "ada"), client=client)


@pytest.mark.parametrize("spelling", ["x-remote-user", "X-Remote-User", "x_remote_user", "X-Remote_User"])
@pytest.mark.parametrize("client", [STRANGER, "127.0.0.1", "::1", "10.0.0.50", f"::ffff:{STRANGER}", "::10.0.0.5"])
def test_header_from_another_peer_is_rejected(spelling: str, client: str) -> None:
    with pytest.raises(Refused) as rejected:
        name_for((spelling, "eve"), client=client)

    assert 403 == rejected.value.status


def test_header_from_another_peer_is_rejected_even_with_a_valid_token() -> None:
    with pytest.raises(Refused):
        name_for(("x-remote-user", "eve"), ("authorization", f"Bearer {GOOD_TOKEN}"), client=STRANGER)


@pytest.mark.parametrize("second", ["eve", "ada", ""])
@pytest.mark.parametrize("spelling", ["x-remote-user", "X-Remote-User", "x_remote_user", "x-remote_user"])
def test_second_header_is_rejected(spelling: str, second: str) -> None:
    with pytest.raises(Refused):
        name_for(("x-remote-user", "ada"), (spelling, second))
    with pytest.raises(Refused):
        name_for((spelling, second), ("x-remote-user", "ada"))


@pytest.mark.parametrize("spelling", ["x_remote_user", "X_Remote_User", "x-remote_user"])
def test_underscore_spelling_is_rejected(spelling: str) -> None:
    with pytest.raises(Refused):
        name_for((spelling, "ada"))


@pytest.mark.parametrize(
    "value",
    [
        b"", b" ", b" ada", b"ada ", b"ada,eve", b"ada, eve", b"ada eve", b"ada\neve", b"ada\r\nX-Admin: 1", b"ada\0",
        b"ada\x7f", b"\tada", "ad\u00e4".encode(), b"\xff", b"(null)", b"-", b"-ada", b"../ada", b"<script>",
        b"a" * 257,
    ],
)  # fmt: skip
def test_invalid_name_is_rejected(value: bytes) -> None:
    with pytest.raises(Refused):
        name_for(("x-remote-user", value))


def test_longest_name_is_accepted() -> None:
    assert "a" * 256 == name_for(("x-remote-user", "a" * 256))


@pytest.mark.parametrize("client", [PROXY_ADDRESS, STRANGER, None])
def test_request_without_a_header_is_not_signed_in(client: str | None) -> None:
    with pytest.raises(NotSignedIn) as rejected:
        name_for(client=client)

    assert 401 == rejected.value.status
    assert "Bearer" in rejected.value.headers["WWW-Authenticate"]


@pytest.mark.parametrize(
    ("client", "server"),
    [
        (None, ("127.0.0.1", 8080)),  # uvicorn, if the connection was reset early
        (None, None),
        ((PROXY_ADDRESS, 0), ("127.0.0.1", 8080)),  # the port that uvicorn sets for X-Forwarded-For
        (("not an address", 4), ("127.0.0.1", 8080)),
        ((PROXY_ADDRESS,), ("127.0.0.1", 8080)),
        ("10.0.0.5", None),
    ],
)
def test_unknown_peer_is_not_trusted(client: object, server: object) -> None:
    scope = make_scope(("x-remote-user", "eve")) | {"client": client, "server": server}

    with pytest.raises(Refused):
        IDENTIFIER.identify(scope)


def test_unix_socket_is_trusted_only_if_listed() -> None:
    identifier = make_identifier(PortalSettings(mode="proxy", proxy_peers=(PROXY_ADDRESS,)))

    with pytest.raises(Refused):
        identifier.identify(make_scope(("x-remote-user", "ada"), client=None))


def test_every_address_of_a_listed_network_is_trusted() -> None:
    identifier = make_identifier(PortalSettings(mode="proxy", proxy_peers=("10.0.0.0/29", "2001:db8::/64")))

    for client in ("10.0.0.7", "::ffff:10.0.0.1", "2001:db8::99", "2001:db8::99%eth0"):
        assert "ada" == identifier.identify(make_scope(("x-remote-user", "ada"), client=client)).name
    for client in ("10.0.0.8", "2001:db8:0:1::1"):
        with pytest.raises(Refused):
            identifier.identify(make_scope(("x-remote-user", "ada"), client=client))


def test_header_can_be_configured() -> None:
    identifier = make_identifier(PortalSettings(mode="proxy", proxy_peers=("unix",), proxy_header="OIDC-User"))

    assert "ada" == identifier.identify(make_scope(("oidc-user", "ada"), client=None)).name
    with pytest.raises(NotSignedIn):
        identifier.identify(make_scope(("x-remote-user", "ada"), client=None))


@pytest.mark.parametrize(
    ("given_name", "name"),
    [
        ("ada@EXAMPLE.ORG", "ada"),
        ("ada@example.org", "ada"),
        ("ada@evil.example", "ada@evil.example"),
        ("ada@evil.example@example.org", "ada@evil.example"),
        ("ada", "ada"),
    ],
)
def test_only_a_listed_domain_is_stripped(given_name: str, name: str) -> None:
    identifier = make_identifier(PortalSettings(mode="proxy", strip_domain=("Example.org",)))

    assert name == identifier.identify(make_scope(("x-remote-user", given_name), client=None)).name


def test_domain_alone_is_no_name() -> None:
    with pytest.raises(Refused):
        parse_user(b"@example.org", {"example.org"})


def test_length_limit_includes_the_domain() -> None:
    with pytest.raises(Refused):
        parse_user(b"a" * 250 + b"@example.org", {"example.org"})


@given(st.binary(max_size=300) | st.text("aZ09_.+@-, ", max_size=300).map(str.encode))
def test_any_bytes_are_a_plain_name_or_rejected(value: bytes) -> None:
    is_plain = 0 < len(value) <= 256 and set(value) <= set(NAME_BYTES) and value[0] not in b".+@-"
    try:
        name = parse_user(value, frozenset())
    except Refused:
        assert not is_plain
    else:
        assert is_plain
        assert value == name.encode("ascii")


@given(st.lists(st.tuples(st.sampled_from(["x-remote-user", "X_Remote_User", "x-other"]), st.binary(max_size=8))))
def test_name_comes_only_from_a_single_header(headers: list[tuple[str, bytes]]) -> None:
    like_it = [(name, value) for name, value in headers if name != "x-other"]
    try:
        name = name_for(*headers)
    except NotSignedIn:
        assert [] == like_it
    except Refused:
        assert like_it
    else:
        assert [("x-remote-user", name.encode())] == like_it
