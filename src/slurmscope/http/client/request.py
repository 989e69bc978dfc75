# SPDX-License-Identifier: Apache-2.0
"""Send one HTTP request over TCP, TLS or a unix socket, with a deadline and a size limit.

Redirects are not followed and proxies are not used: credentials reach the configured server and no other.
:func:`post` does without http.client, which takes 5 MB of memory with ssl.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import urlencode

from slurmscope import __version__
from slurmscope.core.errors import (
    ConfigError,
    MalformedAnswer,
    ServerError,
    ServerRefused,
    ServerTimedOut,
    ServerUntrusted,
)
from slurmscope.core.log import escape
from slurmscope.http.client.address import DeadlineReader, ServerAddress, seconds_left

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from ssl import SSLContext


BODY_LIMIT_BYTES = 512 * 1024 * 1024

_BLOCK_BYTES = 1024 * 1024

ANSWER_LIMIT_BYTES = 16 * 1024

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})[ \r]")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,9})[ \t]*\r\n", re.IGNORECASE)
_RETRY_AFTER = re.compile(rb"\r\nretry-after:[ \t]*([ -~]{1,64}?)[ \t]*\r\n", re.IGNORECASE)
_END_OF_HEAD = b"\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """One request; ``path`` follows the prefix of the server's address."""

    method: str = "GET"
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """The complete answer of a server, whatever its status; ``retry_after`` is the header of this name."""

    status: int
    body: bytes
    retry_after: str = ""


class AnswerTooLong(MalformedAnswer):
    """The answer exceeds the size limit of the caller."""


def send(
    address: ServerAddress,
    request: ClientRequest,
    *,
    deadline: float,
    tls: SSLContext | None = None,
    limit_bytes: int = BODY_LIMIT_BYTES,
) -> HttpAnswer:
    """Send a request and return the complete answer, or raise a SourceError that names the cause."""
    with open_response(address, request, deadline=deadline, tls=tls) as response:
        retry_after = response.getheader("Retry-After", "")
        return HttpAnswer(
            status=response.status, body=b"".join(read_blocks(response, limit_bytes)), retry_after=retry_after
        )


@contextlib.contextmanager
def open_response(
    address: ServerAddress, request: ClientRequest, *, deadline: float, tls: SSLContext | None = None
) -> Iterator[HTTPResponse]:
    """Send a request and yield the response, whose body the caller reads inside the ``with`` block.

    ``deadline`` is a monotonic time and covers everything, the body included, except the name lookup: its limit is
    set by the system's resolver.
    """
    # With ssl, which it imports: 6 MB that an exporter without pushing does not need.
    from http.client import HTTPException, HTTPResponse

    try:
        with connect(address, deadline, tls) as connection:
            connection.settimeout(seconds_left(deadline))
            send_all(connection, serialize(address, request))
            incoming = cast("socket.socket", DeadlineReader(connection, deadline))
            with HTTPResponse(incoming, method=request.method) as response:
                response.begin()
                yield response
    except TimeoutError as error:
        raise ServerTimedOut(f"{address} timed out before its answer was complete") from error
    except OSError as error:
        raise _refusal(address, error) from error
    except HTTPException as error:
        raise ServerError(f"{address} sent an incomplete or invalid HTTP answer: {escape(repr(error), 300)}") from error


def form_request(path: str, form: Mapping[str, str], headers: Mapping[str, str]) -> ClientRequest:
    """Return a POST request with the fields of a form, which may be longer than a URL can be."""
    described = {**headers, "Content-Type": "application/x-www-form-urlencoded"}
    return ClientRequest(method="POST", path=path, headers=described, body=urlencode(form).encode("ascii"))


def read_blocks(response: HTTPResponse, limit_bytes: int) -> Iterator[bytes]:
    """Yield the body in blocks; raise AnswerTooLong above the limit and MalformedAnswer for a truncated body."""
    total_bytes = 0
    while block := response.read(_BLOCK_BYTES):
        yield block
        total_bytes += len(block)
        if total_bytes > limit_bytes:
            raise AnswerTooLong(f"the server's answer is longer than {limit_bytes} bytes")
    if response.length:
        raise MalformedAnswer(f"the server's answer is truncated: {response.length} bytes are missing")


def _refusal(address: ServerAddress, error: OSError) -> ServerRefused:
    """Return why there is no answer; errors of TLS are recognised by their attributes, without importing ssl."""
    if problem := getattr(error, "verify_message", ""):
        return ServerUntrusted(f"the certificate of {address} is not trusted: {escape(problem, 300)}")
    if reason := getattr(error, "reason", ""):
        return ServerRefused(f"TLS with {address} failed: {escape(str(reason), 300).lower().replace('_', ' ')}")
    return ServerRefused(f"{address} is unreachable: {escape(error.strerror or str(error), 300)}")


def tls_context(ca_file: Path | None = None, cert_file: Path | None = None, key_file: Path | None = None) -> SSLContext:
    """Return a context that verifies servers against a CA file, or against the system's certificate authorities.

    With a certificate, the client proves its own identity; its key may be in the same file.
    """
    import ssl

    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigError(escape(f"the CA file {ca_file} cannot be used: {error}")) from error
    if cert_file is not None:
        _load_certificate(context, cert_file, key_file)
    return context


def _load_certificate(context: SSLContext, cert_file: Path, key_file: Path | None) -> None:
    def no_password() -> str:
        # Without this, OpenSSL would prompt for it at the terminal and wait.
        raise ConfigError(escape(f"the key of the client certificate {cert_file} is encrypted, which is not supported"))

    try:
        context.load_cert_chain(cert_file, key_file, password=no_password)
    except OSError as error:
        raise ConfigError(escape(f"the client certificate {cert_file} cannot be used: {error}")) from error


def connect(address: ServerAddress, deadline: float, tls: SSLContext | None = None) -> socket.socket:
    """Connect to a server before the deadline; the caller closes the connection."""
    context = (tls or tls_context()) if address.is_tls else None
    if not address.socket_path:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        connection = connect_to_any([(family, place) for family, _, _, _, place in found], deadline)
    else:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds_left(deadline))
        if address.socket_path:
            connection.connect(address.socket_path)
        return context.wrap_socket(connection, server_hostname=address.host) if context else connection
    except BaseException:
        connection.close()
        raise


def connect_to_any(places: Sequence[tuple[int, tuple[object, ...]]], deadline: float) -> socket.socket:
    """Connect to the first address that accepts, given with its family; each gets an equal share of the time left.

    A server with IPv6 addresses that drop every packet is reached by its IPv4 address.
    """
    failure = OSError("the host has no address")
    for position, (family, place) in enumerate(places):
        try:
            # A kernel without IPv6 has no such sockets.
            connection = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            failure = error
            continue
        try:
            connection.settimeout(seconds_left(deadline) / (len(places) - position))
            connection.connect(place)
        except OSError as error:
            connection.close()
            failure = error
        else:
            return connection
    raise failure


def serialize(address: ServerAddress, request: ClientRequest) -> bytes:
    """Return the bytes of a request, after which the server closes the connection."""
    # A request without a body needs no length, unless its method usually has one.
    has_length = request.body or request.method not in {"GET", "HEAD"}
    lines = [
        f"{request.method} {address.prefix}{request.path} HTTP/1.1",
        f"Host: {address.host_and_port}",
        f"User-Agent: slurmscope/{__version__}",
        "Connection: close",
        *([f"Content-Length: {len(request.body)}"] if has_length else ()),
        *(f"{name}: {value}" for name, value in request.headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + request.body


def send_all(connection: socket.socket, data: bytes) -> None:
    """Send a request; a server may answer before it has read all of it."""
    try:
        connection.sendall(data)
    except TimeoutError:
        raise
    except OSError:
        # A server that rejects a request early answers and closes; its answer, or the alert of TLS, says more than the
        # broken pipe. A connection that is lost fails again when the answer is read.
        return


def post(
    address: ServerAddress, request: ClientRequest, *, deadline: float, tls: SSLContext | None = None
) -> HttpAnswer:
    """Send a request and return the start of its answer, or raise a SourceError that names the cause."""
    if address.is_tls:
        with open_response(address, request, deadline=deadline, tls=tls) as response:
            retry_after = response.getheader("Retry-After", "")
            body = response.read(ANSWER_LIMIT_BYTES)
            return HttpAnswer(status=response.status, body=body, retry_after=retry_after)
    try:
        with connect(address, deadline) as connection:
            connection.settimeout(seconds_left(deadline))
            send_all(connection, serialize(address, request))
            return parse_answer(_receive(connection, deadline))
    except TimeoutError as error:
        raise ServerTimedOut(f"{address} timed out before its answer was complete") from error
    except OSError as error:
        raise ServerRefused(f"{address} is unreachable: {escape(error.strerror or str(error), 300)}") from error


def parse_answer(data: bytes) -> HttpAnswer:
    """Parse the status and the body of an answer, which may be cut."""
    head, end, body = data.partition(_END_OF_HEAD)
    status = _STATUS.match(data)
    if status is None or not end:
        raise MalformedAnswer(f"the server sent no HTTP answer: {head[:100]!r}")
    retry_after = _RETRY_AFTER.search(head + b"\r\n")
    return HttpAnswer(
        status=int(status[1]), body=body, retry_after=retry_after[1].decode("ascii") if retry_after else ""
    )


def _receive(connection: socket.socket, deadline: float) -> bytes:
    data = b""
    while len(data) < ANSWER_LIMIT_BYTES and not _is_complete(data):
        connection.settimeout(seconds_left(deadline))
        block = connection.recv(ANSWER_LIMIT_BYTES)
        if not block:
            break
        data += block
    return data


def _is_complete(data: bytes) -> bool:
    """Return whether the whole answer is there; without a length it ends with the connection."""
    head, end, body = data.partition(_END_OF_HEAD)
    if not end:
        return False
    length = _LENGTH.search(head + b"\r\n")
    is_empty = head[9:12] in {b"204", b"304"}
    return is_empty or (length is not None and len(body) >= int(length[1]))
