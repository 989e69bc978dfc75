# SPDX-License-Identifier: Apache-2.0
"""Check heads of responses, the landing page and the counters."""

from __future__ import annotations

import base64
import email.utils
import hashlib
import html
import html.parser
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.http.server.app import POLICY, STYLE, escape, landing_response, render_landing
from slurmscope.http.server.response import RequestCounters, head_bytes, http_date, merged, text_response


@given(st.integers(0, 4_102_444_800))
def test_date_is_written_as_mail_and_http_do(epoch_seconds: int) -> None:
    assert email.utils.formatdate(epoch_seconds, usegmt=True) == http_date(epoch_seconds)


def test_head_ends_in_an_empty_line() -> None:
    assert head_bytes(503, [("A", "b")]) == b"HTTP/1.1 503 Service Unavailable\r\nA: b\r\n\r\n"


@pytest.mark.parametrize("header", [("A", "b\r\nC: d"), ("A\n", "b"), ("A", "b\0")])
def test_line_break_in_a_header_is_never_sent(header: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="line break"):
        head_bytes(200, [header])


def test_overriding_header_replaces_whatever_its_case() -> None:
    assert [("B", "2"), ("x-a", "3")] == merged([("X-A", "1"), ("B", "2")], [("x-a", "3")])


def test_sentence_with_a_lone_surrogate_is_still_sent() -> None:
    assert text_response(400, "bad \ud800").body == b"bad \\ud800\n"


def test_methods_and_codes_of_the_label_are_a_fixed_set() -> None:
    counters = RequestCounters()
    for number in range(1000):
        counters.count(f"M{number}", 405)
        counters.count("GET", 1000 + number)
    counters.count("GET", 200)
    assert {("other", "405"): 1000, ("GET", "other"): 1000, ("GET", "200"): 1} == dict(counters)
    assert len(counters) == 3


def test_counting_in_many_threads_loses_nothing_and_disturbs_no_reader() -> None:
    counters = RequestCounters()

    def count() -> None:
        for number in range(500):
            counters.count("GET", (200, 400, 404, 405, 503)[number % 5])

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        dict(counters.items())
    for thread in threads:
        thread.join(30)
    assert sum(counters.values()) == 2000


@given(st.text())
def test_text_is_escaped_as_the_standard_library_does(text: str) -> None:
    assert html.escape(text) == escape(text)


def test_policy_allows_exactly_the_style_of_the_page() -> None:
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in POLICY
    assert f"<style>{STYLE}</style>" in render_landing("a", "1", ())
    assert ("Content-Security-Policy", POLICY) in landing_response("a", "1", ()).headers


class Tags(html.parser.HTMLParser):
    """Gather what a browser would see."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note tags, and links with their target."""
        self.seen.append(f"a {dict(attrs)['href']}" if tag == "a" else tag)


def test_hostile_path_stays_text() -> None:
    hostile = "/\"><script>alert('1')</script>"
    page = Tags()
    page.feed(render_landing("<b>name</b>", "1", [(hostile, "<i>")]))
    expected = ["html", "head", "meta", "title", "style", "body", "h1", "dl", "dt", f"a {hostile}", "dd"]
    assert expected == page.seen
