# SPDX-License-Identifier: Apache-2.0
"""Only a form of the viewer's own page can change something (W5)."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.jobs.viewer import Viewer
from slurmscope.portal.scope import Scope, header_values
from slurmscope.portal.sign_in.csrf import Csrf
from slurmscope.portal.sign_in.errors import Refused
from tests.fakes.sign_in import FakeClock, make_scope

ADA, EVE = Viewer(name="ada"), Viewer(name="eve")
SECRET = b"s" * 32
HOST = ("host", "portal.example.org")


def has_token(scope: Scope) -> bool:
    return bool(header_values(scope, "authorization"))


def make_csrf(clock: FakeClock | None = None, secret: bytes = SECRET) -> Csrf:
    return Csrf(lambda: secret, is_by_token=has_token, clock=clock or FakeClock())


def post(*headers: tuple[str, str], method: str = "POST") -> Scope:
    return make_scope(HOST, *headers, method=method)


def test_token_is_a_keyed_hash_of_time_and_name() -> None:
    digest = hmac.digest(SECRET, b"1000 ada", "sha256").hex()

    assert f"1000.{digest}" == make_csrf().issue(ADA)
    assert 2 * hashlib.sha256().digest_size == len(digest)


@pytest.mark.parametrize(
    "headers",
    [
        [("sec-fetch-site", "same-origin")],
        [("sec-fetch-site", "none")],
        # A proxy that does not forward Host: the browser confirms the same origin.
        [("sec-fetch-site", "same-origin"), ("origin", "https://outside.example.org")],
        [("origin", "https://portal.example.org")],
        [("origin", "http://PORTAL.example.org")],
        [],
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_own_form_is_accepted(headers: list[tuple[str, str]], method: str) -> None:
    csrf = make_csrf()

    csrf.check(ADA, csrf.issue(ADA), post(*headers, method=method))


@pytest.mark.parametrize(
    "headers",
    [
        [("sec-fetch-site", "cross-site")],
        [("sec-fetch-site", "same-site")],
        [("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
        [("sec-fetch-site", "")],
        [("sec-fetch-site", "cross-site"), ("origin", "https://portal.example.org")],
        [("origin", "https://evil.example")],
        [("origin", "https://portal.example.org.evil.example")],
        [("origin", "https://portal.example.org:8443")],
        [("origin", "null")],
        [("origin", "")],
        [("origin", "https://[")],
        [("origin", "https://p\u00f6rtal.example.org")],
        [("origin", "file://portal.example.org")],
        [("origin", "https://portal.example.org"), ("origin", "https://portal.example.org")],
        [("origin", "https://portal.example.org"), ("host", "portal.example.org")],
    ],
)
def test_request_of_another_site_is_rejected_even_with_a_valid_token(headers: list[tuple[str, str]]) -> None:
    csrf = make_csrf()

    with pytest.raises(Refused):
        csrf.check(ADA, csrf.issue(ADA), post(*headers))


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_links_change_nothing(method: str) -> None:
    csrf = make_csrf()

    with pytest.raises(Refused):
        csrf.check(ADA, csrf.issue(ADA), post(method=method))
    with pytest.raises(Refused):
        csrf.check(ADA, "", post(("authorization", "Bearer x"), method=method))


def test_token_of_another_user_is_rejected() -> None:
    csrf = make_csrf()

    with pytest.raises(Refused):
        csrf.check(ADA, csrf.issue(EVE), post())


def test_token_of_another_portal_is_rejected() -> None:
    with pytest.raises(Refused):
        make_csrf().check(ADA, make_csrf(secret=b"t" * 32).issue(ADA), post())


def test_token_expires_after_twelve_hours() -> None:
    clock = FakeClock()
    csrf = make_csrf(clock)
    token = csrf.issue(ADA)

    clock.seconds += 12 * 3600
    csrf.check(ADA, token, post())
    clock.seconds += 1
    with pytest.raises(Refused):
        csrf.check(ADA, token, post())


def test_form_of_a_portal_whose_clock_is_ahead_is_accepted() -> None:
    ahead, behind = make_csrf(FakeClock(1300.0)), make_csrf(FakeClock(1000.0))

    behind.check(ADA, ahead.issue(ADA), post())


def test_token_from_the_future_is_rejected() -> None:
    future = make_csrf(FakeClock(5000.0)).issue(ADA)

    with pytest.raises(Refused):
        make_csrf(FakeClock(1000.0)).check(ADA, future, post())


def test_api_token_needs_no_form_token() -> None:
    make_csrf().check(ADA, "", post(("authorization", "Bearer x")))


@given(st.text(max_size=90) | st.from_regex(r"[0-9]{1,4}\.[0-9a-f]{64}", fullmatch=True))
def test_no_random_token_is_accepted(token: str) -> None:
    with pytest.raises(Refused):
        make_csrf().check(ADA, token, post())


@given(st.integers(min_value=0), st.sampled_from("0123456789abcdef.x"))
def test_no_changed_token_is_accepted(position: int, letter: str) -> None:
    csrf = make_csrf()
    token = csrf.issue(ADA)
    index = position % len(token)
    changed = token[:index] + letter + token[index + 1 :]

    if changed != token:
        with pytest.raises(Refused):
            csrf.check(ADA, changed, post())
