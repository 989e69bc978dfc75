# SPDX-License-Identifier: Apache-2.0
"""Describe a response and write its head as bytes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from slurmscope.outputs.http.request import HttpRequest

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
    411: "Length Required",
    413: "Content Too Large",
    414: "URI Too Long",
    415: "Unsupported Media Type",
    417: "Expectation Failed",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}

TEXT_TYPE = "text/plain; charset=utf-8"
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LINE_BREAK = re.compile(r"[\r\n\0]")


def _nothing() -> None:
    return


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Hold one answer.

    A ``body`` of bytes is sent with its length; anything else is streamed block by block. ``close``
    is called exactly once, when the body was sent or given up, even if it was never looked at.
    """

    status: int = 200
    headers: tuple[Header, ...] = ()
    body: bytes | Iterable[bytes] = b""
    close: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Tell who answers a path, with which methods, and how large a body it takes (0: none is read)."""

    answer: Callable[[HttpRequest], Response]
    methods: tuple[str, ...] = ("GET", "HEAD")
    body_limit_bytes: int = 0


App = Callable[[HttpRequest], Route]
"""Find the route of a request by its head alone, before any body is read."""


def sentence(status: int, text: str, *headers: Header) -> Response:
    """Answer with one sentence of plain text, and let nobody keep it."""
    fixed = (("Content-Type", TEXT_TYPE), ("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store"))
    return Response(status=status, headers=(*fixed, *headers), body=f"{text}\n".encode("utf-8", "backslashreplace"))


def head_bytes(status: int, headers: Iterable[Header]) -> bytes:
    """Write status line and headers; a line break inside a header is a bug and is refused."""
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


def http_date(epoch_seconds: float) -> str:
    """Write a time as HTTP does; ``strftime`` would follow the locale."""
    at = time.gmtime(epoch_seconds)
    day, month = _DAYS[at.tm_wday], _MONTHS[at.tm_mon - 1]
    return f"{day}, {at.tm_mday:02} {month} {at.tm_year} {at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02} GMT"
