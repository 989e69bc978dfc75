# SPDX-License-Identifier: Apache-2.0
"""Job IDs of Lustre clients are parsed in every form that sites configure, at a bounded cost."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.lustre.use import LENGTH_LIMIT, JobIdPatterns, ParsedJobId, compile_pattern, parse_patterns

KNOWN = JobIdPatterns()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4711", ParsedJobId(job=4711, shown="4711")),
        ("4711_3", ParsedJobId(job=4711, shown="4711_3")),
        ("4711+1", ParsedJobId(job=4711, shown="4711")),
        ("4711.0", ParsedJobId(job=4711, shown="4711")),
        ("4711_3.batch", ParsedJobId(job=4711, shown="4711_3")),
        ("4711.extern", ParsedJobId(job=4711, shown="4711")),
        ("4711:1001:n1", ParsedJobId(job=4711, shown="4711", uid=1001)),
        ("4711_3:1001:n1", ParsedJobId(job=4711, shown="4711_3", uid=1001)),
        (":1001:n1", ParsedJobId(uid=1001)),
        ("cp.1001", ParsedJobId(program="cp", uid=1001)),
        ("my.tool.v2.1001", ParsedJobId(program="my.tool.v2", uid=1001)),
        ("python 3.1001", ParsedJobId(program="python 3", uid=1001)),
        ("4711.1001", ParsedJobId(program="4711", uid=1001)),
        ("cp.1001@n1.example.org", ParsedJobId(program="cp", uid=1001)),
        ("a@b.c.0@n1", ParsedJobId(program="a@b.c", uid=0)),
    ],
)
def test_known_forms(text: str, expected: ParsedJobId) -> None:
    assert expected == KNOWN.parse(text)


@pytest.mark.parametrize(
    "text",
    ["", "cp", ".", ".1001", "cp.", "cp.x1", "cp.-1", "12345678901", "n1", "::", ":x:n1", "cp.١٠", "a" * 100 + ".1001"],
)
def test_other_texts_have_no_form(text: str) -> None:
    assert KNOWN.parse(text) is None


def test_configured_patterns_come_first_and_in_order() -> None:
    patterns = JobIdPatterns(["%e:%u:%g", r"site-(?P<user>\w+)-(?P<job>\d+)", r"(?P<program>site)-(?P<uid>\d+)-.*"])

    assert ParsedJobId(program="a:b", uid=1001) == patterns.parse("a:b:1001:100")
    assert ParsedJobId(job=7, shown="7", user="alice") == patterns.parse("site-alice-7")
    assert ParsedJobId(program="site", uid=1001) == patterns.parse("site-1001-x")
    assert ParsedJobId(job=4711, shown="4711") == patterns.parse("4711")


def test_codes_of_lustre_are_literal_where_they_are_no_codes() -> None:
    patterns = JobIdPatterns(["[%j]+%p@%H"])

    assert ParsedJobId(job=7, shown="7") == patterns.parse("[7]+42@n1")
    assert patterns.parse("[7]]42@n1") is None


def test_pattern_that_matches_without_a_user_leaves_the_text_to_the_next() -> None:
    patterns = JobIdPatterns([r"(?P<job>x?)cp(?P<host>.*)", r"(?P<job>\w)cp.*"])

    assert ParsedJobId(program="cp", uid=1001) == patterns.parse("cp.1001")
    assert patterns.parse("xcp") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("%x.%u", "'%x' is not a code"),
        ("%u%", "'%' is not a code"),
        ("%u.%u", "not a valid Python regular expression"),
        ("%e", "identifies no job and no user"),
        ("", "identifies no job and no user"),
        ("(?P<job>", "not a valid Python regular expression"),
        (r"(?P<jobid>\d+)", "unknown group 'jobid'"),
        (r"(?P<host>\d+)", "identifies no job and no user"),
        (r"(?P<uid>(\d+)+)", "repeats a group"),
        (r"(?:a|aa){1,9}(?P<uid>\d)", "repeats a group"),
        (r"(?P<program>.+.+.+.+)\.(?P<uid>\d+)", "has 5 parts of variable length"),
        (r"(?P<uid>\d{1,3}\d{2,}\d{,4}\d*\d+)", "has 5 parts of variable length"),
        ("(?P<uid>1)" + "x" * 256, "is too long"),
    ],
)
def test_invalid_and_costly_patterns_are_rejected(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason.replace("(", r"\(")):
        parse_patterns([text])


def test_repeats_inside_classes_and_escapes_are_literal() -> None:
    pattern = compile_pattern(r"[+*){]\)\+(?P<uid>\d{4})[^]+]\{")

    match = pattern.fullmatch(r"*)+1001x{")
    assert match is not None
    assert "1001" == match["uid"]


def test_valid_patterns_are_kept_as_they_are() -> None:
    assert ("%e.%u", r"(?P<uid>\d+)") == parse_patterns(["%e.%u", r"(?P<uid>\d+)"])


@given(st.text(max_size=80))
def test_any_text_is_parsed_or_has_no_form(text: str) -> None:
    parsed = KNOWN.parse(text)

    if parsed is not None:
        assert parsed.job is not None or parsed.uid is not None
        assert len(text) <= LENGTH_LIMIT
        assert parsed.program in text


def test_worst_text_for_the_costliest_pattern_takes_at_most_a_thousand_times_an_ordinary_one() -> None:
    # Nested repeats would take 2**64 steps here.
    patterns = JobIdPatterns([r"(?P<program>\w+.*)x\.(?P<uid>\d+)y.*"])

    def seconds(text: str) -> float:
        started = time.perf_counter()
        for _ in range(20):
            patterns.parse(text)
        return time.perf_counter() - started

    seconds("cp.1001")
    assert min(seconds("x.1" * 21) for _ in range(3)) < 1000 * max(seconds("cp.1001") for _ in range(3))
