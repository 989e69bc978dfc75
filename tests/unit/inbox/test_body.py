# SPDX-License-Identifier: Apache-2.0
"""Check that a body is parsed within its limits, and refused otherwise."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.http.server.request import BadRequest, HttpRequest
from slurmscope.inbox.group import parse_body
from slurmscope.metrics.parse import ParsedFamily

LIMIT = 1000
ZIPPED = gzip.compress(b"a 1\n", mtime=0)


def parsed(body: bytes, **headers: str) -> tuple[ParsedFamily, ...]:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    request = HttpRequest(method="PUT", path="/", headers=given, body=body)
    return parse_body(request, size_limit_bytes=LIMIT, sample_limit=10)


def refused(body: bytes, **headers: str) -> tuple[int, str]:
    with pytest.raises(BadRequest) as problem:
        parsed(body, **headers)
    return problem.value.status, problem.value.code


def test_families_without_samples_are_left_out() -> None:
    assert ["b"] == [family.name for family in parsed(b"# TYPE a gauge\nb 1\n", content_type="text/plain")]
    assert () == parsed(b"")


def test_gzip_is_decompressed_up_to_the_limit() -> None:
    body = b"a 1\n# " + b"x" * (LIMIT - 7) + b"\n"
    assert LIMIT == len(body)
    assert ["a"] == [family.name for family in parsed(gzip.compress(body), content_encoding="GZIP")]
    assert (413, "too_large") == refused(gzip.compress(body + b"\n"), content_encoding="gzip")
    assert (413, "too_large") == refused(gzip.compress(bytes(50_000_000)), content_encoding="gzip")


@pytest.mark.parametrize("body", [b"a 1\n", b"", ZIPPED[:-1], ZIPPED + b"x", ZIPPED * 2])
def test_broken_gzip_is_refused(body: bytes) -> None:
    assert (400, "format") == refused(body, content_encoding="gzip")


@pytest.mark.parametrize("body", [b"a 1", b"a\n", b"\xff 1\n", b"a 1\nb 2\na 3\n", b'{"a": 1}\n', b"a 1\n" * 11])
def test_what_is_not_text_format_is_refused(body: bytes) -> None:
    assert (400, "format") == refused(body)


def test_protobuf_is_refused_by_name() -> None:
    assert (415, "format") == refused(b"", content_type="application/vnd.google.protobuf; encoding=delimited")


@given(st.binary(max_size=300), st.sampled_from(["", "gzip"]))
def test_no_body_is_more_than_refused(body: bytes, encoding: str) -> None:
    try:
        parsed(body, content_encoding=encoding)
    except BadRequest as problem:
        assert problem.status in {400, 413}
