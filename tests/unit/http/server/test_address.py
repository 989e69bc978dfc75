# SPDX-License-Identifier: Apache-2.0
"""Check listen addresses and the sockets made from them."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator

import pytest

from slurmscope.core.errors import ConfigError
from slurmscope.http.server.address import ListenHost, bound_address, open_listeners, parse_address


@contextlib.contextmanager
def listening(*addresses: str) -> Iterator[list[socket.socket]]:
    listeners = open_listeners(addresses)
    try:
        yield listeners
    finally:
        for listener in listeners:
            listener.close()


def can_connect(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (ListenHost("", 9092), ":9092"),
        (ListenHost("127.0.0.1", 0), "127.0.0.1:0"),
        (ListenHost("::1", 9092), "[::1]:9092"),
        (ListenHost("node1.example", 65535), "node1.example:65535"),
        (ListenHost("fe80::1%eth0", 1), "[fe80::1%eth0]:1"),
    ],
)
def test_address_is_parsed_and_written_back(expected: ListenHost, text: str) -> None:
    assert expected == parse_address(text)
    assert text == str(expected)


@pytest.mark.parametrize(
    "text",
    ["", "9092", "::1:9092", "host", "host:", ":65536", ":-1", ":http", "[]:1", "[::1]", "a:1 ", "a:1\n", "http://a:1"],
)
def test_malformed_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_address(text)


def test_address_without_host_answers_on_both_protocols() -> None:
    with listening(":0") as (listener,):
        port = bound_address(listener).port
        assert can_connect("127.0.0.1", port)
        if socket.has_ipv6:
            assert can_connect("::1", port)


def test_ipv4_address_answers_on_ipv4_only() -> None:
    with listening("127.0.0.1:0") as (listener,):
        assert bound_address(listener).host == "127.0.0.1"
        assert not can_connect("::1", bound_address(listener).port)


def test_ipv6_address_answers_on_ipv6_only() -> None:
    with listening("[::1]:0") as (listener,):
        address = bound_address(listener)
        assert str(address) == f"[::1]:{address.port}"
        assert can_connect("::1", address.port)
        assert not can_connect("127.0.0.1", address.port)


def test_localhost_means_ipv4() -> None:
    with listening("localhost:0") as (listener,):
        assert bound_address(listener).host == "127.0.0.1"


@pytest.mark.parametrize("reason", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_machine_without_ipv6_listens_on_ipv4(reason: int) -> None:
    def open_socket(family: int, kind: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(reason, "no IPv6 here")
        return socket.socket(family, kind)

    (listener,) = open_listeners([":0"], open_socket)
    with listener:
        assert bound_address(listener).host == "0.0.0.0"
        assert can_connect("127.0.0.1", bound_address(listener).port)
    with pytest.raises(ConfigError, match="no IPv6 here"):
        open_listeners(["[::]:0"], open_socket)


def test_address_in_use_is_named_and_nothing_stays_open() -> None:
    opened: list[socket.socket] = []

    def open_socket(family: int, kind: int) -> socket.socket:
        opened.append(socket.socket(family, kind))
        return opened[-1]

    with listening("127.0.0.1:0") as (listener,):
        taken = str(bound_address(listener))
        with pytest.raises(ConfigError, match=taken):
            open_listeners(["127.0.0.1:0", taken], open_socket)
    assert [-1, -1] == [sock.fileno() for sock in opened]


def test_unknown_host_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no-such-host\.invalid:1"):
        open_listeners(["no-such-host.invalid:1"])
