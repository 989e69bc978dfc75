# SPDX-License-Identifier: Apache-2.0
"""No answer leaves without the headers that protect who reads it (W1, W5)."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from slurmscope.portal.scope import AsgiApp, Receive, Send
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.web.security_headers import SecurityHeaders
from slurmscope.portal.web.server import protect
from tests.fakes.asgi import Sent, call
from tests.fakes.sign_in import make_scope


def answering(*headers: tuple[bytes, bytes], status: int = 200) -> AsgiApp:
    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": list(headers)})
        await send({"type": "http.response.body", "body": b"page"})

    return app


def fetch(*headers: tuple[bytes, bytes], status: int = 200) -> Sent:
    return call(protect(answering(*headers, status=status), PortalSettings()), make_scope())


def test_scripts_styles_and_forms_are_our_own_and_nobody_may_frame_us() -> None:
    rules = dict(rule.split(" ", 1) for rule in dict(fetch().headers)["content-security-policy"].split("; "))

    assert "'none'" == rules["default-src"]
    assert "'self'" == rules["script-src"]
    assert "'self'" == rules["style-src"]
    assert "'self' data:" == rules["img-src"]
    assert "'self'" == rules["connect-src"]
    assert "'self'" == rules["form-action"]
    assert "'none'" == rules["frame-ancestors"]
    assert "'none'" == rules["base-uri"]
    assert "unsafe" not in str(rules)


def test_browsers_are_told_not_to_guess_tell_or_share() -> None:
    headers = dict(fetch().headers)

    assert "nosniff" == headers["x-content-type-options"]
    assert "DENY" == headers["x-frame-options"]
    assert "same-origin" == headers["referrer-policy"]
    assert "same-origin" == headers["cross-origin-opener-policy"]
    assert "same-origin" == headers["cross-origin-resource-policy"]


def test_page_is_kept_by_nobody_and_apart_by_person() -> None:
    headers = dict(fetch().headers)

    assert "private, no-store" == headers["cache-control"]
    assert "Authorization, X-Remote-User" == headers["vary"]


def test_static_file_says_itself_how_long_it_is_kept() -> None:
    headers = fetch((b"Cache-Control", b"public, max-age=31536000, immutable"), (b"ETag", b"x")).headers

    assert ["public, max-age=31536000, immutable"] == [value for name, value in headers if name == "cache-control"]
    assert ("etag", "x") in headers
    assert "vary" not in dict(headers)


def test_page_cannot_weaken_the_rules() -> None:
    headers = fetch((b"Content-Security-Policy", b"default-src *")).headers

    policies = [value for name, value in headers if name == "content-security-policy"]
    assert 1 == len(policies)
    assert "*" not in policies[0]


def test_error_pages_have_the_headers_too() -> None:
    sent = fetch(status=500)

    assert 500 == sent.status
    assert "content-security-policy" in dict(sent.headers)


def test_no_answer_of_ours_sets_a_cookie() -> None:
    assert "set-cookie" not in dict(fetch().headers)


def test_what_is_not_a_request_passes_through() -> None:
    sent = call(SecurityHeaders(answering(), identity_header="X-Remote-User"), {"type": "lifespan"})

    assert [] == sent.headers
