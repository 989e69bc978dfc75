# SPDX-License-Identifier: Apache-2.0
"""Two stored reports are compared number by number; whatever a file contains, nothing else is taken for a number."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.jobs.render.json import render_json
from slurmscope.run.comparison import FIGURES, ComparedFigure, compare, is_report
from tests.fakes.reports import make_report

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def minimal(**summary: object) -> dict[str, object]:
    return {"version": 1, "summary": {"record": {"name": "relax", "nodes": ["n1"], "cpus": 4}, **summary}}


def by_name(first: object, second: object) -> dict[str, ComparedFigure]:
    return {figure.name: figure for figure in compare(first, second).figures}


def test_report_of_a_job_can_be_compared_with_itself() -> None:
    report = json.loads(render_json(make_report()))

    comparison = compare(report, report)

    assert is_report(report)
    assert "relax on n1" == comparison.first == comparison.second
    assert {"run_seconds", "cpu_seconds", "cpu_ratio", "memory_bytes", "read_bytes"} <= by_name(report, report).keys()
    assert {1.0} == {figure.ratio for figure in comparison.figures if figure.first}


def test_ratio_is_second_over_first() -> None:
    figures = by_name(minimal(run_seconds=20.0), minimal(run_seconds=5))

    assert (20.0, 5.0, 0.25) == (
        figures["run_seconds"].first,
        figures["run_seconds"].second,
        figures["run_seconds"].ratio,
    )


@pytest.mark.parametrize(("first", "second"), [(None, 1.0), (1.0, None), (0, 1.0)])
def test_ratio_without_meaning_is_absent(first: float | None, second: float | None) -> None:
    figure = by_name(minimal(run_seconds=first), minimal(run_seconds=second))["run_seconds"]

    assert figure.ratio is None


def test_what_neither_measured_is_left_out() -> None:
    assert {"cores"} == by_name(minimal(), minimal()).keys()


@pytest.mark.parametrize("value", [True, "5", -1, float("nan"), float("inf"), 10**400, [1], None])
def test_only_plain_numbers_count(value: object) -> None:
    assert "run_seconds" not in by_name(minimal(run_seconds=value), minimal())


def test_command_and_nodes_describe_a_run() -> None:
    run = {**minimal(), "run": {"command": ["./train.sh", "--fast"]}}
    wide = {"version": 1, "summary": {"record": {"name": 7, "nodes": ["n1", 3, "n2"]}}}
    bare = {"version": 1, "summary": {"record": {"name": "x", "nodes": "n1"}}}

    assert "./train.sh --fast on n1" == compare(run, wide).first
    assert "unknown on 2 nodes" == compare(run, wide).second
    assert "x" == compare(run, bare).second


@pytest.mark.parametrize("report", [None, [], {}, {"version": 2, "summary": {"record": {}}}, {"version": 1}])
def test_something_else_is_no_report(report: object) -> None:
    assert not is_report(report)


@given(ANYTHING, st.sampled_from([path for *_, path in FIGURES]))
def test_no_value_at_any_place_breaks_a_comparison(value: object, path: str) -> None:
    report: dict[str, object] = {"version": 1}
    inner = value
    first, *rest = path.split(".")
    for folder in reversed(rest):
        inner = {folder: inner}
    report[first] = inner

    for figure in compare(report, {"version": 1}).figures:
        assert figure.first is not None
        assert figure.first >= 0
