# SPDX-License-Identifier: Apache-2.0
"""Describe, count and send responses."""

from __future__ import annotations

import itertools
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from slurmscope.http.server.request import BadRequest, HttpRequest
from slurmscope.http.server.wire import ClientTooSlow, Wire

logger = logging.getLogger(__name__)


Header = tuple[str, str]

REASONS = {
    200: "OK",
    202: "Accepted",
    204: "No Content",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    414: "URI Too Long",
    415: "Unsupported Media Type",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}

NO_CONTENT = 204
TEXT_TYPE = "text/plain; charset=utf-8"
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LINE_BREAK = re.compile(r"[\r\n\0]")

# Both labels of the request counter come from fixed lists: a client that invents methods must not invent series
# (CVE-2022-21698).
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE"})
OTHER = "other"


def _nothing() -> None:
    return


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One response.

    A ``body`` of bytes is sent with its length; any other iterable is streamed block by block. ``close`` is called
    exactly once, when the body was sent or given up, even if it was never iterated.
    """

    status: int = 200
    headers: tuple[Header, ...] = ()
    body: bytes | Iterable[bytes] = b""
    close: Callable[[], None] = _nothing


App = Callable[[HttpRequest], Response]
"""Answer a request; may raise BadRequest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """Say that the body of a request is read, how much of it, and how refusals are worded.

    ``has_credential`` means that the app itself checks who sends the request, so no password is required as well.
    ``is_quick`` means that it is answered without waiting for anything, so that one thread can answer many connections.
    With ``accepts_gzip``, the app decompresses bodies itself.
    """

    limit_bytes: int
    refuse: Callable[[BadRequest], Response]
    has_credential: bool = False
    is_quick: bool = False
    accepts_gzip: bool = False


FindUpload = Callable[[HttpRequest], Upload | None]
"""Return whether and how the body of a request is read; None means that it is not."""


def text_response(status: int, text: str, *headers: Header) -> Response:
    """Return one sentence of plain text that must not be cached."""
    fixed = (("Content-Type", TEXT_TYPE), ("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store"))
    return Response(status=status, headers=(*fixed, *headers), body=f"{text}\n".encode("utf-8", "backslashreplace"))


class RequestCounters(dict[tuple[str, str], int]):
    """Count requests by method and status code."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def count(self, method: str, status: int) -> None:
        key = (method if method in METHODS else OTHER, str(status) if status in REASONS else OTHER)
        with self._lock:
            self[key] = self.get(key, 0) + 1


def started(response: Response) -> Response:
    """Make the first block of a streamed body now, while a failure can still become a status."""
    if isinstance(response.body, bytes):
        return response
    try:
        blocks = iter(response.body)
        first = next(blocks, b"")
    except BaseException:
        response.close()
        raise
    return replace(response, body=itertools.chain((first,), blocks))


def send_response(
    wire: Wire, request: HttpRequest | None, response: Response, *, site_headers: Sequence[Header], is_last: bool
) -> bool:
    """Send a response and return whether all of it was sent; the request is None if it could not be parsed."""
    is_chunked = request is not None and request.is_http11 and not isinstance(response.body, bytes)
    framing = tuple(_framing(response, is_chunked=is_chunked, is_last=is_last))
    head = _whole_head(response.status, (*response.headers, *framing), tuple(site_headers), int(time.time()))
    if request is not None and request.method == "HEAD":
        wire.send(head)
    elif isinstance(response.body, bytes):
        wire.send(head + response.body)
    else:
        return _stream(wire, head, iter(response.body), is_chunked=is_chunked)
    return True


@lru_cache(maxsize=64)
def _whole_head(status: int, headers: tuple[Header, ...], site_headers: tuple[Header, ...], now_seconds: int) -> bytes:
    """Encode the head of a response; the heads of one second are much alike."""
    return head_bytes(status, merged((("Date", http_date(now_seconds)), *headers), site_headers))


def _framing(response: Response, *, is_chunked: bool, is_last: bool) -> Iterator[Header]:
    if is_chunked:
        yield "Transfer-Encoding", "chunked"
    elif response.status == NO_CONTENT:
        pass  # has no body, and no length of one
    elif isinstance(response.body, bytes):
        yield "Content-Length", str(len(response.body))
    if is_last:
        yield "Connection", "close"


def _stream(wire: Wire, head: bytes, blocks: Iterator[bytes], *, is_chunked: bool) -> bool:
    """Send block by block; a page that fails halfway ends in a connection reset, never in a proper end."""
    pending = head
    while True:
        try:
            block = next(blocks, None)
        except ClientTooSlow:
            wire.abort()
            raise
        except Exception:
            logger.exception("page failed while it was sent")
            wire.abort()
            return False
        if block is None:
            break
        if block:
            # An empty chunk would end the page.
            pending += b"%x\r\n%b\r\n" % (len(block), block) if is_chunked else block
            wire.send(pending)
            pending = b""
    if is_chunked:
        pending += b"0\r\n\r\n"
    if pending:
        wire.send(pending)
    return True


def head_bytes(status: int, headers: Iterable[Header]) -> bytes:
    """Encode the status line and headers; a line break inside a header is a bug and raises ValueError."""
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Unknown')}"]
    for name, value in headers:
        if _LINE_BREAK.search(name) or _LINE_BREAK.search(value):
            raise ValueError(f"header {name!r} holds a line break")
        lines.append(f"{name}: {value}")
    return "\r\n".join((*lines, "", "")).encode("latin-1")


def merged(headers: Iterable[Header], overriding: Iterable[Header]) -> list[Header]:
    """Return the headers with those of the same name replaced."""
    overriding = tuple(overriding)
    names = {name.lower() for name, _ in overriding}
    return [*(header for header in headers if header[0].lower() not in names), *overriding]


@lru_cache(maxsize=2)
def http_date(epoch_seconds: int) -> str:
    """Format a time for an HTTP header; ``strftime`` would depend on the locale."""
    at = time.gmtime(epoch_seconds)
    day, month = _DAYS[at.tm_wday], _MONTHS[at.tm_mon - 1]
    return f"{day}, {at.tm_mday:02} {month} {at.tm_year} {at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02} GMT"
