# SPDX-License-Identifier: Apache-2.0
"""Check that a body is parsed within its limits, and refused otherwise."""

from __future__ import annotations

import gzip
import math
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.http.server.request import BadRequest, HttpRequest
from slurmscope.inbox.group import parse_body
from slurmscope.metrics.parse import ParsedFamily
from tests.fakes import protobuf_metrics as pb

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


@pytest.mark.parametrize("body", [b"a 1\n", b"", ZIPPED[:-1], ZIPPED + b"x", ZIPPED + ZIPPED[:-1]])
def test_broken_gzip_is_refused(body: bytes) -> None:
    assert (400, "format") == refused(body, content_encoding="gzip")


@pytest.mark.parametrize("body", [b"a 1", b"a\n", b"\xff 1\n", b"a 1\nb 2\na 3\n", b'{"a": 1}\n', b"a 1\n" * 11])
def test_what_is_not_text_format_is_refused(body: bytes) -> None:
    assert (400, "format") == refused(body)


def test_members_of_a_gzip_body_are_joined_up_to_the_limit() -> None:
    cut = b"".join(gzip.compress(part) for part in (b"a ", b"1", b"\n"))
    assert 1.0 == parsed(cut, content_encoding="gzip")[0].samples[0].value
    assert (413, "too_large") == refused(gzip.compress(b"#" * LIMIT) + ZIPPED, content_encoding="gzip")


@pytest.mark.parametrize(
    "body", [b'a{x="\\t"} 1\n', b'a{x="\\\\\\t"} 1\n', b"# HELP a A \\t\na 1\n", b'# HELP a \\"\na 1\n']
)
def test_escapes_that_the_format_does_not_have_are_refused(body: bytes) -> None:
    assert (400, "format") == refused(body)


def test_escapes_and_comments_with_a_backslash_are_accepted() -> None:
    body = b'# a \\t comment\n# HELP a \\\\ \\n\na{x="\\\\ \\n \\""} 1\n'
    assert {"x": '\\ \n "'} == parsed(body)[0].samples[0].labels


def test_times_of_pushes_are_left_to_the_inbox() -> None:
    assert ["a"] == [f.name for f in parsed(b"push_time_seconds 1\na 1\npush_failure_time_seconds 1\n")]


def test_protobuf_is_parsed_as_text_would_be() -> None:
    body = b"".join(
        (
            pb.family("g", pb.GAUGE, pb.simple(pb.GAUGE, 1.5, a="b"), help="Of \\ it."),
            pb.family("c", None, pb.simple(pb.COUNTER, 3)),
            pb.family("h", pb.HISTOGRAM, pb.histogram(3, 4.5, [(2.5, 2)])),
            pb.family("s", pb.SUMMARY, pb.summary(2, 0.5, [(0.5, 7)])),
        )
    )
    text = (
        b'# HELP g Of \\\\ it.\n# TYPE g gauge\ng{a="b"} 1.5\n# TYPE c counter\nc 3\n# TYPE h histogram\n'
        b'h_bucket{le="2.5"} 2\nh_sum 4.5\nh_count 3\n# TYPE s summary\ns{quantile="0.5"} 7\ns_sum 0.5\ns_count 2\n'
    )
    assert parsed(text) == parsed(body, content_type=pb.CONTENT_TYPE)
    assert parsed(text) == parsed(gzip.compress(body), content_type=pb.CONTENT_TYPE, content_encoding="gzip")


@pytest.mark.parametrize(
    "body",
    [
        pb.family("g", pb.GAUGE, pb.simple(pb.GAUGE, 1))[:-1],
        pb.family("g-1", pb.GAUGE, pb.simple(pb.GAUGE, 1)),
        pb.family("g", pb.GAUGE, pb.simple(pb.COUNTER, 1)),
        pb.family("g", pb.GAUGE_HISTOGRAM, pb.histogram(1, 1, [])),
        pb.family("g", pb.GAUGE, pb.simple(pb.GAUGE, 1, **{"a-b": "c"})),
        pb.family("g", pb.GAUGE, pb.block(1, pb.block(1, "a")) * 2 + pb.block(2, b"")),
        pb.family("g", pb.GAUGE, *(pb.simple(pb.GAUGE, 1, n=str(n)) for n in range(11))),
        pb.delimited(pb.number(1, 5)),
        pb.delimited(pb.block(1, b"\xff")),
        pb.delimited(pb.block(1, "g") + pb.number(3, 1) + pb.number(4, 1)),
        pb.delimited(pb.block(1, "g") + pb.block(3, "x")),
        pb.delimited(pb.block(1, "g") + pb.double(3, math.inf)),
        pb.delimited(pb.block(1, "g") + pb.double(3, math.nan)),
        pb.delimited(pb.block(1, "g") + pb.double(3, -1)),
        pb.family("g", pb.GAUGE, pb.simple(pb.GAUGE, 1, **{f"l{n}": "" for n in range(101)})),
        pb.delimited(b"\x0b"),
        b"\x80" * 20,
        b"a 1\n",
    ],
)
def test_protobuf_that_is_not_valid_is_refused(body: bytes) -> None:
    assert (400, "format") == refused(body, content_type=pb.CONTENT_TYPE)


def test_buckets_beyond_the_limit_take_no_memory() -> None:
    body = pb.family("h", pb.HISTOGRAM, pb.metric(pb.HISTOGRAM, b"\x1a\0" * 100_000))
    tracemalloc.start()
    try:
        assert (400, "format") == refused(body, content_type=pb.CONTENT_TYPE)
        assert tracemalloc.get_traced_memory()[1] < 20 * len(body)
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=300), st.sampled_from(["", "gzip"]), st.sampled_from(["", pb.CONTENT_TYPE]))
def test_no_body_is_more_than_refused(body: bytes, encoding: str, kind: str) -> None:
    try:
        parsed(body, content_encoding=encoding, content_type=kind)
    except BadRequest as problem:
        assert problem.status in {400, 413}
