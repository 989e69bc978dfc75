# SPDX-License-Identifier: Apache-2.0
"""A page of a foreign server is read within limits, and a bad one is one sentence."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from slurmscope.core.errors import MalformedAnswer, SlurmscopeError
from slurmscope.migrate.pages import join_pages, parse_page, read_page
from tests.fakes.scripted_server import read_request, scripted_server

PAGE = b'# TYPE m gauge\nm{a="x"} 1\n'


def answering(body: bytes, status: str = "200 OK") -> Callable[[socket.socket], None]:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"

    def handle(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(head.encode() + body)

    return handle


@pytest.mark.parametrize(
    ("path", "requested"), [("", "/metrics"), ("/", "/metrics"), ("/federated/page", "/federated/page")]
)
def test_page_is_fetched_from_its_path(path: str, requested: str) -> None:
    lines = []

    def handle(connection: socket.socket) -> None:
        lines.append(read_request(connection).splitlines()[0])
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(PAGE), PAGE))

    with scripted_server(handle) as url:
        page = read_page(f"{url}{path}")

    assert ["m"] == list(page)
    assert [f"GET {requested} HTTP/1.1"] == lines


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (PAGE, "401 Unauthorized", "answered 401; if it needs a password or another path, save the page with curl"),
        (b"\xff\n", "200 OK", "the page is not UTF-8"),
        (b"<html>\x1b[31m\n", "200 OK", r"line 1 of the metrics page: it is not a sample: '<html>\x1b[31m'"),
        (b"m 1", "200 OK", "the page is truncated"),
        (PAGE * 100, "200 OK", "longer than 1000 bytes"),
    ],
)
def test_bad_page_is_one_sentence(body: bytes, status: str, sentence: str) -> None:
    with scripted_server(answering(body, status)) as url, pytest.raises(SlurmscopeError) as caught:
        read_page(url, limit_bytes=1000)

    assert sentence in str(caught.value)
    assert str(caught.value).isprintable()


def test_server_that_never_answers_costs_its_deadline_only() -> None:
    def hang(connection: socket.socket) -> None:
        while connection.recv(1 << 16):
            pass

    with scripted_server(hang) as url, pytest.raises(SlurmscopeError, match="timed out"):
        read_page(url, timeout_seconds=0.2)


def test_file_is_read_within_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "old.prom"
    path.write_bytes(PAGE)

    assert 1 == read_page(str(path))["m"].samples[0].value
    with pytest.raises(SlurmscopeError, match="is larger than 10B"):
        read_page(str(path), limit_bytes=10)


@pytest.mark.parametrize("place", ["no such\nfile", "a\0b", "http://user:secret@host/", "https://", "."])
def test_what_is_neither_url_nor_file_is_one_sentence(place: str) -> None:
    with pytest.raises(SlurmscopeError) as caught:
        read_page(place)

    assert str(caught.value).isprintable()
    assert "secret" not in str(caught.value)


def test_pages_of_two_exporters_are_one() -> None:
    joined = join_pages([parse_page(b"a 1\nm 2\n"), parse_page(b'm{n="2"} 3\nb 4\n')])

    assert {"a": 1, "m": 2, "b": 1} == {name: len(family.samples) for name, family in joined.items()}


def test_page_that_repeats_a_family_is_refused() -> None:
    with pytest.raises(MalformedAnswer, match="appears in two places"):
        parse_page(b"m 1\nn 1\nm 2\n")
