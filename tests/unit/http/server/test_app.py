# SPDX-License-Identifier: Apache-2.0
"""Check the routes of an exporter, without sockets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.errors import ConfigError, SlurmscopeError
from slurmscope.http.server.app import (
    Audience,
    ExporterApp,
    Route,
    ScrapeRequest,
    UnknownCollector,
    parse_scrape,
    scrape_deadline,
)
from slurmscope.http.server.page_slots import STALLED_SECONDS
from slurmscope.http.server.request import BadRequest, HttpRequest, PeerCredentials, parse_head
from slurmscope.http.server.response import Response, Upload
from slurmscope.http.server.wire import ClientTooSlow
from slurmscope.metrics.write import Format
from tests.fakes.exposition import PAGE, FakeExposition, HeldExposition


def request(path: str, *query: tuple[str, str], method: str = "GET", **headers: str) -> HttpRequest:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpRequest(method=method, path=path, query=query, headers=named)


def text(response: Response) -> str:
    assert isinstance(response.body, bytes)
    return response.body.decode()


def test_page_is_served_as_text_by_default() -> None:
    exposition = FakeExposition()
    response = ExporterApp(exposition)(request("/metrics"))
    assert [ScrapeRequest(format=Format.TEXT)] == exposition.calls
    assert response.status == 200
    assert b"".join(response.body if not isinstance(response.body, bytes) else ()) == PAGE
    headers = dict(response.headers)
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Content-Encoding" not in headers
    response.close()


def test_page_is_text_where_nothing_else_can_be_made() -> None:
    exposition = FakeExposition()
    app = ExporterApp(exposition, is_text_only=lambda: True)
    response = app(request("/metrics", accept="application/openmetrics-text"))
    assert [ScrapeRequest(format=Format.TEXT)] == exposition.calls
    assert dict(response.headers)["Content-Type"].startswith("text/plain")
    response.close()


def test_route_that_ends_in_a_slash_answers_all_paths_below_it() -> None:
    def refuse(problem: BadRequest) -> Response:
        return Response(status=problem.status)

    upload = Upload(limit_bytes=1, refuse=refuse)
    below = Route(answer=lambda _: Response(body=b"below"), find_upload=lambda _: upload, methods=("PUT",))
    one = Route(answer=lambda _: Response(body=b"one"), find_upload=lambda _: None, methods=("PUT",), link_text="One.")
    app = ExporterApp(FakeExposition(), find_routes=lambda: {"/a/": below, "/a/b": one, "/c": one})
    assert [b"below", b"below", b"one", b"one"] == [
        app(request(path, method="PUT")).body for path in ("/a/", "/a/x/y", "/a/b", "/c")
    ]
    assert [404, 404, 405] == [app(request(path, method="PUT")).status for path in ("/a", "/c/d", "/metrics")]
    assert [upload, None, None] == [app.find_upload(request(path)) for path in ("/a/x", "/a/b", "/a")]
    landing = text(app(request("/")))
    assert 'href="/c"' in landing
    assert 'href="/a/"' not in landing


def test_format_encoding_and_deadline_follow_the_headers() -> None:
    exposition = FakeExposition()
    response = ExporterApp(exposition)(
        request(
            "/metrics",
            accept="application/openmetrics-text",
            accept_encoding="gzip",
            x_prometheus_scrape_timeout_seconds="2",
        )
    )
    expected = ScrapeRequest(format=Format.OPENMETRICS, is_gzip=True, deadline_seconds=1.8)
    [call] = exposition.calls
    assert expected == replace(call, deadline_seconds=1.8)
    assert 0 < (call.deadline_seconds or 0) <= 1.8
    headers = dict(response.headers)
    assert headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert headers["Content-Encoding"] == "gzip"
    assert {"Accept", "Accept-Encoding"} == {name.strip() for name in headers["Vary"].split(",")}
    response.close()


@pytest.mark.parametrize(
    ("expected", "header"),
    [
        (9.5, "10"),
        (0.9, "1.0"),
        (2.7, "3"),
        (3599.5, "1e300"),
        (None, ""),
        (None, "0"),
        (None, "-1"),
        (None, "nan"),
        (None, "inf"),
        (None, "ten"),
        (None, "10, 10"),
    ],
)
def test_deadline_leaves_time_for_the_way_back(expected: float | None, header: str) -> None:
    assert expected == scrape_deadline(header)


@given(st.text())
def test_no_timeout_header_is_an_error(header: str) -> None:
    deadline = scrape_deadline(header)
    assert deadline is None or 0 < deadline < 3600


def test_collectors_are_chosen_by_the_query() -> None:
    exposition = FakeExposition()
    app = ExporterApp(exposition)
    app(request("/metrics", ("collect[]", "jobs"), ("collect[]", "nodes"), ("other", "x"))).close()
    app(request("/metrics", ("exclude[]", "jobs"))).close()
    assert [(frozenset({"jobs", "nodes"}), frozenset()), (None, frozenset({"jobs"}))] == [
        (call.include, call.exclude) for call in exposition.calls
    ]


def test_choosing_both_ways_is_refused() -> None:
    with pytest.raises(BadRequest) as caught:
        ExporterApp(FakeExposition())(request("/metrics", ("collect[]", "jobs"), ("exclude[]", "nodes")))
    assert caught.value.status == 400


@pytest.mark.parametrize("parameter", ["collect[]", "exclude[]"])
def test_unknown_collector_is_named_and_escaped(parameter: str) -> None:
    response = ExporterApp(FakeExposition())(request("/metrics", (parameter, "jöbs\n<b>")))
    assert response.status == 400
    assert text(response) == "there is no collector 'j\\xf6bs\\n<b>' here.\n"
    assert dict(response.headers)["Content-Type"].startswith("text/plain")


def test_collector_found_unknown_with_the_first_block_is_refused_too() -> None:
    class Lazy(FakeExposition):
        def page(self) -> Iterable[bytes]:
            for name in ("late",):
                raise UnknownCollector(name)
            yield b""

    assert ExporterApp(Lazy())(request("/metrics")).status == 400


def test_error_with_a_sentence_is_503_and_frees_its_place() -> None:
    class Busy(FakeExposition):
        def page(self) -> Iterable[bytes]:
            raise SlurmscopeError("the page is still being built")

    app = ExporterApp(Busy(), max_requests=1)
    for _ in range(3):
        response = app(request("/metrics"))
        assert (503, "the page is still being built.\n") == (response.status, text(response))


def test_further_scrapes_than_allowed_get_503_while_a_page_is_made() -> None:
    statuses: list[int] = []

    class Nested(FakeExposition):
        def page(self) -> Iterable[bytes]:
            statuses.extend(app(request(path)).status for path in ("/metrics", "/-/healthy", "/-/ready"))
            yield PAGE

    app = ExporterApp(Nested(), max_requests=1)
    for _ in range(2):
        response = app(request("/metrics"))
        response.close()
        assert response.status == 200
    assert [503, 200, 200] * 2 == statuses


def test_page_that_waits_for_its_client_gives_way_to_a_new_scrape() -> None:
    exposition = HeldExposition()
    app = ExporterApp(exposition, max_requests=2)
    pages = [app(request("/metrics")) for _ in range(3)]
    assert [200] * 3 == [page.status for page in pages]
    # The first was dropped, and nothing of it is kept.
    assert exposition.ended.acquire(timeout=5)
    assert isinstance(pages[0].body, Iterator)
    assert next(pages[0].body) == b"first 1\n"
    with pytest.raises(ClientTooSlow):
        next(pages[0].body)
    for page in pages:
        page.close()
    assert all(exposition.ended.acquire(timeout=5) for _ in range(2))


def test_time_in_which_a_scrape_waits_for_its_turn_counts() -> None:
    exposition = FakeExposition(b"a", b"b")
    app = ExporterApp(exposition, max_requests=1)
    unread = app(request("/metrics"))
    response = app(request("/metrics", x_prometheus_scrape_timeout_seconds="2"))
    assert 200 == response.status
    assert 0 < (exposition.calls[1].deadline_seconds or 0) <= 1.8 - STALLED_SECONDS
    for each in (unread, response):
        each.close()


def test_no_limit_means_no_limit() -> None:
    app = ExporterApp(FakeExposition(), max_requests=0)
    assert {200} == {app(request("/metrics")).status for _ in range(100)}


def test_health_and_readiness_need_no_scrape() -> None:
    exposition = FakeExposition()
    app = ExporterApp(exposition)
    assert [200, 200] == [app(request(path)).status for path in ("/-/healthy", "/-/ready")]
    assert [] == exposition.calls


@pytest.mark.parametrize("path", ["/metrics", "/", "/-/healthy", "/-/ready"])
def test_method_that_changes_things_is_refused(path: str) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"):
        response = ExporterApp(FakeExposition())(request(path, method=method))
        assert (405, "GET, HEAD") == (response.status, dict(response.headers)["Allow"])


@pytest.mark.parametrize(
    "path", ["/metrics/", "/Metrics", "//metrics", "/../etc/passwd", "/-/quit", "/favicon.ico", "*"]
)
def test_any_other_path_is_not_found(path: str) -> None:
    assert ExporterApp(FakeExposition())(request(path)).status == 404


def test_landing_page_links_to_what_there_is() -> None:
    response = ExporterApp(FakeExposition(), telemetry_path="/m&m", name="slurmscope node")(request("/"))
    assert 'href="/m&amp;m"' in text(response)
    assert "slurmscope node" in text(response)


@pytest.mark.parametrize("path", ["metrics", "", "/", "/-/ready"])
def test_telemetry_path_that_is_taken_is_refused(path: str) -> None:
    with pytest.raises(ConfigError):
        ExporterApp(FakeExposition(), telemetry_path=path)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"peer": "192.0.2.1"}, Audience.NETWORK),
        ({"peer": "2001:db8::1"}, Audience.NETWORK),
        ({"peer": "127.8.0.1"}, Audience.HERE),
        ({"peer": "::1"}, Audience.HERE),
        ({"peer": "unix", "credentials": PeerCredentials(1, 1001)}, Audience.HERE),
        ({"peer": "localhost"}, Audience.NETWORK),
        ({"peer": "192.0.2.1", "is_authenticated": True}, Audience.ADMITTED),
    ],
)
def test_audience_is_judged_by_address_and_by_the_web_configuration(given: Any, expected: Audience) -> None:
    assert expected is parse_scrape(parse_head(b"GET /metrics HTTP/1.1\r\nHost: a", **given)).audience
