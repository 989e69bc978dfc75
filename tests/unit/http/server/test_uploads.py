# SPDX-License-Identifier: Apache-2.0
"""Check connections that send many small bodies: they share threads, and none of them can hold up the others."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import bcrypt

from slurmscope.http.server.address import ListenHost
from slurmscope.http.server.connection import ConnectionLimits
from slurmscope.http.server.request import BadRequest, HttpRequest
from slurmscope.http.server.response import Response, Upload, text_response
from slurmscope.http.server.server import Server
from tests.fakes.raw_http import connect, read_all, read_answer
from tests.processes import until

QUICK = Upload(limit_bytes=1000, refuse=lambda problem: text_response(problem.status, problem.message), is_quick=True)


def echo(request: HttpRequest) -> Response:
    if request.body == b"bad":
        raise BadRequest(400, "Bad.")
    return Response(body=request.method.encode() + b" " + request.body)


@contextmanager
def serving(upload: Upload = QUICK, **settings: object) -> Iterator[Server]:
    server = Server(
        echo,
        addresses=("127.0.0.1:0",),
        find_upload=lambda request: upload if request.method == "POST" else None,
        **settings,  # type: ignore[arg-type]
    )
    server.start()
    try:
        yield server
    finally:
        server.close(1)


def post(sock: socket.socket, body: bytes, *lines: str) -> bytes:
    head = ("POST / HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *lines, "", "")
    sock.sendall("\r\n".join(head).encode() + body)
    return read_answer(sock, method="POST").body


def thread_names() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def test_senders_share_a_few_threads() -> None:
    with serving() as server, ExitStack() as stack:
        before = thread_names().count("http-connection")
        socks = [stack.enter_context(connect(server.addresses[0])) for _ in range(30)]
        for round_ in range(3):
            for number, sock in enumerate(socks):
                body = b"%d-%d" % (round_, number)
                assert b"POST " + body == post(sock, body)
        until(lambda: thread_names().count("http-connection") <= before)
    until(lambda: "http-parked" not in thread_names())


def test_parked_connection_serves_pages_and_uploads_in_turn() -> None:
    with serving() as server, connect(server.addresses[0]) as sock:
        for _ in range(3):
            assert b"POST a" == post(sock, b"a")
            assert b"Bad.\n" == post(sock, b"bad")
            sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"GET " == read_answer(sock).body


def test_request_in_pieces_does_not_hold_up_others() -> None:
    with serving() as server, ExitStack() as stack:
        slow = [stack.enter_context(connect(server.addresses[0])) for _ in range(10)]
        fast = stack.enter_context(connect(server.addresses[0]))
        for sock in (*slow, fast):
            post(sock, b"a")
        for sock in slow:
            sock.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na")
        for _ in range(20):
            assert b"POST b" == post(fast, b"b")
        for sock in slow:
            sock.sendall(b"bc")
            assert b"POST abc" == read_answer(sock, method="POST").body


def test_uploads_that_may_wait_do_not_hold_up_quick_ones() -> None:
    held = threading.Event()

    def app(request: HttpRequest) -> Response:
        if b"wait" in request.body:
            held.wait(30)
        return echo(request)

    def find_upload(request: HttpRequest) -> Upload | None:
        is_quick = "x-slow" not in request.headers
        return Upload(limit_bytes=1000, refuse=QUICK.refuse, is_quick=is_quick)

    server = Server(app, addresses=("127.0.0.1:0",), find_upload=find_upload)
    server.start()
    try:
        with ExitStack() as stack:
            slow = [stack.enter_context(connect(server.addresses[0])) for _ in range(8)]
            for sock in slow:
                post(sock, b"a")
                sock.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nX-Slow: 1\r\nContent-Length: 4\r\n\r\nwait")
            with connect(server.addresses[0]) as fast:
                for _ in range(10):
                    assert b"POST b" == post(fast, b"b")
            held.set()
            for sock in slow:
                assert b"POST wait" == read_answer(sock, method="POST").body
    finally:
        held.set()
        server.close(1)


def test_client_that_never_reads_is_cut() -> None:
    limits = ConnectionLimits(write_seconds=0.5)
    with (
        serving(limits=limits) as server,
        connect(server.addresses[0]) as sock,
        connect(server.addresses[0]) as other,
    ):
        post(sock, b"a")
        sock.setblocking(False)
        request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000

        def is_cut() -> bool:
            try:
                while True:
                    sock.send(request)
            except BlockingIOError:
                assert b"POST b" == post(other, b"b")
                return False
            except OSError:
                return True

        until(is_cut)


def test_idle_parked_connection_is_closed() -> None:
    with serving(limits=ConnectionLimits(idle_seconds=0.1)) as server, connect(server.addresses[0]) as sock:
        post(sock, b"a")
        assert b"" == read_all(sock)


def test_last_request_of_a_connection_is_answered_and_closed() -> None:
    with serving(limits=ConnectionLimits(uploads_per_connection=3)) as server:
        with connect(server.addresses[0]) as sock:
            assert [b"POST a"] * 3 == [post(sock, b"a") for _ in range(3)]
            assert b"" == read_all(sock)
        with connect(server.addresses[0]) as sock:
            post(sock, b"a")
            assert b"POST b" == post(sock, b"b", "Connection: close")
            assert b"" == read_all(sock)


def test_broken_request_ends_the_connection() -> None:
    with serving() as server, connect(server.addresses[0]) as sock:
        post(sock, b"a")
        sock.sendall(b"POST / HTTP/9.9\r\n\r\n")
        assert 505 == read_answer(sock).status


def password_status(address: ListenHost, **headers: str) -> int:
    lines = [f"{name}: {value}" for name, value in headers.items()]
    with connect(address) as sock:
        sock.sendall("\r\n".join(("POST / HTTP/1.1", "Host: x", "Content-Length: 0", *lines, "", "")).encode())
        return read_answer(sock, method="POST").status


def test_password_is_needed_unless_the_app_checks_the_sender(tmp_path: Path) -> None:
    config = tmp_path / "web.yml"
    config.write_text(f"basic_auth_users: {{ada: '{bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode()}'}}\n")
    good = base64.b64encode(b"ada:secret").decode()
    with serving(config_file=config) as server:
        assert 401 == password_status(server.addresses[0])
        assert 401 == password_status(server.addresses[0], Authorization="Bearer token")
        assert 200 == password_status(server.addresses[0], Authorization=f"Basic {good}")
    own = Upload(limit_bytes=1000, refuse=QUICK.refuse, has_credential=True)
    with serving(own, config_file=config) as server:
        assert 200 == password_status(server.addresses[0], Authorization="Bearer token")
