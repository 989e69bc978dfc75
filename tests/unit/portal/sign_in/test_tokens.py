# SPDX-License-Identifier: Apache-2.0
"""A token signs in its owner, and guessing is throttled (W5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.log import LineFormatter, RepeatFilter
from slurmscope.jobs.viewer import Viewer, ViewerRole
from slurmscope.portal.sign_in.errors import NotSignedIn, Refused, TooMany
from slurmscope.portal.sign_in.identity import Identifier, read_token
from tests.fakes.sign_in import (
    GOOD_TOKEN,
    PROXY_ADDRESS,
    PROXY_SETTINGS,
    STRANGER,
    FakeClock,
    FakeTokens,
    make_identifier,
    make_scope,
)

WRONG_TOKEN = "wrong-token-of-no-one"


def sign_in(identifier: Identifier, token: str, *more: tuple[str, str], client: str = STRANGER) -> Viewer:
    return identifier.identify(make_scope(("authorization", f"Bearer {token}"), *more, client=client))


def guess(identifier: Identifier, count: int, *more: tuple[str, str], client: str = STRANGER) -> None:
    for number in range(count):
        with pytest.raises(NotSignedIn):
            sign_in(identifier, f"wrong-token-of-no-one-{number}", *more, client=client)


def test_token_has_its_role() -> None:
    tokens = FakeTokens(known={GOOD_TOKEN: Viewer(name="robot", role=ViewerRole.SUPPORT)})

    assert Viewer(name="robot", role=ViewerRole.SUPPORT) == sign_in(
        make_identifier(PROXY_SETTINGS, tokens=tokens), GOOD_TOKEN
    )


def test_token_of_a_coordinator_shows_the_coordinated_accounts() -> None:
    identifier = make_identifier(PROXY_SETTINGS, coordinators={"ada": frozenset({"physics"})}.__getitem__)

    assert Viewer(name="ada", coordinates=frozenset({"physics"})) == sign_in(identifier, GOOD_TOKEN)


def test_sixth_guess_has_to_wait() -> None:
    clock = FakeClock()
    identifier = make_identifier(PROXY_SETTINGS, clock=clock)
    guess(identifier, 5)

    with pytest.raises(TooMany) as rejected:
        sign_in(identifier, WRONG_TOKEN)

    assert 429 == rejected.value.status
    assert {"Retry-After": "180"} == rejected.value.headers
    guess(identifier, 1, client="203.0.113.10")
    clock.seconds += 180
    guess(identifier, 1)
    with pytest.raises(TooMany):
        sign_in(identifier, WRONG_TOKEN)


def test_guesses_do_not_block_a_valid_token_from_the_same_address() -> None:
    identifier = make_identifier(PROXY_SETTINGS)
    guess(identifier, 5)

    assert "ada" == sign_in(identifier, GOOD_TOKEN).name


def test_refused_sign_in_is_logged_without_the_token(caplog: pytest.LogCaptureFixture) -> None:
    identifier = make_identifier(PROXY_SETTINGS)
    guess(identifier, 5)
    with pytest.raises(TooMany):
        sign_in(identifier, WRONG_TOKEN)
    with pytest.raises(Refused):
        identifier.identify(make_scope(("x-remote-user", "ada"), client=STRANGER))
    # A page without any identity is not an attempt to sign in.
    with pytest.raises(NotSignedIn):
        identifier.identify(make_scope(client=STRANGER))
    repeats, formatter = RepeatFilter(), LineFormatter("logfmt")
    lines = [formatter.format(record) for record in caplog.records if repeats.is_wanted(record)]

    reasons = ("unknown, revoked or expired", "Too many wrong tokens", "not trusted")
    assert all(reason in line and f"client={STRANGER}" in line for line, reason in zip(lines, reasons, strict=True)), (
        lines
    )
    assert not any("wrong-token" in line for line in lines)


def test_revoked_token_is_invalid() -> None:
    tokens = FakeTokens()
    identifier = make_identifier(PROXY_SETTINGS, tokens=tokens)
    sign_in(identifier, GOOD_TOKEN)
    guess(identifier, 4)
    tokens.known.clear()

    with pytest.raises(NotSignedIn):
        sign_in(identifier, GOOD_TOKEN)
    with pytest.raises(TooMany):
        sign_in(identifier, GOOD_TOKEN)


def test_clients_behind_one_proxy_are_counted_separately() -> None:
    identifier = make_identifier(PROXY_SETTINGS)
    guess(identifier, 5, ("x-forwarded-for", "198.51.100.1, 192.0.2.1"), client=PROXY_ADDRESS)

    with pytest.raises(TooMany):
        sign_in(identifier, WRONG_TOKEN, ("x-forwarded-for", "192.0.2.1"), client=PROXY_ADDRESS)
    guess(identifier, 1, ("x-forwarded-for", "192.0.2.2"), client=PROXY_ADDRESS)
    guess(identifier, 1, ("x-forwarded-for", "odd"), client=PROXY_ADDRESS)


def test_forwarded_address_from_an_untrusted_peer_is_ignored() -> None:
    identifier = make_identifier(PROXY_SETTINGS)
    guess(identifier, 5, ("x-forwarded-for", "192.0.2.1"))

    with pytest.raises(TooMany):
        sign_in(identifier, WRONG_TOKEN, ("x-forwarded-for", "192.0.2.2"))


def test_user_name_from_the_proxy_takes_precedence_over_a_token() -> None:
    identifier = make_identifier(PROXY_SETTINGS)
    headers = (("x-remote-user", "bob"), ("authorization", "Bearer eyJhbGciOiJSUzI1NiJ9.e30.x"))

    assert "bob" == identifier.identify(make_scope(*headers, client=PROXY_ADDRESS)).name
    assert not identifier.is_by_token(make_scope(*headers, client=PROXY_ADDRESS))
    assert identifier.is_by_token(make_scope(headers[1], client=PROXY_ADDRESS))
    assert not identifier.is_by_token(make_scope(client=PROXY_ADDRESS))


def test_second_authorization_header_is_rejected() -> None:
    with pytest.raises(Refused):
        read_token(make_scope(("authorization", "Bearer a"), ("Authorization", "Bearer b")))


@pytest.mark.parametrize("value", ["Basic YTpi", "", "Bearerx", "Negotiate abc"])
def test_other_schemes_are_no_token(value: str) -> None:
    assert read_token(make_scope(("authorization", value))) is None


@pytest.mark.parametrize("value", ["Bearer abc", "bearer abc", "BEARER  abc "])
def test_scheme_may_be_written_in_any_case(value: str) -> None:
    assert "abc" == read_token(make_scope(("authorization", value)))


@given(st.binary(max_size=400))
def test_only_plausible_tokens_reach_the_archive(value: bytes) -> None:
    tokens = FakeTokens()
    identifier = make_identifier(PROXY_SETTINGS, tokens=tokens)

    with pytest.raises(NotSignedIn):
        identifier.identify(make_scope(("authorization", b"Bearer " + value), client=STRANGER))
    assert all(token.isascii() and token.isprintable() and " " not in token for token in tokens.lookups)
