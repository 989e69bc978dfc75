# SPDX-License-Identifier: Apache-2.0
"""Parse the head of an HTTP request, strictly.

Ambiguous heads (folded lines, bare line feeds, doubled lengths) are refused: they are used to smuggle requests past
proxies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

HEAD_LIMIT_BYTES = 16 * 1024
REQUEST_LINE_LIMIT_BYTES = 8 * 1024
HEADERS_LIMIT = 100
QUERY_FIELDS_LIMIT = 200

_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([!-~]+) HTTP/(\d)\.(\d)\Z")
_HEADER_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*\Z")
_LENGTH = re.compile(r"[0-9]{1,15}\Z")
_SINGLE_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "authorization", "content-type", "expect"})


class BadRequest(Exception):
    """Carry the status and the message that the client gets."""

    def __init__(self, status: int, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code


UNKNOWN_PID = 0
"""What the kernel, too, says of processes that it cannot name."""


class PeerCredentials(NamedTuple):
    """Process and user at the other end of a local connection, as the kernel recorded them."""

    pid: int
    uid: int


def is_loopback(peer: str) -> bool:
    return peer == "::1" or peer.startswith("127.")


def peer_group(peer: str, uid: int | None) -> str:
    """Return whose limits a client shares: a user of this machine, an address, or a network of IPv6 of 64 bits.

    A client with one address of such a network has all of them, and every user of this machine all of its loopback.
    """
    if uid is not None:
        return f"uid {uid}"
    if is_loopback(peer):
        return "loopback"
    try:
        return str(int(ip_address(peer.partition("%")[0])) >> 64) if ":" in peer else peer
    except ValueError:
        return peer


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One request; header names are in lower case, ``peer`` is the address of the client.

    ``body`` is read for an :class:`~slurmscope.http.server.response.Upload` only. ``credentials`` are known of clients
    of a unix socket, and of those on this machine if the server looks for them. ``is_authenticated`` means that the web
    configuration requires a password or a certificate of every client. ``group`` is whose limits the client shares.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str]
    peer: str = ""
    is_http11: bool = True
    body: bytes = b""
    credentials: PeerCredentials | None = None
    is_authenticated: bool = False
    group: str = ""

    def with_body(self, body: bytes) -> HttpRequest:
        """Return the request with its body; ``dataclasses.replace`` takes twice as long."""
        return HttpRequest(
            method=self.method,
            path=self.path,
            query=self.query,
            headers=self.headers,
            peer=self.peer,
            is_http11=self.is_http11,
            body=body,
            credentials=self.credentials,
            is_authenticated=self.is_authenticated,
            group=self.group,
        )

    @property
    def wants_close(self) -> bool:
        """Return whether the client wants the connection closed after this request."""
        given = self.headers.get("connection")
        if given is None:
            return not self.is_http11
        return not self.is_http11 or "close" in (option.strip() for option in given.lower().split(","))

    @property
    def has_body(self) -> bool:
        return "transfer-encoding" in self.headers or self.headers.get("content-length", "0").strip("0") != ""


def parse_head(
    head: bytes,
    *,
    peer: str = "",
    credentials: PeerCredentials | None = None,
    is_authenticated: bool = False,
    group: str = "",
) -> HttpRequest:
    """Parse a request head, without the empty line that ends it."""
    request_line, *lines = head.split(b"\r\n")
    method, target, is_http11 = _parse_request_line(request_line)
    headers = _parse_headers(lines)
    _check_framing(headers, is_http11=is_http11)
    path, query = _parse_target(target)
    return HttpRequest(
        method=method,
        path=path,
        query=query,
        headers=headers,
        peer=peer,
        is_http11=is_http11,
        credentials=credentials,
        is_authenticated=is_authenticated,
        group=group,
    )


def _parse_request_line(line: bytes) -> tuple[str, str, bool]:
    if len(line) > REQUEST_LINE_LIMIT_BYTES:
        raise BadRequest(414, f"The request line is longer than {REQUEST_LINE_LIMIT_BYTES} bytes.")
    match = _REQUEST_LINE.match(line)
    if match is None:
        raise BadRequest(400, "The request line is malformed.")
    method, target, major, minor = match.groups()
    if major != b"1" or minor not in (b"0", b"1"):
        raise BadRequest(505, "Only HTTP/1.0 and HTTP/1.1 are supported.")
    return method.decode("ascii"), target.decode("ascii"), minor == b"1"


def _parse_headers(lines: list[bytes]) -> dict[str, str]:
    if len(lines) > HEADERS_LIMIT:
        raise BadRequest(431, f"There are more than {HEADERS_LIMIT} headers.")
    headers: dict[str, str] = {}
    for line in lines:
        match = _HEADER_LINE.match(line)
        if match is None:
            raise BadRequest(400, "A header is malformed.")
        name = match[1].decode("ascii").lower()
        value = match[2].decode("latin-1")
        if name in headers and name in _SINGLE_HEADERS:
            raise BadRequest(400, f"The header {name} is sent twice.")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _check_framing(headers: Mapping[str, str], *, is_http11: bool) -> None:
    if is_http11 and "host" not in headers:
        raise BadRequest(400, "The header host is missing.")
    if "transfer-encoding" in headers and ("content-length" in headers or not is_http11):
        raise BadRequest(400, "The length of the body is not clear.")
    if not _LENGTH.match(headers.get("content-length", "0")):
        raise BadRequest(400, "The header content-length is not a number of bytes.")


def _parse_target(target: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    try:
        if target.lower().startswith(("http://", "https://")):
            # Clients that take us for a proxy send the whole URL.
            parts = urlsplit(target)
            path, query = parts.path or "/", parts.query
        else:
            path, _, query = target.partition("?")
        fields = parse_qsl(query, keep_blank_values=True, max_num_fields=QUERY_FIELDS_LIMIT) if query else []
    except ValueError as error:
        raise BadRequest(400, "The request target is malformed or has too many parameters.") from error
    if not path.startswith("/"):
        raise BadRequest(400, "The request target is not a path.")
    return unquote(path) if "%" in path else path, tuple(fields)
