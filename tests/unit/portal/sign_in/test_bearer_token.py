# SPDX-License-Identifier: Apache-2.0
"""A token lets its owner in, and guesses are few (W5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.model.viewer import Viewer, ViewerRole
from slurmscope.portal.sign_in.bearer_token import KNOWN_LIMIT, BearerTokens, read_token
from slurmscope.portal.sign_in.identity import Identifier, NotSignedIn, Refused, TooManyFailures
from slurmscope.portal.sign_in.limits import SignInLimits
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


def sign_in(identifier: Identifier, token: str, *more: tuple[str, str], client: str = STRANGER) -> Viewer:
    return identifier.identify(make_scope(("authorization", f"Bearer {token}"), *more, client=client))


def guess(identifier: Identifier, count: int, *more: tuple[str, str], client: str = STRANGER) -> None:
    for number in range(count):
        with pytest.raises(NotSignedIn):
            sign_in(identifier, f"wrong-token-of-nobody-{number}", *more, client=client)


def test_token_has_the_role_it_was_given() -> None:
    tokens = FakeTokens(known={GOOD_TOKEN: Viewer(name="robot", role=ViewerRole.SUPPORT)})

    assert Viewer(name="robot", role=ViewerRole.SUPPORT) == sign_in(
        make_identifier(PROXY_SETTINGS, tokens=tokens), GOOD_TOKEN
    )


def test_token_of_a_coordinator_shows_the_coordinated_accounts() -> None:
    identifier = make_identifier(PROXY_SETTINGS, coordinators={"ada": frozenset({"physics"})}.__getitem__)

    assert Viewer(name="ada", coordinates=frozenset({"physics"})) == sign_in(identifier, GOOD_TOKEN)


def test_sixth_guess_is_not_even_looked_at() -> None:
    clock, tokens = FakeClock(), FakeTokens()
    identifier = make_identifier(PROXY_SETTINGS, tokens=tokens, clock=clock)
    guess(identifier, 5)

    with pytest.raises(TooManyFailures) as turned_away:
        sign_in(identifier, GOOD_TOKEN)

    assert 429 == turned_away.value.status
    assert {"Retry-After": "900"} == turned_away.value.headers
    assert 5 == len(tokens.asked)
    assert "ada" == sign_in(identifier, GOOD_TOKEN, client="203.0.113.10").name
    clock.seconds += 900
    assert "ada" == sign_in(identifier, GOOD_TOKEN).name


def test_guesses_do_not_shut_out_a_token_that_was_good_before() -> None:
    identifier = make_identifier(PROXY_SETTINGS)
    sign_in(identifier, GOOD_TOKEN)
    guess(identifier, 5)

    assert "ada" == sign_in(identifier, GOOD_TOKEN).name


def test_revoked_token_is_no_longer_good() -> None:
    tokens = FakeTokens()
    identifier = make_identifier(PROXY_SETTINGS, tokens=tokens)
    sign_in(identifier, GOOD_TOKEN)
    guess(identifier, 4)
    tokens.known.clear()

    with pytest.raises(NotSignedIn):
        sign_in(identifier, GOOD_TOKEN)
    with pytest.raises(TooManyFailures):
        sign_in(identifier, GOOD_TOKEN)


def test_clients_behind_one_proxy_are_counted_apart() -> None:
    identifier = make_identifier(PROXY_SETTINGS)
    guess(identifier, 5, ("x-forwarded-for", "198.51.100.1, 192.0.2.1"), client=PROXY_ADDRESS)

    with pytest.raises(TooManyFailures):
        sign_in(identifier, GOOD_TOKEN, ("x-forwarded-for", "192.0.2.1"), client=PROXY_ADDRESS)
    assert "ada" == sign_in(identifier, GOOD_TOKEN, ("x-forwarded-for", "192.0.2.2"), client=PROXY_ADDRESS).name
    assert "ada" == sign_in(identifier, GOOD_TOKEN, ("x-forwarded-for", "odd"), client=PROXY_ADDRESS).name


def test_address_that_a_stranger_claims_changes_nothing() -> None:
    identifier = make_identifier(PROXY_SETTINGS)
    guess(identifier, 5, ("x-forwarded-for", "192.0.2.1"))

    with pytest.raises(TooManyFailures):
        sign_in(identifier, GOOD_TOKEN, ("x-forwarded-for", "192.0.2.2"))


def test_name_that_the_proxy_tells_goes_before_a_token_that_it_adds() -> None:
    identifier = make_identifier(PROXY_SETTINGS)
    headers = (("x-remote-user", "bob"), ("authorization", "Bearer eyJhbGciOiJSUzI1NiJ9.e30.x"))

    assert "bob" == identifier.identify(make_scope(*headers, client=PROXY_ADDRESS)).name
    assert not identifier.is_by_token(make_scope(*headers, client=PROXY_ADDRESS))
    assert identifier.is_by_token(make_scope(headers[1], client=PROXY_ADDRESS))
    assert not identifier.is_by_token(make_scope(client=PROXY_ADDRESS))


def test_second_authorization_header_is_refused() -> None:
    with pytest.raises(Refused):
        read_token(make_scope(("authorization", "Bearer a"), ("Authorization", "Bearer b")))


@pytest.mark.parametrize("value", ["Basic YTpi", "", "Bearerx", "Negotiate abc"])
def test_other_kinds_of_proof_are_no_token(value: str) -> None:
    assert read_token(make_scope(("authorization", value))) is None


@pytest.mark.parametrize("value", ["Bearer abc", "bearer abc", "BEARER  abc "])
def test_scheme_may_be_written_in_any_case(value: str) -> None:
    assert "abc" == read_token(make_scope(("authorization", value)))


@given(st.binary(max_size=400))
def test_any_bytes_are_turned_away_without_reaching_the_archive_unless_they_look_like_a_token(value: bytes) -> None:
    tokens = FakeTokens()
    identifier = make_identifier(PROXY_SETTINGS, tokens=tokens)

    with pytest.raises(NotSignedIn):
        identifier.identify(make_scope(("authorization", b"Bearer " + value), client=STRANGER))
    assert all(token.isascii() and token.isprintable() and " " not in token for token in tokens.asked)


def test_good_tokens_are_remembered_in_a_bounded_table() -> None:
    known = {f"token-{number:032}": Viewer(name="ada") for number in range(KNOWN_LIMIT + 1)}
    limits = SignInLimits(clock=FakeClock(), failure_limit=1)
    bearer = BearerTokens(FakeTokens(known=known), limits)
    for token in known:
        bearer.viewer(token, "a")
    limits.fail("a")
    first, second, *_ = known

    assert "ada" == bearer.viewer(second, "a").name
    with pytest.raises(TooManyFailures):
        bearer.viewer(first, "a")
