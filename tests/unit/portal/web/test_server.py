# SPDX-License-Identifier: Apache-2.0
"""What the portal believes holds on a real server, byte by byte (W2)."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator, MutableMapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurmscope.core.errors import ConfigError
from slurmscope.portal.run import open_listener
from slurmscope.portal.scope import AsgiApp, Receive, Send
from slurmscope.portal.settings import ListenAddress, PortalSettings
from slurmscope.portal.sign_in.errors import SignInError
from slurmscope.portal.sign_in.identity import Identifier, LocalUsers, find_local_users
from tests.fakes.asgi import running
from tests.fakes.raw_http import Answer, read_all, read_answer, status_of
from tests.fakes.sign_in import GOOD_TOKEN, make_identifier

GENEROUS_SECONDS = 30.0
TRUSTING = PortalSettings(mode="proxy", proxy_peers=("127.0.0.1",))
WARY = PortalSettings(mode="proxy", proxy_peers=("10.0.0.5", "unix"))


def greeting(identifier: Identifier) -> AsgiApp:
    """Make an application that says who it thinks is there."""

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            viewer = identifier.identify(scope)
            status, body, headers = 200, f"{viewer.name} {viewer.role}", dict[str, str]()
        except SignInError as error:
            status, body, headers = error.status, error.reason, error.headers
        head = [(name.encode(), value.encode()) for name, value in headers.items()]
        head.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": body.encode()})

    return app


def request(listener: socket.socket, *lines: str, host: str = "localhost") -> Answer:
    """Send one request with these header lines on a connection of its own."""
    with socket.socket(listener.family, socket.SOCK_STREAM) as client:
        client.settimeout(GENEROUS_SECONDS)
        client.connect(listener.getsockname())
        head = "\r\n".join(["GET / HTTP/1.1", f"Host: {host}", "Connection: close", *lines, "", ""])
        client.sendall(head.encode("latin-1"))
        return read_answer(client)


@pytest.fixture(scope="module")
def trusting_portal() -> Iterator[socket.socket]:
    with running(greeting(make_identifier(TRUSTING)), TRUSTING) as listener:
        yield listener


@pytest.fixture(scope="module")
def wary_portal() -> Iterator[socket.socket]:
    with running(greeting(make_identifier(WARY)), WARY) as listener:
        yield listener


@pytest.mark.parametrize(
    "line", ["X-Remote-User: ada", "x-remote-user: ada", "X-REMOTE-USER:ada", "x-rEmOte-uSer:  ada "]
)
def test_listed_proxy_is_trusted_with_any_case_of_the_header(trusting_portal: socket.socket, line: str) -> None:
    answer = request(trusting_portal, line)

    assert (200, b"ada user") == (answer.status, answer.body)


@pytest.mark.parametrize(
    "lines",
    [
        ("X-Remote-User: ada", "X-Remote-User: eve"),
        ("X-Remote-User: ada", "x-remote-user: ada"),
        ("X-Remote-User: ada", "X_Remote_User: eve"),
        ("X_Remote_User: eve",),
        ("X-Remote-User:",),
        ("X-Remote-User: ada, eve",),
        ("X-Remote-User: ad\xe4",),
        ("X-Remote-User: (null)",),
        (f"X-Remote-User: {'a' * 257}",),
    ],
)
def test_suspicious_header_is_rejected(trusting_portal: socket.socket, lines: tuple[str, ...]) -> None:
    assert 403 == request(trusting_portal, *lines).status


@pytest.mark.parametrize(
    "line", ["X-Remote-User: a\0da", "X-Remote-User: ada\r eve", "X-Remote-User : ada", "X-Remote-User: ada\n eve"]
)
def test_malformed_header_does_not_sign_in(trusting_portal: socket.socket, line: str) -> None:
    assert request(trusting_portal, line).status in {400, 403}


@pytest.mark.parametrize("line", ["X-Remote-User: eve", "x_remote_user: eve"])
def test_header_from_another_peer_is_rejected(wary_portal: socket.socket, line: str) -> None:
    assert 403 == request(wary_portal, line).status


@pytest.mark.parametrize(
    "claim", ["X-Forwarded-For: 10.0.0.5", "Forwarded: for=10.0.0.5", "X-Real-IP: 10.0.0.5", "X-Client-IP: 10.0.0.5"]
)
def test_peer_cannot_claim_the_address_of_the_proxy(wary_portal: socket.socket, claim: str) -> None:
    assert 403 == request(wary_portal, "X-Remote-User: eve", claim).status


def test_peer_address_does_not_come_from_headers() -> None:
    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": f"{scope['scheme']} {scope['client'][0]}".encode()})

    with running(app, TRUSTING) as listener:
        answer = request(listener, "X-Forwarded-For: 10.0.0.5", "X-Forwarded-Proto: https")

    assert b"http 127.0.0.1" == answer.body


def test_token_signs_in_from_any_peer(wary_portal: socket.socket) -> None:
    answer = request(wary_portal, f"Authorization: Bearer {GOOD_TOKEN}")
    anonymous = request(wary_portal)

    assert (200, b"ada user") == (answer.status, answer.body)
    assert (401, 'Bearer realm="slurmscope"') == (anonymous.status, anonymous.headers["www-authenticate"])


def test_ipv4_mapped_address_is_the_same_peer() -> None:
    try:
        listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    except OSError:
        pytest.skip("this machine has no IPv6")
    try:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("::ffff:127.0.0.1", 0))
        listener.listen()
    except OSError as error:
        listener.close()
        pytest.skip(f"this machine has no IPv4 within IPv6: {error}")
    with running(greeting(make_identifier(TRUSTING)), TRUSTING, listener):
        assert b"ada user" == request(listener, "X-Remote-User: ada").body
        assert 403 == request(listener, "X-Remote-User: ada", "X-Remote-User: eve").status


def test_unix_socket_is_trusted_and_open_to_its_group_only(tmp_path: Path) -> None:
    path = tmp_path / "portal.sock"
    settings = replace(WARY, listen_address=ListenAddress(socket_path=str(path)))
    listener = open_listener(settings.listen_address)

    with running(greeting(make_identifier(settings)), settings, listener):
        assert 0o660 == stat.S_IMODE(path.stat().st_mode)
        assert b"ada user" == request(listener, "X-Remote-User: ada").body


def test_unix_socket_of_local_mode_is_open_to_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "portal.sock"
    settings = PortalSettings(listen_address=ListenAddress(socket_path=str(path)))
    listener = open_listener(settings.listen_address)

    with running(greeting(make_identifier(settings)), settings, listener):
        assert 0o600 == stat.S_IMODE(path.stat().st_mode)
        assert b"runner admin" == request(listener).body


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch users")
def test_group_has_no_access_to_the_socket_of_local_mode() -> None:
    # Not below tmp_path, whose folders other users cannot read.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "portal.sock"
        settings = PortalSettings(listen_address=ListenAddress(socket_path=str(path)))
        connect = "import socket, sys; print(socket.socket(socket.AF_UNIX).connect_ex(sys.argv[1]))"
        with running(greeting(make_identifier(settings)), settings, open_listener(settings.listen_address)):
            completed = subprocess.run(
                ["/usr/bin/env", "python3", "-c", connect, str(path)],
                user=65534, group=os.getegid(), extra_groups=[], cwd="/",
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip

    assert f"{errno.EACCES}\n" == completed.stdout


def test_local_mode_rejects_other_host_names() -> None:
    settings = PortalSettings()
    with running(greeting(make_identifier(settings)), settings) as listener:
        port = listener.getsockname()[1]

        assert b"runner admin" == request(listener, host=f"localhost:{port}").body
        assert 403 == request(listener, host=f"evil.example:{port}").status


def test_local_mode_checks_the_owner_of_the_connection() -> None:
    settings = PortalSettings()
    local_users = find_local_users(settings)
    others = LocalUsers(name="other", names={2**31 - 1: "other"})

    with running(greeting(make_identifier(settings, local_users=local_users)), settings) as listener:
        assert f"{local_users.name} admin".encode() == request(listener).body
    with running(greeting(make_identifier(settings, local_users=others)), settings) as listener:
        assert 403 == request(listener).status


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch users")
def test_other_local_users_have_no_access_in_local_mode() -> None:
    settings = PortalSettings()
    script = (
        "import http.client as h, sys; c = h.HTTPConnection('localhost', int(sys.argv[1])); "
        "c.request('GET', '/'); print(c.getresponse().status)"
    )
    with running(greeting(make_identifier(settings, local_users=find_local_users(settings))), settings) as listener:
        command = ["/usr/bin/env", "python3", "-c", script, str(listener.getsockname()[1])]
        statuses = [
            subprocess.run(command, user=uid, cwd="/", capture_output=True, text=True, timeout=60, check=False).stdout
            for uid in (0, 65534)
        ]

    assert ["200\n", "403\n"] == statuses


def test_response_has_security_headers_and_no_server_header(trusting_portal: socket.socket) -> None:
    answer = request(trusting_portal, "X-Remote-User: ada")

    assert "server" not in answer.headers
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert "private, no-store" == answer.headers["cache-control"]


def test_too_long_head_is_rejected(trusting_portal: socket.socket) -> None:
    with socket.create_connection(trusting_portal.getsockname(), timeout=GENEROUS_SECONDS) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"a" * 100_000)

        assert status_of(read_all(client)) in {400, 431}


def test_stale_socket_is_replaced_and_one_in_use_is_not(tmp_path: Path) -> None:
    address = ListenAddress(socket_path=str(tmp_path / "portal.sock"))
    open_listener(address).close()

    with closing(open_listener(address)), pytest.raises(ConfigError, match=r"unix:/.* is already in use"):
        open_listener(address)


def test_file_that_is_no_socket_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("data", encoding="utf-8")

    with pytest.raises(ConfigError):
        open_listener(ListenAddress(socket_path=str(path)))
    assert "data" == path.read_text(encoding="utf-8")


def test_port_in_use_is_a_config_error() -> None:
    with closing(open_listener(ListenAddress(host="127.0.0.1", port=0))) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port} is already in use"):
            open_listener(ListenAddress(host="127.0.0.1", port=port))


BAD_HEADS = {
    "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "other order": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "length twice": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
    "length with a sign": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\na",
    "folded header": b"GET / HTTP/1.1\r\nHost: x\r\nX-A: b\r\n c\r\n\r\n",
    "folded by a tab": b"GET / HTTP/1.1\r\nHost: x\r\nX-A: b\r\n\tX-Remote-User: ada\r\n\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nHost: x\n\n",
    "one bare line feed": b"GET / HTTP/1.1\r\nHost: x\r\nX-A: b\nX-Remote-User: ada\r\n\r\n",
    "bare line feed at the end": b"GET / HTTP/1.1\r\nHost: x\r\n\n",
    "bare carriage return": b"GET / HTTP/1.1\r\nHost: x\r\nX-A: b\rX-Remote-User: ada\r\n\r\n",
    "blank before the colon": b"GET / HTTP/1.1\r\nHost: x\r\nX-Remote-User : ada\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
}
GOOD = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Remote-User: ada\r\n\r\n"


def send_raw(listener: socket.socket, data: bytes, *, size: int = 2**20) -> bytes:
    with socket.create_connection(listener.getsockname(), timeout=GENEROUS_SECONDS) as client:
        with suppress(ConnectionError):
            for begin in range(0, len(data), size):
                client.sendall(data[begin : begin + size])
        return read_all(client)


@pytest.mark.parametrize("kind", BAD_HEADS)
def test_ambiguous_head_is_refused_and_the_connection_closed(trusting_portal: socket.socket, kind: str) -> None:
    # What follows would be the smuggled request.
    reply = send_raw(trusting_portal, BAD_HEADS[kind] + GOOD)

    assert (400, 1, False) == (status_of(reply), reply.count(b"HTTP/1.1"), b"ada user" in reply)


@pytest.mark.parametrize("kind", BAD_HEADS)
def test_ambiguous_head_byte_by_byte_signs_nobody_in(trusting_portal: socket.socket, kind: str) -> None:
    assert b"ada user" not in send_raw(trusting_portal, BAD_HEADS[kind] + GOOD, size=1)


def test_ambiguous_head_after_a_good_request_is_refused(trusting_portal: socket.socket) -> None:
    with socket.create_connection(trusting_portal.getsockname(), timeout=GENEROUS_SECONDS) as client:
        client.sendall(GOOD)
        assert b"ada user" == read_answer(client).body
        client.sendall(BAD_HEADS["two lengths"] + GOOD)

        assert 400 == status_of(read_all(client))


def test_ambiguous_head_in_the_pipeline_of_a_good_request_is_not_answered(trusting_portal: socket.socket) -> None:
    body = b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Remote-User: ada\r\nContent-Length: 2\r\n\r\nab"
    reply = send_raw(trusting_portal, body + BAD_HEADS["folded header"] + GOOD)

    assert (400, 1) == (status_of(reply), reply.count(b"HTTP/1.1"))


def test_chunked_body_is_refused(trusting_portal: socket.socket) -> None:
    reply = send_raw(trusting_portal, b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")

    assert 411 == status_of(reply)


def test_pipelined_requests_and_bodies_are_served(trusting_portal: socket.socket) -> None:
    post = b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Remote-User: ada\r\nContent-Length: 4\r\n\r\n\n\n\r\n"
    last = GOOD.replace(b"Host", b"Connection: close\r\nHost")

    assert 3 == send_raw(trusting_portal, post + GOOD + last).count(b"ada user")
