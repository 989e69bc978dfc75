# SPDX-License-Identifier: Apache-2.0
"""Post a few kilobytes and read a short answer, without http.client: with ssl, that takes 5 MB of memory."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

from slurmscope.core.errors import MalformedAnswer, ServerRefused, ServerTimedOut
from slurmscope.core.log import escape
from slurmscope.http.client.address import ServerAddress, seconds_left
from slurmscope.http.client.request import ClientRequest, HttpAnswer, connect, open_response, send_all, serialize

if TYPE_CHECKING:
    from ssl import SSLContext


ANSWER_LIMIT_BYTES = 16 * 1024

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})[ \r]")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,9})[ \t]*\r\n", re.IGNORECASE)
_RETRY_AFTER = re.compile(rb"\r\nretry-after:[ \t]*([ -~]{1,64}?)[ \t]*\r\n", re.IGNORECASE)
_END_OF_HEAD = b"\r\n\r\n"


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
