# SPDX-License-Identifier: Apache-2.0
"""Check PromQL expressions and their quoting."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.jobs.queries import CURVES
from slurmscope.jobs.series import Aggregation, DerivedLabel, JobSpan, SeriesQuery
from slurmscope.prometheus.promql import curves_expression, quote, quote_regex, totals_expression
from tests.promtool import check_query

ONE_STRING = re.compile(r'"(?:[ !#-\[\]-~]|\\[\\"]|\\u[0-9a-f]{4}|\\U[0-9a-f]{8})*"')
ESCAPE = re.compile(r"\\(?:u([0-9a-f]{4})|U([0-9a-f]{8})|(.))")
ANY_TEXT = st.text(st.characters(exclude_categories=()))


def unquote(literal: str) -> str:
    """Decode a PromQL string literal by the rules of the language, independently of our code."""
    assert ONE_STRING.fullmatch(literal)
    return ESCAPE.sub(lambda found: found[3] or chr(int(found[1] or found[2], 16)), literal[1:-1])


@given(ANY_TEXT)
def test_any_text_becomes_a_literal_of_that_text(text: str) -> None:
    assert re.sub("[\ud800-\udfff]", "\ufffd", text) == unquote(quote(text))


@given(st.lists(st.text(), min_size=1), st.text())
def test_pattern_matches_its_values_and_no_other(values: list[str], other: str) -> None:
    pattern = re.compile(unquote(quote_regex(values)))

    assert all(pattern.fullmatch(value) for value in values)
    assert (other in values) == bool(pattern.fullmatch(other))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", '""'),
        ('"} or vector(1) #', r'"\"} or vector(1) #"'),
        ("a\\", r'"a\\"'),
        ("two\nlines", r'"two\u000alines"'),
        ("é\ufffd𝄞", r'"\u00e9\ufffd\U0001d11e"'),
        ("half \ud800", r'"half \ufffd"'),
    ],
)
def test_quoting_examples(text: str, expected: str) -> None:
    assert expected == quote(text)


def test_curves_are_taken_from_the_higher_copy_and_kept_by_node() -> None:
    wanted = SeriesQuery(metric="jobs_cpu_seconds_total", how=Aggregation.RATE)

    assert (
        'max by (slurm_job, slurm_node) (increase(jobs_cpu_seconds_total{slurm_job=~"7|12",cluster="a\\"b"}[60000ms]))'
    ) == curves_expression(wanted, [7, 12], window_seconds=60.0, matchers=(("cluster", 'a"b'),))


def test_labels_that_are_not_kept_are_summed_over() -> None:
    wanted = SeriesQuery(
        metric="jobs_threads", how=Aggregation.MEAN, each=("slurm_node", "state"), by=(), where=(("state", "running"),)
    )

    assert (
        "sum by (slurm_job) (max by (slurm_job, slurm_node, state) "
        '(avg_over_time(jobs_threads{slurm_job="7",state="running"}[2500ms])))'
    ) == curves_expression(wanted, [7], window_seconds=2.5)


def test_totals_have_the_span_of_each_job() -> None:
    wanted = SeriesQuery(metric="jobs_cores", how=Aggregation.MAX)
    spans = [JobSpan(1, 100.0, 160.5), JobSpan(2, 110.0, 200.0), JobSpan(3, 150.0, 151.0)]

    assert (
        'max by (slurm_job, slurm_node) ((max_over_time(jobs_cores{slurm_job="1"}[60500ms] @ 160.500)'
        ' or (max_over_time(jobs_cores{slurm_job="2"}[90000ms] @ 200.000)'
        ' or max_over_time(jobs_cores{slurm_job="3"}[1000ms] @ 151.000))))'
    ) == totals_expression(wanted, spans)


def test_total_of_a_counter_that_fell_is_marked_by_its_sign() -> None:
    samples = 'jobs_io_reads_total{slurm_job="1"}[60500ms] @ 160.500'

    assert (
        f"max by (slurm_job, slurm_node) (max_over_time({samples}))"
        f" * (1 - 2 * (max by (slurm_job, slurm_node) (resets({samples})) > bool 0))"
    ) == totals_expression(SeriesQuery(metric="jobs_io_reads_total", how=Aggregation.TOTAL), [JobSpan(1, 100.0, 160.5)])


@pytest.mark.parametrize(
    ("copies", "expected"),
    [
        (["0 400 1000 600 650 700"], -1000),
        (["0 400 1000 600 650 700", "_ _ _ 600 650 700"], -1000),
        (["0 100 200 300 400 500", "_ 90 190 290 390 490"], 500),
    ],
)
def test_fall_that_only_one_copy_of_a_series_contains_is_marked(
    copies: list[str], expected: int, tmp_path: Path
) -> None:
    spans = [JobSpan(1, 0.0, 300.0), JobSpan(2, 0.0, 300.0)]
    series = {
        f'written{{slurm_job="1",slurm_node="n1",replica="{number}"}}': copy for number, copy in enumerate(copies)
    }
    other = {'written{slurm_job="2",slurm_node="n1"}': "0 1 2 3 4 5"}
    expected_samples = {f'{{slurm_job="{job}",slurm_node="n1"}}': value for job, value in ((1, expected), (2, 5))}
    query = totals_expression(SeriesQuery(metric="written", how=Aggregation.TOTAL), spans)

    check_query(tmp_path, query, series | other, expected_samples, interval="1m", at="5m")


def test_sum_of_totals_is_rejected() -> None:
    with pytest.raises(ValueError, match="cannot be summed"):
        totals_expression(
            SeriesQuery(metric="jobs_io_reads_total", how=Aggregation.TOTAL, by=()), [JobSpan(1, 100.0, 160.5)]
        )


def test_window_is_never_empty() -> None:
    wanted = SeriesQuery(metric="jobs_cores", how=Aggregation.MAX)

    assert "[1ms]" in totals_expression(wanted, [JobSpan(1, 5.0, 5.0000001)])


@pytest.mark.parametrize(
    "wanted",
    [
        SeriesQuery(metric="jobs{}", how=Aggregation.MAX),
        SeriesQuery(metric="", how=Aggregation.MAX),
        SeriesQuery(metric="jobs", how=Aggregation.MAX, each=("a b",)),
        SeriesQuery(metric="jobs", how=Aggregation.MAX, by=("a)",)),
        SeriesQuery(metric="jobs", how=Aggregation.MAX, where=(("a\n", "b"),)),
    ],
)
def test_names_are_validated(wanted: SeriesQuery) -> None:
    with pytest.raises(ValueError, match="not a valid metric or label name"):
        curves_expression(wanted, [1], window_seconds=60.0)


FOREIGN = SeriesQuery(
    metric="lustre_job_stats_total",
    how=Aggregation.RATE,
    each=("jobid", "target", "filesystem"),
    by=("filesystem",),
    job_label="jobid",
    is_foreign=True,
    derived=(DerivedLabel("filesystem", "target", "(.+)-MDT[0-9]{4}"),),
)


def test_job_of_a_foreign_exporter_is_found_with_more_after_a_colon() -> None:
    inner = 'increase(lustre_job_stats_total{jobid=~"(?:7|12)(?::.*)?",site="a"}[60000ms])'
    named = f'label_replace({inner}, "slurm_job", "$1", "jobid", "([0-9]+)(?::.*)?")'
    derived = f'label_replace({named}, "filesystem", "$1", "target", "(.+)-MDT[0-9]{{4}}")'

    assert f"sum by (slurm_job, filesystem) (max by (slurm_job, jobid, target, filesystem) ({derived}))" == (
        curves_expression(FOREIGN, [7, 12], window_seconds=60.0, matchers=(("site", "a"),))
    )


def test_pattern_for_the_jobs_of_a_foreign_exporter_matches_no_other_job() -> None:
    literal = re.search(r'jobid=~("[^"]*")', curves_expression(FOREIGN, [7, 12], window_seconds=60.0))
    assert literal
    pattern = re.compile(unquote(literal[1]))

    assert [bool(pattern.fullmatch(text)) for text in ("7", "12:1001:n1", "71", "7.1001", "17", "")] == [
        True, True, False, False, False, False,
    ]  # fmt: skip


TRACED = SeriesQuery(
    metric="slurm_trace_threads",
    how=Aggregation.MAX,
    each=("slurm_node", "pid"),
    by=("slurm_node", "pid"),
    job_label="jobid",
    derived=(DerivedLabel("slurm_node", "host", "(.*)"),),
    among=(("pid", ("12", 'a"|.*')),),
)


def test_traced_processes_have_their_own_label_of_the_job() -> None:
    inner = r'max_over_time(slurm_trace_threads{jobid="7",pid=~"12|a\"\\|\\.\\*"}[60000ms])'
    named = f'label_replace({inner}, "slurm_job", "$1", "jobid", "([0-9]+)")'

    assert f'max by (slurm_job, slurm_node, pid) (label_replace({named}, "slurm_node", "$1", "host", "(.*)"))' == (
        curves_expression(TRACED, [7], window_seconds=60.0)
    )


def test_labels_of_several_values_are_validated() -> None:
    with pytest.raises(ValueError, match="not a valid"):
        curves_expression(replace(TRACED, among=(("p d", ("1",)),)), [7], window_seconds=60.0)


def test_derived_labels_are_validated() -> None:
    odd = replace(FOREIGN, derived=(DerivedLabel('a"b', "target", ".*"),))

    with pytest.raises(ValueError, match="not a valid"):
        curves_expression(odd, [7], window_seconds=60.0)


def test_servers_without_targets_are_added_up_for_reports_and_copies_are_not(tmp_path: Path) -> None:
    series = {
        'lustre_job_read_bytes_total{jobid="7",instance="oss1"}': "0+600x4",
        'lustre_job_read_bytes_total{jobid="7",instance="oss2"}': "0+1200x4",
        'lustre_job_read_bytes_total{jobid="8",instance="oss1",target="work-OST0000"}': "0+600x4",
        'lustre_job_read_bytes_total{jobid="8",instance="oss2",target="work-OST0000"}': "0+600x4",
    }
    query = curves_expression(CURVES["filesystem_read"], [7, 8], window_seconds=120.0)
    expected = {'{slurm_job="7"}': 3600, '{slurm_job="8", filesystem="work"}': 1200}

    check_query(tmp_path, query, series, expected, interval="1m", at="4m")


@pytest.mark.parametrize(("at", "expected"), [("2m", 60e6), ("3m", None), ("6m", 60e6)])
def test_counter_that_lost_ended_processes_has_no_peak(tmp_path: Path, at: str, expected: float | None) -> None:
    # 1 MB/s throughout; after 2 min 30 s a restarted agent no longer counts 50 MB of an ended process.
    series = 'jobs_io_read_bytes_total{slurm_job="7",slurm_node="n1"}'
    values = "0+15000000x10 115000000+15000000x20"
    query = curves_expression(CURVES["read"], [7], window_seconds=60.0)

    labels = '{slurm_job="7",slurm_node="n1"}'
    check_query(tmp_path, query, {series: values}, {labels: expected} if expected else {}, interval="15s", at=at)
