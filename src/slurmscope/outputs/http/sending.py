# SPDX-License-Identifier: Apache-2.0
"""Send a response over a wire, whole or streamed."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from slurmscope.outputs.http.request import HttpRequest
from slurmscope.outputs.http.response import Header, Response, head_bytes, http_date, merged
from slurmscope.outputs.http.wire import Wire

logger = logging.getLogger(__name__)


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
    """Send a response and tell whether it went out whole; the request is ``None`` if it was not understood."""
    is_chunked = request is not None and request.is_http11 and not isinstance(response.body, bytes)
    headers = [
        *merged((("Date", http_date(time.time())), *response.headers), site_headers),
        *_framing(response, is_chunked=is_chunked, is_last=is_last),
    ]
    head = head_bytes(response.status, headers)
    if request is not None and request.method == "HEAD":
        wire.send(head)
    elif isinstance(response.body, bytes):
        wire.send(head + response.body)
    else:
        return _stream(wire, head, iter(response.body), is_chunked=is_chunked)
    return True


def _framing(response: Response, *, is_chunked: bool, is_last: bool) -> Iterator[Header]:
    if is_chunked:
        yield "Transfer-Encoding", "chunked"
    elif isinstance(response.body, bytes) and response.status != 204:
        yield "Content-Length", str(len(response.body))
    if is_last:
        yield "Connection", "close"


def _stream(wire: Wire, head: bytes, blocks: Iterator[bytes], *, is_chunked: bool) -> bool:
    """Send block by block; a page that breaks off ends in a reset, never in a proper end."""
    pending = head
    while True:
        try:
            block = next(blocks, None)
        except Exception:
            logger.exception("a page broke off while it was sent")
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
