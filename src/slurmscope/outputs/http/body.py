# SPDX-License-Identifier: Apache-2.0
"""Check the head of a request whose body is to be read: nothing is read of a body that would be refused."""

from __future__ import annotations

from slurmscope.outputs.http.request import BadRequest, HttpRequest

GZIP = "gzip"
_PLAIN_ENCODINGS = ("", "identity")


def body_length(request: HttpRequest, limit_bytes: int, *, accepts_gzip: bool = False) -> int:
    """Return the length of the body in bytes; raise BadRequest if it is too large, compressed or of unknown length."""
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in _PLAIN_ENCODINGS and not (accepts_gzip and encoding == GZIP):
        allowed = "in no way but gzip" if accepts_gzip else "not"
        raise BadRequest(415, f"The body must {allowed} be compressed.", "encoding")
    if "transfer-encoding" in request.headers or "content-length" not in request.headers:
        raise BadRequest(400, "The header content-length is required; chunked bodies are not accepted.", "length")
    length = int(request.headers["content-length"])
    if length > limit_bytes:
        raise BadRequest(413, f"The body is larger than {limit_bytes} bytes.", "too_large")
    return length
