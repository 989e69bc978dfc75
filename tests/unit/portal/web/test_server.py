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
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurmscope.errors import ConfigError
from slurmscope.portal.scope import AsgiApp, Receive, Send
from slurmscope.portal.settings import ListenAddress, PortalSettings
from slurmscope.portal.sign_in.identity import Identifier, SignInError
from slurmscope.portal.sign_in.local_mode import Residents, find_residents
from slurmscope.portal.web.server import open_listener
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


def ask(listener: socket.socket, *lines: str, host: str = "localhost") -> Answer:
    """Send one request with these header lines on a connection of its own."""
    with socket.socket(listener.family, socket.SOCK_STREAM) as client:
        client.settimeout(GENEROUS_SECONDS)
        client.connect(listener.getsockname())
        head = "\r\n".join(["GET / HTTP/1.1", f"Host: {host}", "Connection: close", *lines, "", ""])
        client.sendall(head.encode("latin-1"))
        return read_answer(client)


@pytest.fixture(scope="module")
def trusting() -> Iterator[socket.socket]:
    with running(greeting(make_identifier(TRUSTING)), TRUSTING) as listener:
        yield listener


@pytest.fixture(scope="module")
def wary() -> Iterator[socket.socket]:
    with running(greeting(make_identifier(WARY)), WARY) as listener:
        yield listener


@pytest.mark.parametrize(
    "line", ["X-Remote-User: ada", "x-remote-user: ada", "X-REMOTE-USER:ada", "x-rEmOte-uSer:  ada "]
)
def test_listed_proxy_is_believed_however_it_writes_the_header(trusting: socket.socket, line: str) -> None:
    answer = ask(trusting, line)

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
def test_doubtful_header_is_refused(trusting: socket.socket, lines: tuple[str, ...]) -> None:
    assert 403 == ask(trusting, *lines).status


@pytest.mark.parametrize(
    "line", ["X-Remote-User: a\0da", "X-Remote-User: ada\r eve", "X-Remote-User : ada", "X-Remote-User: ada\n eve"]
)
def test_bytes_that_are_no_header_sign_nobody_in(trusting: socket.socket, line: str) -> None:
    assert ask(trusting, line).status in {400, 403}


@pytest.mark.parametrize("line", ["X-Remote-User: eve", "x_remote_user: eve"])
def test_header_of_a_stranger_is_refused(wary: socket.socket, line: str) -> None:
    assert 403 == ask(wary, line).status


@pytest.mark.parametrize(
    "claim", ["X-Forwarded-For: 10.0.0.5", "Forwarded: for=10.0.0.5", "X-Real-IP: 10.0.0.5", "X-Client-IP: 10.0.0.5"]
)
def test_stranger_cannot_claim_the_address_of_the_proxy(wary: socket.socket, claim: str) -> None:
    assert 403 == ask(wary, "X-Remote-User: eve", claim).status


def test_peer_is_whom_the_kernel_names_whatever_headers_say() -> None:
    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": f"{scope['scheme']} {scope['client'][0]}".encode()})

    with running(app, TRUSTING) as listener:
        answer = ask(listener, "X-Forwarded-For: 10.0.0.5", "X-Forwarded-Proto: https")

    assert b"http 127.0.0.1" == answer.body


def test_stranger_with_a_token_gets_in_and_without_one_does_not(wary: socket.socket) -> None:
    answer = ask(wary, f"Authorization: Bearer {GOOD_TOKEN}")
    nobody = ask(wary)

    assert (200, b"ada user") == (answer.status, answer.body)
    assert (401, 'Bearer realm="slurmscope"') == (nobody.status, nobody.headers["www-authenticate"])


def test_ipv4_that_comes_as_ipv6_is_the_same_peer() -> None:
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
        assert b"ada user" == ask(listener, "X-Remote-User: ada").body
        assert 403 == ask(listener, "X-Remote-User: ada", "X-Remote-User: eve").status


def test_unix_socket_is_believed_and_open_to_its_group_only(tmp_path: Path) -> None:
    path = tmp_path / "portal.sock"
    settings = replace(WARY, listen_address=ListenAddress(socket_path=str(path)))
    listener = open_listener(settings.listen_address)

    with running(greeting(make_identifier(settings)), settings, listener):
        assert 0o660 == stat.S_IMODE(path.stat().st_mode)
        assert b"ada user" == ask(listener, "X-Remote-User: ada").body


def test_unix_socket_of_the_local_mode_is_open_to_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "portal.sock"
    settings = PortalSettings(listen_address=ListenAddress(socket_path=str(path)))
    listener = open_listener(settings.listen_address)

    with running(greeting(make_identifier(settings)), settings, listener):
        assert 0o600 == stat.S_IMODE(path.stat().st_mode)
        assert b"runner admin" == ask(listener).body


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_group_of_the_portal_does_not_get_into_the_local_mode_by_its_socket() -> None:
    # Not under tmp_path, whose folders are closed to others anyway.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "portal.sock"
        settings = PortalSettings(listen_address=ListenAddress(socket_path=str(path)))
        knock = "import socket, sys; print(socket.socket(socket.AF_UNIX).connect_ex(sys.argv[1]))"
        with running(greeting(make_identifier(settings)), settings, open_listener(settings.listen_address)):
            told = subprocess.run(
                ["/usr/bin/env", "python3", "-c", knock, str(path)],
                user=65534, group=os.getegid(), extra_groups=[], cwd="/",
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip

    assert f"{errno.EACCES}\n" == told.stdout


def test_local_mode_knows_a_page_whose_name_was_made_to_point_here() -> None:
    settings = PortalSettings()
    with running(greeting(make_identifier(settings)), settings) as listener:
        port = listener.getsockname()[1]

        assert b"runner admin" == ask(listener, host=f"localhost:{port}").body
        assert 403 == ask(listener, host=f"evil.example:{port}").status


def test_local_mode_asks_the_kernel_who_is_there() -> None:
    settings = PortalSettings()
    residents = find_residents(settings)
    others = Residents(name="other", names={2**31 - 1: "other"})

    with running(greeting(make_identifier(settings, residents=residents)), settings) as listener:
        assert f"{residents.name} admin".encode() == ask(listener).body
    with running(greeting(make_identifier(settings, residents=others)), settings) as listener:
        assert 403 == ask(listener).status


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_somebody_else_on_this_machine_does_not_get_into_the_local_mode() -> None:
    settings = PortalSettings()
    visit = (
        "import http.client as h, sys; c = h.HTTPConnection('localhost', int(sys.argv[1])); "
        "c.request('GET', '/'); print(c.getresponse().status)"
    )
    with running(greeting(make_identifier(settings, residents=find_residents(settings))), settings) as listener:
        command = ["/usr/bin/env", "python3", "-c", visit, str(listener.getsockname()[1])]
        statuses = [
            subprocess.run(command, user=uid, cwd="/", capture_output=True, text=True, timeout=60, check=False).stdout
            for uid in (0, 65534)
        ]

    assert ["200\n", "403\n"] == statuses


def test_answer_tells_no_software_and_has_the_headers(trusting: socket.socket) -> None:
    answer = ask(trusting, "X-Remote-User: ada")

    assert "server" not in answer.headers
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert "private, no-store" == answer.headers["cache-control"]


def test_endless_head_is_cut_off(trusting: socket.socket) -> None:
    with socket.create_connection(trusting.getsockname(), timeout=GENEROUS_SECONDS) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"a" * 100_000)

        assert status_of(read_all(client)) in {400, 431}


def test_socket_of_a_dead_portal_is_replaced_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    address = ListenAddress(socket_path=str(tmp_path / "portal.sock"))
    open_listener(address).close()

    with closing(open_listener(address)), pytest.raises(ConfigError, match="cannot listen on unix:/"):
        open_listener(address)


def test_file_that_is_no_socket_stays(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data", encoding="utf-8")

    with pytest.raises(ConfigError):
        open_listener(ListenAddress(socket_path=str(path)))
    assert "data" == path.read_text(encoding="utf-8")


def test_port_that_is_taken_is_one_sentence() -> None:
    with closing(open_listener(ListenAddress(host="127.0.0.1", port=0))) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            open_listener(ListenAddress(host="127.0.0.1", port=port))
