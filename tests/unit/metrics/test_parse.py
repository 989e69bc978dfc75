# SPDX-License-Identifier: Apache-2.0
"""Check the parser against the formats' rules, and that nothing it is fed breaks it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from slurmscope.core.errors import SourceError
from slurmscope.metrics.parse import MalformedPage, ParsedFamily, ParsedSample, Type, parse
from slurmscope.metrics.write import Format


def text(page: str | Iterable[str]) -> list[ParsedFamily]:
    """Return the families of a page in text format."""
    return list(parse(page, Format.TEXT))


def openmetrics(page: str) -> list[ParsedFamily]:
    """Return the families of an OpenMetrics page."""
    return list(parse(page, Format.OPENMETRICS))


def samples(families: Iterable[ParsedFamily]) -> list[ParsedSample]:
    """Return the samples of all families."""
    return [sample for family in families for sample in family.samples]


def test_text_family_is_read_with_its_metadata() -> None:
    page = '# HELP x_total A \\\\ b\\nc \\"d\n# TYPE x_total counter\nx_total{a="1",b="2"} 5 1500\n'
    sample = ParsedSample("x_total", {"a": "1", "b": "2"}, 5.0, 1.5)
    expected = ParsedFamily(name="x_total", type=Type.COUNTER, help='A \\ b\nc \\"d', unit="", samples=(sample,))
    assert [expected] == text(page)


def test_openmetrics_family_is_read_with_its_metadata() -> None:
    page = '# HELP x_bytes A \\"b\\"\n# TYPE x_bytes counter\n# UNIT x_bytes bytes\nx_bytes_total{a="1"} 5 1.5\n# EOF\n'
    sample = ParsedSample("x_bytes_total", {"a": "1"}, 5.0, 1.5)
    assert [
        ParsedFamily(name="x_bytes", type=Type.COUNTER, help='A "b"', unit="bytes", samples=(sample,))
    ] == openmetrics(page)


@pytest.mark.parametrize(
    "line",
    [
        'x{a="1",b="2"} 5',
        'x{a="1",b="2",} 5',
        'x { a = "1" , b = "2" , } 5',
        '\t x\t{a="1",\tb="2"}\t5\t',
        'x{a="1",b="2"}5',
        'x{a="1",b="2"} 5.0 -1',
        'x{a="1",b="2"} +5e0',
    ],
)
def test_text_format_is_free_with_blanks(line: str) -> None:
    (sample,) = samples(text(f"{line}\n"))
    assert ("x", {"a": "1", "b": "2"}, 5.0) == sample[:3]


@pytest.mark.parametrize("page", ["", "\n", "# a comment\n", " \t\n#\n# HELPFUL x\n#HELP\n# TYPE\n"])
def test_blank_lines_and_comments_are_skipped(page: str) -> None:
    assert [] == text(page)


def test_labels_may_be_empty() -> None:
    assert [{}, {}] == [sample.labels for sample in samples(text("x{} 1\ny{ } 1\n"))]


@pytest.mark.parametrize(
    ("quoted", "value"),
    [
        (r"a\"b", 'a"b'),
        (r"a\\b", "a\\b"),
        (r"a\nb", "a\nb"),
        (r"a\\nb", "a\\nb"),
        (r"a\xb", r"a\xb"),
        ("}, # {", "}, # {"),
        ("\r\x00\u2028\x85", "\r\x00\u2028\x85"),
        ("", ""),
    ],
)
@pytest.mark.parametrize("format", Format)
def test_label_values_are_unescaped(quoted: str, value: str, format: Format) -> None:
    page = f'x{{a="{quoted}",b="c"}} 1\n' + ("# EOF\n" if format is Format.OPENMETRICS else "")
    assert [{"a": value, "b": "c"}] == [sample.labels for sample in samples(parse(page, format))]


@pytest.mark.parametrize(
    ("number", "value"),
    [
        ("1", 1.0),
        ("-1.5e3", -1500.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("+Inf", math.inf),
        ("-inf", -math.inf),
        ("1e-400", 0.0),
    ],
)
def test_numbers_are_read(number: str, value: float) -> None:
    assert [value] == [sample.value for sample in samples(text(f"x {number}\n"))]


@pytest.mark.parametrize("number", ["NaN", "nan"])
def test_nan_is_a_number(number: str) -> None:
    assert [True] == [math.isnan(sample.value) for sample in samples(text(f"x {number}\n"))]


@pytest.mark.parametrize(
    "number", ["1_000", "0x10", "1e400", "٣", "", "one", "1e", ".", "--1", "1 2 3", "1 1.5", "9" * 500]
)
def test_what_is_no_number_is_refused(number: str) -> None:
    with pytest.raises(MalformedPage):
        text(f"x {number}\n")


@pytest.mark.parametrize(
    "exemplar",
    [' # {trace="a\\"b # }"} 1', " # {} 1 2.5", " 12 # {} NaN", " 1.5"],
)
def test_exemplars_and_timestamps_are_read_over(exemplar: str) -> None:
    assert [7.0] == [sample.value for sample in samples(openmetrics(f"x 7{exemplar}\n# EOF\n"))]


@pytest.mark.parametrize(
    "line",
    [
        'x{a="1"',
        'x{a="1} 1',
        'x{a="1"} ',
        "x",
        "x{a=1} 1",
        "x{a} 1",
        "x{,} 1",
        'x{a="1",,} 1',
        'x{a="1" b="2"} 1',
        'x{1a="1"} 1',
        'x{__name__="y"} 1',
        'x{a="1",a="2"} 1',
        '{"x"} 1',
        "1x 1",
        "é 1",
        "x 1\r",
        "x 1 # {} 1",
        "x\x0b1",
        "# TYPE x",
        "# TYPE x counters",
        "# TYPE x info",
        "# HELP 1x text",
        "<html>",
    ],
)
def test_malformed_text_line_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(MalformedPage) as caught:
        text(f"# fine\nfine 1\n{line}\nx 1\n")
    assert 3 == caught.value.line
    assert "line 3" in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "x  1",
        " x 1",
        "x 1 ",
        'x{a="1",} 1',
        'x{a="1"}1',
        "x 1 NaN",
        "x 1 # {}",
        "x 1 # {} 1 2 3",
        "# a comment",
        "#",
        "# EOF ",
        "# TYPE x untyped",
        "# UNIT x bytes",
        "# HELP x",
    ],
)
def test_malformed_openmetrics_line_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(MalformedPage) as caught:
        openmetrics(f"fine 1\n{line}\n# EOF\n")
    assert 2 == caught.value.line


def test_malformed_page_is_a_source_error_with_a_reason() -> None:
    with pytest.raises(SourceError) as caught:
        text("no sample\n")
    assert "malformed" == caught.value.reason


@pytest.mark.parametrize("page", ["x 1", "x 1\ny 12", "# HELP x cut"])
def test_page_that_was_cut_is_refused(page: str) -> None:
    with pytest.raises(MalformedPage, match="truncated"):
        text(page)


@pytest.mark.parametrize("page", ["", "x 1\n", "x 1\n# EO", "x 1\n# EOF "])
def test_openmetrics_without_end_is_refused(page: str) -> None:
    with pytest.raises(MalformedPage, match="truncated"):
        openmetrics(page)


def test_end_needs_no_newline() -> None:
    # As prometheus_client's parser, and by the grammar of OpenMetrics.
    assert [1.0] == [sample.value for sample in samples(openmetrics("x 1\n# EOF"))]
    with pytest.raises(MalformedPage, match="truncated"):
        text("x 1\n# EOF")


@pytest.mark.parametrize("more", ["x 1\n", "\n", "# EOF\n"])
def test_nothing_may_follow_the_end(more: str) -> None:
    with pytest.raises(MalformedPage, match="follows"):
        openmetrics(f"# EOF\n{more}")


@pytest.mark.parametrize(
    "page",
    [
        "x 1\ny 1\nx 2\n",
        "# TYPE x gauge\n# TYPE x gauge\n",
        "# HELP x a\n# HELP x a\n",
        "x 1\n# TYPE x gauge\n",
        "# TYPE x gauge\ny 1\n# HELP x late\n",
    ],
)
def test_family_stands_in_one_group_with_its_metadata_first(page: str) -> None:
    with pytest.raises(MalformedPage):
        text(page)


def test_samples_join_the_family_their_type_gives_them() -> None:
    page = (
        '# TYPE h histogram\nh_bucket{le="+Inf"} 1\nh_count 1\nh_sum 1\n'
        '# TYPE s summary\ns{quantile="0.5"} 1\ns_count 1\ns_sum 1\ns_total 1\n# TYPE g gauge\n'
    )
    expected = [
        ("h", Type.HISTOGRAM, ["h_bucket", "h_count", "h_sum"]),
        ("s", Type.SUMMARY, ["s", "s_count", "s_sum"]),
        ("s_total", Type.UNKNOWN, ["s_total"]),
        ("g", Type.GAUGE, []),
    ]
    assert expected == [(f.name, f.type, [sample.name for sample in f.samples]) for f in text(page)]


def test_openmetrics_types_are_all_known() -> None:
    suffixes = {"counter": "_total", "info": "_info", "histogram": "_count", "gaugehistogram": "_gcount"}
    for kind in Type:
        name = f"x{suffixes.get(kind.value, '')}"
        (family,) = openmetrics(f"# TYPE x {kind.value}\n{name} 1\n# EOF\n")
        assert ("x", kind, name) == (family.name, family.type, family.samples[0].name)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_pieces_may_be_cut_anywhere(size: int) -> None:
    page = '# HELP x A\n# TYPE x gauge\nx{a="b\\n"} 1\n\nx 12.5\n'
    assert text(page) == text(page[i : i + size] for i in range(0, len(page), size))


def test_long_line_is_refused_before_its_end_is_seen() -> None:
    read: list[str] = []

    def pieces() -> Iterator[str]:
        yield "x 1\n"
        for _ in range(1000):
            read.append("a" * 10)
            yield read[-1]

    with pytest.raises(MalformedPage, match="longer than 100 characters") as caught:
        list(parse(pieces(), Format.TEXT, line_limit=100))
    assert 2 == caught.value.line
    assert 11 == len(read)


def test_line_of_just_the_limit_is_read() -> None:
    assert 1 == len(list(parse("x 12345678\n", Format.TEXT, line_limit=10)))
    assert 1 == len(text("x " + " " * 65_533 + "1\n"))
    with pytest.raises(MalformedPage, match="longer than 65536 characters"):
        text("x " + " " * 65_534 + "1\n")


def test_samples_are_capped() -> None:
    page = "".join(f'x{{a="{number}"}} 1\n' for number in range(6))
    assert 6 == len(samples(parse(page, Format.TEXT, sample_limit=6)))
    with pytest.raises(MalformedPage, match="more than 5 samples"):
        list(parse(page, Format.TEXT, sample_limit=5))


def test_families_are_capped() -> None:
    page = "".join(f"# TYPE x{number} gauge\n" for number in range(6))
    assert 6 == len(list(parse(page, Format.TEXT, sample_limit=6)))
    with pytest.raises(MalformedPage, match="more than 5 families"):
        list(parse(page, Format.TEXT, sample_limit=5))


@pytest.mark.parametrize(
    "line",
    [
        'x{a="' + "\\" * 60_000,
        'x{a="' + '\\"' * 30_000,
        "x{" + 'a="b",' * 10_000,
        "x{" + 'a="b" ' * 10_000,
        "x" + " " * 60_000,
        "x " + "1" * 60_000,
        "x" * 60_000,
        "x 1" + " # {" * 15_000,
        "# HELP" + " \t" * 30_000,
    ],
    ids=lambda line: line[:8],
)
@pytest.mark.parametrize("format", Format)
def test_hostile_lines_are_refused_in_linear_time(line: str, format: Format) -> None:
    with pytest.raises(MalformedPage):
        list(parse(f"{line}\n", format))


PAGE = (
    '# HELP x A \\\\ b\n# TYPE x gauge\nx{a="1",b="\\"\\\\\\n"} 5.5 1500\nx +Inf\n'
    '# TYPE h histogram\nh_bucket{le="1.0"} 1\nh_bucket{le="+Inf"} 2\nh_count 2\nh_sum 3\n'
)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.text() | st.text(alphabet='x{}a="\\1 #\n\tHELPTYPE,.+e_'), st.sampled_from(list(Format)))
def test_any_text_is_read_or_refused(page: str, format: Format) -> None:
    try:
        families = list(parse(page, format))
    except MalformedPage:
        return
    assert all(isinstance(family, ParsedFamily) for family in families)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, len(PAGE)), st.integers(0, 3), st.text(alphabet='x{}a="\\1 #\n,.+e_', max_size=3))
def test_what_is_accepted_reads_the_same_in_the_library(place: int, cut: int, insert: str) -> None:
    page = PAGE[:place] + insert + PAGE[place + cut :]
    # The library refuses a bare "# TYPE"; for Prometheus itself, and for us, that is a comment.
    assume(not re.search(r"^[ \t]*#[ \t]*(?:HELP|TYPE)[ \t]*$", page, re.MULTILINE))
    try:
        ours = samples(text(page))
    except MalformedPage:
        return
    theirs = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    expected = [(sample.name, sample.labels, repr(float(sample.value))) for sample in theirs]
    assert expected == [(sample.name, sample.labels, repr(sample.value)) for sample in ours]


def test_blanks_after_a_type_are_ignored_in_text_format_only() -> None:
    (family,) = text("# TYPE x gauge \t\nx 1\n")

    assert Type.GAUGE == family.type
    with pytest.raises(MalformedPage, match="line 1"):
        openmetrics("# TYPE x gauge \nx 1\n# EOF\n")
