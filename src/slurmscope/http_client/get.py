# SPDX-License-Identifier: Apache-2.0
"""Fetch one document over HTTP, from a port or a unix socket, within a deadline and a size.

Redirects are not followed and proxies not used: a token goes to the server that it is meant for, and nowhere else.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from typing import TYPE_CHECKING, cast
from urllib.parse import urlencode

from slurmscope.errors import MalformedAnswer, ServerError, ServerRefused, ServerTimedOut
from slurmscope.http_client.address import ServerAddress
from slurmscope.http_client.deadlines import DeadlineSocket, seconds_left
from slurmscope.log import escape

if TYPE_CHECKING:
    from ssl import SSLContext


BODY_LIMIT_BYTES = 512 * 1024 * 1024

_BLOCK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """Hold what a server answered, whatever its status."""

    status: int
    body: bytes


class AnswerTooLong(MalformedAnswer):
    """The answer was given up because it is longer than the caller can use."""


def get(
    address: ServerAddress,
    path: str,
    headers: Mapping[str, str],
    *,
    deadline: float,
    tls: SSLContext | None = None,
    limit_bytes: int = BODY_LIMIT_BYTES,
) -> HttpAnswer:
    """Send one request and return the whole answer, or raise what kept it from coming before a monotonic time.

    The deadline is for everything but the name lookup, whose limit is set by the system's resolver.
    """
    request = _head("GET", address, path, headers)
    return _exchange(address, request, deadline=deadline, tls=tls, limit_bytes=limit_bytes)


def post_form(  # noqa: PLR0913 - the words of get, and the form
    address: ServerAddress,
    path: str,
    form: Mapping[str, str],
    headers: Mapping[str, str],
    *,
    deadline: float,
    tls: SSLContext | None = None,
    limit_bytes: int = BODY_LIMIT_BYTES,
) -> HttpAnswer:
    """Ask as ``get`` does, with the fields of a form, which may be longer than an address can be."""
    body = urlencode(form).encode("ascii")
    described = {
        **headers,
        "Content-Type": "application/x-www-form-urlencoded",
        "Content-Length": str(len(body)),
    }
    request = _head("POST", address, path, described) + body
    return _exchange(address, request, deadline=deadline, tls=tls, limit_bytes=limit_bytes)


def _exchange(
    address: ServerAddress, request: bytes, *, deadline: float, tls: SSLContext | None, limit_bytes: int
) -> HttpAnswer:
    try:
        with _connect(address, deadline, tls) as connection:
            connection.settimeout(seconds_left(deadline))
            _send(connection, request)
            incoming = cast("socket.socket", DeadlineSocket(connection, deadline))
            with HTTPResponse(incoming) as response:
                response.begin()
                return HttpAnswer(status=response.status, body=_read_body(response, limit_bytes))
    except TimeoutError as error:
        raise ServerTimedOut(f"{address} gave no whole answer in time") from error
    except OSError as error:
        raise ServerRefused(f"{address} cannot be reached: {escape(error.strerror or str(error), 300)}") from error
    except HTTPException as error:
        raise ServerError(
            f"{address} cut its answer short or does not speak HTTP: {escape(repr(error), 300)}"
        ) from error


def _connect(address: ServerAddress, deadline: float, tls: SSLContext | None) -> socket.socket:
    if not address.socket_path:
        connection = socket.create_connection((address.host, address.port), seconds_left(deadline))
    else:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds_left(deadline))
        if address.socket_path:
            connection.connect(address.socket_path)
        return tls.wrap_socket(connection, server_hostname=address.host) if address.is_tls and tls else connection
    except BaseException:
        connection.close()
        raise


def _head(method: str, address: ServerAddress, path: str, headers: Mapping[str, str]) -> bytes:
    lines = [
        f"{method} {address.prefix}{path} HTTP/1.1",
        f"Host: {address.host_and_port}",
        "User-Agent: slurmscope",
        "Accept: application/json",
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


def _send(connection: socket.socket, request: bytes) -> None:
    try:
        connection.sendall(request)
    except (BrokenPipeError, ConnectionResetError):
        # One who has read enough to refuse answers and closes; the answer tells more than the broken pipe.
        return


def _read_body(response: HTTPResponse, limit_bytes: int) -> bytes:
    """Read to the end: half an answer is no answer."""
    blocks: list[bytes] = []
    length = 0
    while block := response.read(_BLOCK_BYTES):
        blocks.append(block)
        length += len(block)
        if length > limit_bytes:
            raise AnswerTooLong(f"the server's answer is longer than {limit_bytes} bytes")
    if response.length:
        raise MalformedAnswer(f"the server's answer was cut: {response.length} bytes of it did not come")
    return b"".join(blocks)
