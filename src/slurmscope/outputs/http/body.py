# SPDX-License-Identifier: Apache-2.0
"""Check the head of a request whose body is to be read: nothing is read of a body that would be refused."""

from __future__ import annotations

from slurmscope.outputs.http.request import BadRequest, HttpRequest

_PLAIN_ENCODINGS = ("", "identity")


def body_length(request: HttpRequest, limit_bytes: int) -> int:
    """Return the length of the body in bytes; raise BadRequest if it is too large, compressed or of unknown length."""
    if request.headers.get("content-encoding", "").strip().lower() not in _PLAIN_ENCODINGS:
        raise BadRequest(415, "The body must not be compressed.", "encoding")
    if "transfer-encoding" in request.headers or "content-length" not in request.headers:
        raise BadRequest(400, "The header content-length is required; chunked bodies are not accepted.", "length")
    length = int(request.headers["content-length"])
    if length > limit_bytes:
        raise BadRequest(413, f"The body is larger than {limit_bytes} bytes.", "too_large")
    return length
