# SPDX-License-Identifier: Apache-2.0
"""Check the heads of requests before uvicorn parses them, as strictly as the exporters do.

uvicorn's parser accepts bare line feeds, folded headers, and a body with two lengths. A proxy in front may read such a
request differently, which is how requests are smuggled past its sign-in.
"""

from __future__ import annotations

import re

from slurmscope.outputs.http.request import BadRequest, parse_head

MAX_HEAD_BYTES = 64 * 1024

_END = b"\r\n\r\n"
_BARE_LINE_FEED = re.compile(rb"(?<!\r)\n")


class RequestFraming:
    """Split what a client sends into requests; bytes of a head are held back until it is complete and checked."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._body_left = 0

    @property
    def has_begun(self) -> bool:
        """Return whether a head is incomplete."""
        return bool(self._head)

    @property
    def is_complete(self) -> bool:
        """Return whether the client has sent whole requests only."""
        return not self._head and not self._body_left

    def feed(self, data: bytes) -> bytes:
        """Return what may be parsed; raise BadRequest for a head that is malformed, ambiguous or too long."""
        checked = bytearray()
        while data:
            if self._body_left:
                checked += data[: self._body_left]
                data, self._body_left = data[self._body_left :], max(0, self._body_left - len(data))
                continue
            end = self._find_end(data)
            if end < 0:
                break
            checked += self._head[:end]
            data = bytes(self._head[end:])
            self._head.clear()
        return bytes(checked)

    def _find_end(self, data: bytes) -> int:
        """Add to the head, and return where it ends; -1 if it is incomplete."""
        # Only what is new is searched: a head may arrive byte by byte.
        known = max(0, len(self._head) - len(_END) + 1)
        self._head += data
        end = self._head.find(_END, known)
        if _BARE_LINE_FEED.search(self._head, known, end if end >= 0 else len(self._head)):
            raise BadRequest(400, "A line of the request does not end with CRLF.")
        if max(end, len(self._head) if end < 0 else 0) > MAX_HEAD_BYTES:
            raise BadRequest(431, "The request headers are too large.")
        if end < 0:
            return -1
        self._body_left = _find_length(bytes(self._head[:end]))
        return end + len(_END)


def _find_length(head: bytes) -> int:
    request = parse_head(head)
    if "transfer-encoding" in request.headers:
        raise BadRequest(411, "A request body needs a Content-Length; Transfer-Encoding is not supported.")
    return int(request.headers.get("content-length", "0"))
