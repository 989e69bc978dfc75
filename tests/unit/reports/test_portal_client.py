# SPDX-License-Identifier: Apache-2.0
"""Requests to a portal prove who the user is to that portal alone, and every failure says what to do."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from slurmscope.core.errors import (
    ConfigError,
    ServerBusy,
    ServerError,
    ServerRefused,
    ServerTimedOut,
    SlurmscopeError,
    SourceError,
)
from slurmscope.http.client.address import parse_address
from slurmscope.reports.portal_jobs import PortalClient, choose_credentials
from slurmscope.reports.settings import ClientSettings, is_private, portal_link
from tests.fakes.scripted_server import RawRequest, read_whole_request, scripted_server

TOKEN = "slsc_0123456789abcdef0123456789abcdef"


@pytest.fixture
def settings(tmp_path: Path) -> ClientSettings:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    return ClientSettings(token_file=path, timeout=30.0)


@contextmanager
def _portal(status: str, body: bytes = b"", headers: str = "") -> Iterator[tuple[str, list[RawRequest]]]:
    seen: list[RawRequest] = []

    def handle(connection: socket.socket) -> None:
        seen.append(read_whole_request(connection))
        connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body)

    with scripted_server(handle) as url:
        yield url, seen


def _get(url: str, settings: ClientSettings, decode: Callable[[bytes], object] = json.loads) -> object:
    return PortalClient(parse_address(url), settings, {}).get("/api/v2/me", decode)


def test_token_is_sent_as_bearer(settings: ClientSettings) -> None:
    with _portal("200 OK", b'{"name": "ada"}') as (url, seen):
        assert {"name": "ada"} == _get(f"{url}/jobs", settings)

    assert ("GET /jobs/api/v2/me HTTP/1.1", f"Bearer {TOKEN}") == (seen[0].line, seen[0].headers["Authorization"])


def test_what_is_absent_is_none(settings: ClientSettings) -> None:
    with _portal("404 Not Found", b'{"error": "no"}') as (url, _):
        assert _get(url, settings) is None


@pytest.mark.parametrize(
    ("status", "body", "error", "message"),
    [
        ("401 Unauthorized", b'{"error":"It is expired."}', ServerRefused, "did not accept your identity: It is exp"),
        ("429 Too Many", b'{"error":"Wait."}', ServerBusy, "is busy: Wait."),
        ("503 Unavailable", b"<html>", ServerBusy, "is busy: it gave no reason"),
        ("500 Error", b'{"error":"a\\u001b[2Jb"}', ServerRefused, r"status 500: a\\u001b\[2Jb"),
        ("500 Error", b'{"error":["x"]}', ServerRefused, "it gave no reason"),
        ("200 OK", b"<html>sign in</html>", ServerError, "did not answer with JSON; set portal.url"),
        ("200 OK", b'{"name": 7}', ServerError, "runs another release of slurmscope"),
        ("200 OK", b"{" * 5000, ServerError, "runs another release of slurmscope"),
    ],
)
def test_failure_says_what_happened(
    settings: ClientSettings, status: str, body: bytes, error: type[SourceError], message: str
) -> None:
    def decode(answer: bytes) -> object:
        return msgspec.json.decode(answer, type=dict[str, str])

    with _portal(status, body) as (url, _), pytest.raises(error, match=message) as raised:
        _get(url, settings, decode)
    assert str(raised.value).isprintable()
    assert TOKEN not in str(raised.value)


def test_redirect_is_not_followed(settings: ClientSettings) -> None:
    with _portal("200 OK", b"{}") as (other, seen):
        location = f"Location: {other}/\r\n"
        with _portal("302 Found", headers=location) as (url, _), pytest.raises(ServerRefused, match="redirects to"):
            _get(url, settings)

    assert not seen


def test_portal_that_does_not_answer_in_time_is_reported(settings: ClientSettings, tmp_path: Path) -> None:
    quick = ClientSettings(token_file=settings.token_file, timeout=0.2)

    def handle(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.recv(65536)

    with scripted_server(handle) as url, pytest.raises(ServerTimedOut, match="timed out"):
        _get(url, quick)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_token_file_that_others_can_access_is_refused(settings: ClientSettings, mode: int) -> None:
    settings.token_file.chmod(mode)

    with pytest.raises(ConfigError, match=r"other users can access the token file .*; run chmod 600 on it"):
        choose_credentials(parse_address("https://portal.test"), settings, {})


@pytest.mark.parametrize("has_token", [True, False])
def test_nothing_is_sent_in_clear_text_to_other_hosts(settings: ClientSettings, has_token: bool) -> None:
    what = "token" if has_token else "munge credential"
    path = settings.token_file if has_token else settings.token_file.with_name("none")

    with pytest.raises(ConfigError, match=f"your {what} would be sent to http://portal.test:80 in clear text"):
        choose_credentials(parse_address("http://portal.test"), ClientSettings(token_file=path), {})
    choose_credentials(parse_address("http://portal.test"), ClientSettings(token_file=path, token_over_http=True), {})


def test_portal_on_this_host_needs_no_credential_where_munge_fails(settings: ClientSettings) -> None:
    # A portal in local mode knows its users without one; the socket of munged is not there.
    none = ClientSettings(token_file=settings.token_file.with_name("none"), timeout=30.0)
    conf = settings.token_file.with_name("slurm.conf")
    conf.write_text(f"AuthInfo=socket={conf}.absent\n")
    environment = {"SLURM_CONF": str(conf)}

    assert {} == choose_credentials(parse_address("http://127.0.0.1:8080"), none, environment)()
    with pytest.raises(SlurmscopeError, match="munge"):
        choose_credentials(parse_address("https://portal.test"), none, environment)()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://portal.test", True),
        ("http://127.0.0.1:8080", True),
        ("http://[::1]:8080", True),
        ("http://localhost", True),
        ("unix:/run/portal.sock", True),
        ("http://portal.test", False),
        ("http://10.0.0.1", False),
        ("http://localhost.evil.test", False),
    ],
)
def test_loopback_and_tls_are_private(url: str, expected: bool) -> None:
    assert expected == is_private(parse_address(url))


@pytest.mark.parametrize(
    ("url", "link"),
    [
        ("https://jobs.example.org", "https://jobs.example.org/jobs/12"),
        ("https://jobs.example.org:8443/portal/", "https://jobs.example.org:8443/portal/jobs/12"),
        ("http://localhost:80", "http://localhost/jobs/12"),
        ("unix:/run/portal.sock", ""),
    ],
)
def test_report_links_to_the_page_in_the_portal(url: str, link: str) -> None:
    assert link == portal_link("12", ClientSettings(url=parse_address(url)))
    assert "" == portal_link("12", ClientSettings())
