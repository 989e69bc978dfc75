# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.archive.job_columns import JobRow
from slurmscope.jobs.report import ChartLine
from slurmscope.portal.web.tables import (
    Table,
    make_chart_table,
    make_table,
    make_table_response,
    render_csv,
    render_table_json,
)
from tests.fakes.archive import make_row
from tests.fakes.reports import make_chart, make_report


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", " =1", "＝1", "＋1", "－1", "＠x"])
def test_formulas_are_prefixed_with_a_quote(cell: str) -> None:
    rows = list(csv.reader(io.StringIO(render_csv(Table(columns=(cell,), rows=[(cell,)])))))
    assert ["'", "'"] == [rows[0][0][0], rows[1][0][0]]


@given(st.lists(st.text(max_size=20), min_size=1, max_size=5))
def test_no_cell_starts_a_formula_and_every_row_stays_one_row(cells: list[str]) -> None:
    names = tuple(f"c{index}" for index in range(len(cells)))
    rows = list(csv.reader(io.StringIO(render_csv(Table(columns=names, rows=[tuple(cells)])))))
    assert 2 == len(rows)
    assert len(cells) == len(rows[1])
    assert not any(cell.lstrip().startswith(("=", "+", "-", "@")) for cell in rows[1])


def test_negative_numbers_are_kept_and_none_is_empty() -> None:
    assert "a,b,c\r\n-1.5,,0\r\n" == render_csv(Table(columns=("a", "b", "c"), rows=[(-1.5, None, 0)]))


def test_json_keeps_text_and_writes_none_as_null() -> None:
    table = Table(columns=("name", "ratio"), rows=[("=1", None)], is_cut=True)
    assert {"rows": [{"name": "=1", "ratio": None}], "is_cut": True} == json.loads(render_table_json(table))


def test_csv_has_times_in_iso_8601_beside_the_unix_times() -> None:
    table = Table(columns=("submit_seconds", "end_seconds"), rows=[(1_772_539_200, None), (1e18, 0)])
    assert [
        ["submit_seconds", "end_seconds", "submit_time", "end_time"],
        ["1772539200", "", "2026-03-03T12:00:00+00:00", ""],
        ["1e+18", "0", "", "1970-01-01T00:00:00+00:00"],
    ] == list(csv.reader(io.StringIO(render_csv(table))))
    assert {"submit_seconds", "end_seconds"} == set(json.loads(render_table_json(table))["rows"][0])


def test_numbers_have_sensible_digits() -> None:
    row = replace(make_row(make_report()), cpu_ratio=1 / 3, core_seconds=100 / 3, memory_bytes=3.0)
    table = make_table(JobRow, [row])
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert (0.3333, 33.333, 3.0) == (cells["cpu_ratio"], cells["core_seconds"], cells["memory_bytes"])


def test_file_name_is_sanitized() -> None:
    answer = make_table_response(Table(columns=(), rows=[]), "csv", 'a"\r\nX: 1/..')
    assert 'attachment; filename="a___X__1_...csv"' == answer.headers["content-disposition"]


def test_file_name_says_that_rows_were_left_out() -> None:
    whole, cut = (Table(columns=("a",), rows=((1,), (2,)), is_cut=is_cut) for is_cut in (False, True))
    names = [make_table_response(table, "csv", "jobs").headers["content-disposition"] for table in (whole, cut)]
    assert ['attachment; filename="jobs.csv"', 'attachment; filename="jobs-first-2.csv"'] == names


def test_bytes_are_whole_numbers() -> None:
    chart = make_chart("memory")
    curve = replace(chart, unit="bytes", times=(0.0,), lines=(ChartLine(label="n1", values=(19586673953.532,)),))
    row = replace(make_row(make_report()), memory_bytes=3.6, core_seconds=3.25)
    cells = dict(zip((table := make_table(JobRow, [row])).columns, table.rows[0], strict=True))

    assert "0.0,19586673954,1970-01-01T00:00:00+00:00" == render_csv(make_chart_table(curve)).splitlines()[1]
    assert (4, 3.25) == (cells["memory_bytes"], cells["core_seconds"])
