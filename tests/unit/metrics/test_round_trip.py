# SPDX-License-Identifier: Apache-2.0
"""Send hostile families through guard and writer, and read them back with three parsers and promtool."""

from __future__ import annotations

import subprocess
import unicodedata
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as library_openmetrics
from prometheus_client.parser import text_string_to_metric_families as library_text
from prometheus_client.samples import Sample

from slurmscope.metrics.family import (
    Family,
    Histogram,
    Labels,
    Metric,
    MetricKind,
    Value,
    compat_counter,
    compat_gauge,
    counter,
    gauge,
    histogram,
    info,
)
from slurmscope.metrics.guard import Guard
from slurmscope.metrics.parse import ParsedSample, parse
from slurmscope.metrics.write import Format, end, write
from tests.requirements import require_program

LIMIT = 64
HOSTILE = ['"', "\\", "\n", "\r", "\x00", "\x1b[31m", "\u2028", "\ud800", "\udcff", "a" * 10_000, "", 'x"} 1\nfake{a="']

METRICS = (
    gauge("plain", "Plain.", "a", "b"),
    compat_gauge("cpus_total", "A gauge under a counter's name.", "a"),
    counter("work_seconds_total", "Work.", "a", "b", "c"),
    compat_counter("old_count", "A counter without its suffix.", "a"),
    info("job_info", 'Job "\\" and\nmore.', "a", "b", "c", "d", "e", "f", "g"),
    histogram("wait_seconds", "Wait.", "a", buckets=(0.5, 1, 1e6)),
    Metric(name="other", kind=MetricKind.UNKNOWN, help="Other.", labels=("a",)),
    gauge("bare_bytes", "Bare."),
)

Line = tuple[str, frozenset[tuple[str, str]], str]


def line(name: str, labels: Iterable[tuple[str, str]], value: float) -> Line:
    """Return a sample in a shape that can be compared, not-a-number included."""
    return name, frozenset(labels), repr(float(value))


def cleaned(value: str) -> str:
    """Say what a label value must become, in other words than the guard's."""
    cut = value if len(value) <= LIMIT else value[: LIMIT - 1] + "…"
    return "".join("\ufffd" if unicodedata.category(letter) == "Cs" else letter for letter in cut)


def expected_lines(families: list[Family]) -> set[Line]:
    """Return every sample that a page of these families must hold."""
    lines: dict[tuple[str, frozenset[tuple[str, str]]], Line] = {}
    for family in families:
        metric = family.metric
        assert isinstance(family.samples, dict)
        for row, value in family.samples.items():
            labels = list(zip(metric.labels, map(cleaned, row), strict=True))
            for suffix, more, number in _numbers(metric, value):
                new = line(metric.name + suffix, [*labels, *more], number)
                lines.setdefault(new[:2], new)
    return set(lines.values())


def _numbers(metric: Metric, value: Value) -> list[tuple[str, list[tuple[str, str]], float]]:
    if not isinstance(value, Histogram):
        return [("", [], value)]
    below = [sum(value.counts[: place + 1]) for place in range(len(value.counts))]
    bounds = ["0.5", "1.0", "1e+06", "+Inf"]
    buckets = [("_bucket", [("le", bound)], float(n)) for bound, n in zip(bounds, below, strict=True)]
    return [*buckets, ("_sum", [], value.total), ("_count", [], sum(value.counts))]


def our_lines(page: str, format: Format) -> list[Line]:
    """Read a page with our parser."""
    read: list[ParsedSample] = [sample for family in parse(page, format) for sample in family.samples]
    return [line(sample.name, sample.labels.items(), sample.value) for sample in read]


def library_lines(page: str, format: Format) -> list[Line]:
    """Read a page with prometheus_client's parser of the format."""
    read: list[Sample]
    if format is Format.TEXT:
        read = [sample for family in library_text(page) for sample in family.samples]
    else:
        families = library_openmetrics(page)
        read = [sample for family in families for sample in family.samples]
    # The library's text parser renames a counter that lacks the suffix.
    names = {"old_count_total": "old_count"}
    return [line(names.get(sample.name, sample.name), sample.labels.items(), sample.value) for sample in read]


TEXT = st.sampled_from(HOSTILE) | st.text(alphabet=st.characters(exclude_categories=()), max_size=5)
FLOATS = st.integers() | st.floats() | st.sampled_from([float("nan"), float("inf"), float("-inf"), 0.1, 1e22])
COUNTS = st.integers(0, 10**9) | st.floats(min_value=0)
HISTOGRAMS = st.builds(Histogram, st.tuples(*[st.integers(0, 10**9)] * 4), COUNTS)
VALUES = {MetricKind.COUNTER: COUNTS, MetricKind.INFO: st.just(1), MetricKind.HISTOGRAM: HISTOGRAMS}


@st.composite
def pages(draw: st.DrawFn) -> list[Family]:
    """Make one scrape: some of the metrics, each with some samples."""
    families = []
    for metric in draw(st.lists(st.sampled_from(METRICS), unique=True, min_size=1)):
        rows = st.tuples(*[TEXT] * len(metric.labels))
        values: st.SearchStrategy[Value] = VALUES.get(metric.kind, FLOATS)
        families.append(Family(metric, draw(st.dictionaries(rows, values, min_size=1, max_size=3))))
    return families


def written(families: list[Family], format: Format) -> bytes:
    """Return the guarded page."""
    return b"".join(write(Guard(label_length_limit=LIMIT).admit(families), format)) + end(format)


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(pages())
@pytest.mark.parametrize("format", Format)
def test_every_parser_reads_back_what_was_written(format: Format, families: list[Family]) -> None:
    page = written(families, format).decode("utf-8", "strict")
    expected = expected_lines(families)
    for lines in (our_lines(page, format), library_lines(page, format)):
        assert len(expected) == len(lines)
        assert expected == set(lines)


def hostile_page(*metrics: Metric) -> bytes:
    """Return a text page that shows every hostile value at every metric."""
    families = []
    for metric in metrics:
        value: Value = Histogram((1, 2, 3, 4), 5.5) if metric.kind is MetricKind.HISTOGRAM else 1
        rows: dict[Labels, Value] = {(text,) * len(metric.labels): value for text in HOSTILE}
        families.append(Family(metric, rows))
    return written(families, Format.TEXT)


def promtool(page: bytes) -> int:
    """Return what promtool says: 0 fine, 1 unreadable, 3 readable but against the naming conventions."""
    program = require_program("promtool")
    done = subprocess.run([program, "check", "metrics"], input=page, capture_output=True, timeout=60, check=False)
    return done.returncode


def test_promtool_finds_nothing_wrong() -> None:
    assert 0 == promtool(hostile_page(*(metric for metric in METRICS if not metric.is_compat)))


def test_promtool_parses_compat_names_and_only_reports_style() -> None:
    assert 3 == promtool(hostile_page(*METRICS))


def test_promtool_refuses_an_unescaped_value() -> None:
    assert 1 == promtool(hostile_page(*METRICS).replace(b'\\"', b'"'))
