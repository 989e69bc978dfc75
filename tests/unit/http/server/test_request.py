# SPDX-License-Identifier: Apache-2.0
"""Check that request heads are parsed strictly."""

from __future__ import annotations

import contextlib
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.http.server.request import BadRequest, HttpRequest, parse_head, peer_group


def head(*lines: str) -> bytes:
    return "\r\n".join(lines).encode("latin-1")


def refusal(data: bytes) -> int:
    with pytest.raises(BadRequest) as caught:
        parse_head(data)
    return caught.value.status


def test_request_of_prometheus_is_parsed() -> None:
    request = parse_head(
        head(
            "GET /metrics?collect[]=jobs&collect%5B%5D=nodes HTTP/1.1",
            "Host: node1:9092",
            "Accept-Encoding:gzip",
            "X-Prometheus-Scrape-Timeout-Seconds: 10  ",
        ),
        peer="192.0.2.7",
    )
    expected = HttpRequest(
        method="GET",
        path="/metrics",
        query=(("collect[]", "jobs"), ("collect[]", "nodes")),
        headers={"host": "node1:9092", "accept-encoding": "gzip", "x-prometheus-scrape-timeout-seconds": "10"},
        peer="192.0.2.7",
    )
    assert expected == request


def test_path_is_decoded_and_query_keeps_blanks() -> None:
    request = parse_head(head("GET /a%2Fb%20c?x=&y HTTP/1.0"))
    assert ("/a/b c", (("x", ""), ("y", "")), False) == (request.path, request.query, request.is_http11)


def test_absolute_target_is_taken_as_its_path() -> None:
    request = parse_head(head("GET http://proxy.example/metrics?a=b HTTP/1.1", "Host: x"))
    assert ("/metrics", (("a", "b"),)) == (request.path, request.query)


def test_repeated_list_headers_are_joined() -> None:
    request = parse_head(head("GET / HTTP/1.1", "Host: x", "Accept: a/b", "ACCEPT: c/d"))
    assert request.headers["accept"] == "a/b, c/d"


@pytest.mark.parametrize(
    ("status", "lines"),
    [
        (400, ("",)),
        (400, ("GET /",)),
        (400, ("GET  / HTTP/1.1", "Host: x")),
        (400, ("GET / HTTP/1.1 ", "Host: x")),
        (400, (" GET / HTTP/1.1", "Host: x")),
        (400, ("G\x00T / HTTP/1.1", "Host: x")),
        (400, ("GET /ü HTTP/1.1", "Host: x")),
        (400, (f"{'A' * 33} / HTTP/1.1", "Host: x")),
        (400, ("GET metrics HTTP/1.1", "Host: x")),
        (400, ("OPTIONS * HTTP/1.1", "Host: x")),
        (400, ("GET http://[::1 HTTP/1.1", "Host: x")),
        (505, ("GET / HTTP/2.0", "Host: x")),
        (505, ("GET / HTTP/1.2", "Host: x")),
        (400, ("GET / HTTP/1.1",)),
        (400, ("GET / HTTP/1.1", "Host: x", "Host: x")),
        (400, ("GET / HTTP/1.1", "Host: x", "no colon")),
        (400, ("GET / HTTP/1.1", "Host: x", "Space : before colon")),
        (400, ("GET / HTTP/1.1", "Host: x", "A: b", " folded")),
        (400, ("GET / HTTP/1.1", "Host: x", "A: b\nInjected: c")),
        (400, ("GET / HTTP/1.1", "Host: x", "A: b\x00")),
        (400, ("GET / HTTP/1.1", "Host: x", "Content-Length: 1", "Content-Length: 1")),
        (400, ("GET / HTTP/1.1", "Host: x", "Content-Length: +1")),
        (400, ("GET / HTTP/1.1", "Host: x", "Content-Length: -1")),
        (400, ("GET / HTTP/1.1", "Host: x", "Content-Length: 1_0")),
        (400, ("GET / HTTP/1.1", "Host: x", "Content-Length:")),
        (400, ("GET / HTTP/1.1", "Host: x", "Content-Length: 1", "Transfer-Encoding: chunked")),
        (400, ("GET / HTTP/1.0", "Transfer-Encoding: chunked")),
        (414, (f"GET /{'a' * 8192} HTTP/1.1", "Host: x")),
        (431, ("GET / HTTP/1.1", "Host: x", *(f"h{i}: 1" for i in range(100)))),
        (400, (f"GET /?{'&'.join('a=b' for _ in range(201))} HTTP/1.1", "Host: x")),
    ],
)
def test_odd_request_is_refused(status: int, lines: tuple[str, ...]) -> None:
    assert status == refusal(head(*lines))


def test_hundred_headers_are_taken() -> None:
    request = parse_head(head("GET / HTTP/1.1", "Host: x", *(f"h{i}: 1" for i in range(99))))
    assert len(request.headers) == 100


@pytest.mark.parametrize(
    ("expected", "lines"),
    [
        (False, ("GET / HTTP/1.1", "Host: x")),
        (True, ("GET / HTTP/1.0",)),
        (True, ("GET / HTTP/1.0", "Connection: keep-alive")),
        (True, ("GET / HTTP/1.1", "Host: x", "Connection: Upgrade,  CLOSE")),
        (False, ("GET / HTTP/1.1", "Host: x", "Connection: closed")),
    ],
)
def test_connection_ends_when_the_client_says_so(*, expected: bool, lines: tuple[str, ...]) -> None:
    assert expected == parse_head(head(*lines)).wants_close


@pytest.mark.parametrize(
    ("expected", "header"),
    [
        (False, "Content-Length: 00"),
        (True, "Content-Length: 10"),
        (True, "Transfer-Encoding: chunked"),
        (False, "A: b"),
    ],
)
def test_body_is_announced_by_its_length_or_encoding(*, expected: bool, header: str) -> None:
    assert expected == parse_head(head("POST / HTTP/1.1", "Host: x", header)).has_body


@given(st.binary(max_size=300))
def test_no_bytes_break_the_parser(data: bytes) -> None:
    with contextlib.suppress(BadRequest):
        parse_head(data)


@given(st.binary(max_size=100))
def test_no_header_value_breaks_the_parser(value: bytes) -> None:
    with contextlib.suppress(BadRequest):
        request = parse_head(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: " + value)
        assert (int(value.decode("latin-1")) > 0) == request.has_body


@given(
    path=st.text(min_size=1, max_size=50).map(lambda text: f"/{text}"),
    query=st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), max_size=5),
)
def test_quoted_path_and_query_come_back(path: str, query: list[tuple[str, str]]) -> None:
    target = urllib.parse.quote(path, errors="replace")
    if query:
        target += "?" + urllib.parse.urlencode(query, errors="replace")
    request = parse_head(head(f"GET {target} HTTP/1.1", "Host: x"))
    clean = [(a.encode(errors="replace").decode(), b.encode(errors="replace").decode()) for a, b in query]
    assert (path.encode(errors="replace").decode(), tuple(clean)) == (request.path, request.query)


def test_limits_are_shared_by_user_address_or_network() -> None:
    assert "10.0.0.1" == peer_group("10.0.0.1", None)
    assert "uid 1000" == peer_group("unix", 1000) == peer_group("127.0.0.1", 1000)
    assert peer_group("2001:db8::1", None) == peer_group("2001:db8:0:0:ffff::2%eth0", None)
    assert peer_group("2001:db8::1", None) != peer_group("2001:db8:0:1::1", None)
    assert peer_group("127.0.0.1", None) == peer_group("127.9.9.9", None) == peer_group("::1", None)
    assert "odd:" == peer_group("odd:", None)
