# SPDX-License-Identifier: Apache-2.0
"""Check the writers against the formats' own rules and against prometheus_client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    UnknownMetricFamily,
)
from prometheus_client.metrics_core import Metric as LibraryMetric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector

from slurmscope.metrics.family import (
    Family,
    Histogram,
    Metric,
    MetricKind,
    compat_counter,
    compat_gauge,
    counter,
    gauge,
    histogram,
    info,
)
from slurmscope.metrics.write import BLOCK_BYTES, Format, end, write

NODES = gauge("slurm_nodes", "Nodes.", "state")


def page(families: Iterable[Family], format: Format) -> str:
    """Return a whole page as text."""
    return (b"".join(write(families, format)) + end(format)).decode()


def test_content_types_are_those_prometheus_negotiates() -> None:
    text, openmetrics = "text/plain; version=0.0.4; charset=utf-8", CONTENT_TYPE_LATEST
    assert (text, openmetrics) == (Format.TEXT.content_type, Format.OPENMETRICS.content_type)


def test_gauge_is_the_same_in_both_formats() -> None:
    expected = '# HELP slurm_nodes Nodes.\n# TYPE slurm_nodes gauge\nslurm_nodes{state="idle"} 3\n'
    family = Family(NODES, {("idle",): 3})
    assert expected == page([family], Format.TEXT)
    assert expected + "# EOF\n" == page([family], Format.OPENMETRICS)


def test_counter_family_loses_its_suffix_in_openmetrics_only() -> None:
    family = Family(counter("io_bytes_total", "Bytes."), {(): 5})
    assert (
        page([family], Format.TEXT) == "# HELP io_bytes_total Bytes.\n# TYPE io_bytes_total counter\nio_bytes_total 5\n"
    )
    expected = "# HELP io_bytes Bytes.\n# TYPE io_bytes counter\n# UNIT io_bytes bytes\nio_bytes_total 5\n# EOF\n"
    assert expected == page([family], Format.OPENMETRICS)


def test_seed_counter_without_suffix_is_unknown_to_openmetrics() -> None:
    family = Family(compat_counter("jobs_cpu_seconds", "Seconds."), {(): 1.5})
    assert "# TYPE jobs_cpu_seconds counter\njobs_cpu_seconds 1.5\n" in page([family], Format.TEXT)
    expected = "# TYPE jobs_cpu_seconds unknown\n# UNIT jobs_cpu_seconds seconds\njobs_cpu_seconds 1.5\n"
    assert expected in page([family], Format.OPENMETRICS)


@pytest.mark.parametrize("format", Format)
def test_gauge_named_like_a_counter_stays_a_gauge_without_unit(format: Format) -> None:
    family = Family(compat_gauge("memory_bytes_total", "Bytes."), {(): 5})
    assert "# TYPE memory_bytes_total gauge\nmemory_bytes_total 5\n" in page([family], format)


def test_info_is_a_gauge_in_text_and_a_family_of_its_own_in_openmetrics() -> None:
    family = Family(info("job_info", "Job.", "name"), {("a",): 1})
    assert '# TYPE job_info gauge\njob_info{name="a"} 1\n' in page([family], Format.TEXT)
    assert '# TYPE job info\njob_info{name="a"} 1\n' in page([family], Format.OPENMETRICS)


def test_info_without_its_suffix_is_a_gauge_to_openmetrics() -> None:
    family = Family(Metric(name="job_facts", kind=MetricKind.INFO, help="Job."), {(): 1})
    assert "# TYPE job_facts gauge\njob_facts 1\n" in page([family], Format.OPENMETRICS)


def test_unknown_is_called_untyped_in_text() -> None:
    family = Family(Metric(name="x", kind=MetricKind.UNKNOWN, help="X."), {(): 1})
    assert "# TYPE x untyped\n" in page([family], Format.TEXT)
    assert "# TYPE x unknown\n" in page([family], Format.OPENMETRICS)


def test_histogram_counts_are_added_up() -> None:
    metric = histogram("wait_seconds", "Wait.", "user", buckets=(1, 2.5))
    lines = [
        'wait_seconds_bucket{user="a",le="1.0"} 1',
        'wait_seconds_bucket{user="a",le="2.5"} 3',
        'wait_seconds_bucket{user="a",le="+Inf"} 6',
        'wait_seconds_count{user="a"} 6',
        'wait_seconds_sum{user="a"} 9.5',
    ]
    family = Family(metric, {("a",): Histogram((1, 2, 3), 9.5)})
    assert lines == page([family], Format.TEXT).splitlines()[2:]
    assert ["# UNIT wait_seconds seconds", *lines, "# EOF"] == page([family], Format.OPENMETRICS).splitlines()[2:]


def test_histogram_without_labels_has_only_le() -> None:
    family = Family(histogram("x", "X.", buckets=(1,)), {(): Histogram((0, 2), float("inf"))})
    lines = ['x_bucket{le="1.0"} 0', 'x_bucket{le="+Inf"} 2', "x_count 2", "x_sum +Inf"]
    assert lines == page([family], Format.TEXT).splitlines()[2:]


@pytest.mark.parametrize(
    ("bound", "text"),
    # As Go prints float64 with %g, with ".0" where neither point nor exponent is there.
    [
        (0.0, "0.0"),
        (1e-05, "1e-05"),
        (0.0001, "0.0001"),
        (100_000, "100000.0"),
        (999_999, "999999.0"),
        (1_000_000, "1e+06"),
        (1_500_000, "1.5e+06"),
        (1_234_567, "1.234567e+06"),
        (12_345_678.5, "1.23456785e+07"),
        (86_400_000_000, "8.64e+10"),
        (1e15, "1e+15"),
        (1.5e16, "1.5e+16"),
        (1e100, "1e+100"),
    ],
)
def test_bucket_bounds_are_canonical(bound: float, text: str) -> None:
    family = Family(histogram("x", "X.", buckets=(bound,)), {(): Histogram((0, 0), 0)})
    assert f'x_bucket{{le="{text}"}} 0' in page([family], Format.OPENMETRICS).splitlines()


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (-5, "-5"), (2**64, "18446744073709551616"), (0.1, "0.1"), (1e300, "1e+300"), (5e-324, "5e-324")],
)
def test_finite_numbers_are_exact(value: float, text: str) -> None:
    assert page([Family(gauge("x", "X."), {(): value})], Format.TEXT).endswith(f"\nx {text}\n")


def test_other_numbers_have_their_own_spelling() -> None:
    samples: dict[tuple[str, ...], float] = {
        ("a",): float("inf"),
        ("b",): float("-inf"),
        ("c",): float("nan"),
        ("d",): 1,
    }
    lines = page([Family(gauge("x", "X.", "l"), samples)], Format.TEXT).splitlines()[2:]
    assert ['x{l="a"} +Inf', 'x{l="b"} -Inf', 'x{l="c"} NaN', 'x{l="d"} 1'] == lines


def test_help_is_escaped_as_each_format_wants() -> None:
    family = Family(gauge("x", 'a "b" \\ c\nd'), {(): 1})
    assert '# HELP x a "b" \\\\ c\\nd\n' in page([family], Format.TEXT)
    assert '# HELP x a \\"b\\" \\\\ c\\nd\n' in page([family], Format.OPENMETRICS)


def test_help_that_is_not_unicode_does_not_cost_the_page() -> None:
    assert "# HELP x a?b\n" in page([Family(gauge("x", "a\udcffb"), {(): 1})], Format.TEXT)


@pytest.mark.parametrize("value", ['a"b', "a\\b", "a\nb"])
def test_one_value_to_escape_leaves_its_neighbours_alone(value: str) -> None:
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    lines = page([Family(NODES, {("plain",): 1, (value,): 2})], Format.TEXT).split("\n")[2:-1]
    assert ['slurm_nodes{state="plain"} 1', f'slurm_nodes{{state="{escaped}"}} 2'] == lines


def test_families_that_share_long_rows_get_them_all() -> None:
    rows = [(f"{number:0500}",) for number in range(600)]
    families = [Family(gauge(name, "X.", "row"), dict.fromkeys(rows, 1)) for name in ("a", "b")]
    expected = {f'{name}{{row="{row}"}} 1' for name in ("a", "b") for (row,) in rows}
    lines = page(families, Format.TEXT).splitlines()
    assert len(expected) + 4 == len(lines)
    assert expected < set(lines)


@pytest.mark.parametrize("format", Format)
def test_family_without_samples_leaves_no_trace(format: Format) -> None:
    assert end(format).decode() == page([Family(NODES), Family(NODES, iter(()))], format)


def test_samples_may_be_pairs() -> None:
    assert page([Family(NODES, iter([(("a",), 1)]))], Format.TEXT).endswith('slurm_nodes{state="a"} 1\n')


def test_page_is_streamed_in_blocks() -> None:
    read = 0

    def families() -> Iterator[Family]:
        nonlocal read
        for read in range(1, 41):
            yield Family(gauge(f"m{read}", "M.", "row"), {(f"{row:030}",): row for row in range(500)})

    blocks = write(families(), Format.TEXT)
    first = next(blocks)
    assert read < 10, "the first block must not need the whole page"
    rest = list(blocks)
    assert len(rest) > 5
    assert all(BLOCK_BYTES <= len(block) < 2 * BLOCK_BYTES for block in (first, *rest[:-1]))
    assert (first + b"".join(rest)).count(b"\n") == 40 * 502


class _Library(Collector):
    """Offer families to prometheus_client."""

    def __init__(self, metrics: Sequence[LibraryMetric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[LibraryMetric]:
        return self._metrics


def library_pages(library: Collector) -> tuple[str, str]:
    """Return prometheus_client's pages in both formats."""
    openmetrics: bytes = generate_openmetrics(library)
    return generate_latest(library).decode(), openmetrics.decode()


# The library prints 1e6 and more with an exponent, and all numbers as floats; below that the bytes must be the same.
_VALUES = st.floats(min_value=-999_999, max_value=999_999)
_LABEL_VALUES = st.text(max_size=8) | st.sampled_from(['"', "\\", "\n", '\\"\n', "\r", "\x00", "\u2028", ""])


@st.composite
def _gauges(draw: st.DrawFn) -> list[Family]:
    """Make families that share rows, or some of them, or only the number of rows."""
    families: list[Family] = []
    width = draw(st.integers(0, 8))
    pool = draw(st.lists(st.tuples(*[_LABEL_VALUES] * width), min_size=1, max_size=6, unique=True))
    for index in range(draw(st.integers(1, 4))):
        labels = [f"{draw(st.sampled_from('ab'))}{place}" for place in range(width)]
        # The library sorts labels by name.
        metric = gauge(f"metric_{index}", "Some \\ help\nwith all.", *sorted(labels))
        rows = draw(st.one_of(st.just(pool), st.lists(st.sampled_from(pool), min_size=1, unique=True)))
        families.append(Family(metric, {row: draw(_VALUES) for row in rows}))
    return families


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(_gauges())
def test_bytes_are_those_of_the_library(families: list[Family]) -> None:
    metrics = []
    for family in families:
        metric = GaugeMetricFamily(family.metric.name, family.metric.help, labels=family.metric.labels)
        assert isinstance(family.samples, dict)
        for row, value in family.samples.items():
            metric.add_metric(row, value)
        metrics.append(metric)
    library = _Library(metrics)
    text, openmetrics = library_pages(library)
    assert text == page(families, Format.TEXT)
    assert openmetrics == page(families, Format.OPENMETRICS)


def test_bytes_are_those_of_the_library_for_every_kind() -> None:
    families = [
        Family(counter("io_bytes_total", "Io.", "user"), {("a",): 1.5, ("b",): 2.0}),
        Family(info("job_info", "Job.", "name"), {("x",): 1.0}),
        Family(histogram("wait_seconds", "Wait.", "a", buckets=(0.5, 1e7)), {("x",): Histogram((1, 2, 3), 7.5)}),
        Family(Metric(name="other", kind=MetricKind.UNKNOWN, help="Other."), {(): 0.25}),
    ]
    counted = CounterMetricFamily("io_bytes", "Io.", labels=["user"], unit="bytes")
    counted.add_metric(["a"], 1.5)
    counted.add_metric(["b"], 2.0)
    described = InfoMetricFamily("job", "Job.", labels=[])
    described.add_metric([], {"name": "x"})
    waited = HistogramMetricFamily("wait_seconds", "Wait.", labels=["a"], unit="seconds")
    waited.add_metric(["x"], [("0.5", 1), ("1e+07", 3), ("+Inf", 6)], sum_value=7.5)
    library = _Library([counted, described, waited, UnknownMetricFamily("other", "Other.", value=0.25)])
    # Counts are whole numbers to us and floats to the library.
    assert _short(library_pages(library)[0]) == _short(page(families, Format.TEXT))
    assert _short(library_pages(library)[1]) == _short(page(families, Format.OPENMETRICS))


def _short(text: str) -> str:
    return text.replace(".0\n", "\n")
