# SPDX-License-Identifier: Apache-2.0
"""Parse the body of a push: text format, compressed or not."""

from __future__ import annotations

import zlib

from slurmscope.errors import MalformedAnswer
from slurmscope.metrics.parse import ParsedFamily, parse
from slurmscope.metrics.write import Format
from slurmscope.outputs.http.body import GZIP
from slurmscope.outputs.http.request import BadRequest, HttpRequest

_GZIP_FORMAT = 31
_PROTOBUF = "application/vnd.google.protobuf"


def parse_body(request: HttpRequest, *, size_limit_bytes: int, sample_limit: int) -> tuple[ParsedFamily, ...]:
    """Return the families of a push that have samples; raise BadRequest if it is too large or not text format."""
    if request.headers.get("content-type", "").lower().startswith(_PROTOBUF):
        raise BadRequest(415, "The body must be in the text format; protobuf is not supported.", "format")
    body = request.body
    if request.headers.get("content-encoding", "").strip().lower() == GZIP:
        body = _decompressed(body, size_limit_bytes)
    try:
        families = tuple(parse(body.decode(), Format.TEXT, sample_limit=sample_limit))
    except UnicodeDecodeError as error:
        raise BadRequest(400, "The body is not UTF-8.", "format") from error
    except MalformedAnswer as error:
        raise BadRequest(400, f"{error}.", "format") from error
    return tuple(family for family in families if family.samples)


def _decompressed(body: bytes, limit_bytes: int) -> bytes:
    decompressor = zlib.decompressobj(wbits=_GZIP_FORMAT)
    try:
        plain = decompressor.decompress(body, limit_bytes + 1)
    except zlib.error as error:
        raise BadRequest(400, "The body is not gzip.", "format") from error
    if len(plain) > limit_bytes:
        raise BadRequest(413, f"The decompressed body is larger than {limit_bytes} bytes.", "too_large")
    if not decompressor.eof or decompressor.unused_data:
        raise BadRequest(400, "The gzip body is truncated, or something follows it.", "format")
    return plain
