# SPDX-License-Identifier: Apache-2.0
"""Check charts: well-formed, to scale, with gaps, round marks, and harmless names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmscope.jobs.rating import Rating
from slurmscope.jobs.render.svg.charts import (
    describe,
    fold,
    format_value,
    make_time_marks,
    make_value_marks,
    render_chart_svg,
    render_gauge_svg,
    render_pie_svg,
    render_use_pie_svg,
)
from slurmscope.jobs.render.svg.elements import DARK, LIGHT, Palette
from slurmscope.jobs.report import Chart, ChartLine
from slurmscope.jobs.rule import Severity, Subject
from slurmscope.jobs.summary import CpuSummary
from tests.fakes.reports import HOSTILE_NAME, START, make_chart, make_record, make_report, make_unmeasured_report

_SVG = "{http://www.w3.org/2000/svg}"


def _parse(svg: str | None) -> ElementTree.Element:
    assert svg is not None
    return ElementTree.fromstring(svg)


def _texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{_SVG}text")]


def _with_class(root: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    return (element for element in root.iter() if name in element.get("class", "").split())


def _chart(*rows: tuple[float | None, ...], unit: str = "count", reference: float | None = None) -> Chart:
    times = tuple(START + 60.0 * index for index in range(len(rows[0]))) if rows else ()
    lines = tuple(ChartLine(label=f"n{index}", values=row) for index, row in enumerate(rows))
    return Chart(name="x", title="Title", unit=unit, subject=Subject.CPU, times=times, lines=lines, reference=reference)


def test_lines_are_drawn_to_scale() -> None:
    root = _parse(render_chart_svg(_chart((0.0, 10.0, 5.0)), width=400, height=200))
    grid = [float(line.get("y1", "")) for line in _with_class(root, "grid")]
    (path,) = root.iter(f"{_SVG}path")
    heights = [float(y) for _, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path.get("d", ""))]

    bottom, top = max(grid), min(grid)
    assert [bottom, top, pytest.approx((bottom + top) / 2, abs=0.1)] == heights


def test_a_gap_is_a_gap_and_a_lone_point_a_dot() -> None:
    root = _parse(render_chart_svg(_chart((1.0, 2.0, None, 3.0, math.nan, 4.0, 5.0))))
    (path,) = root.iter(f"{_SVG}path")

    assert "MLMML" == re.sub(r"[^ML]", "", path.get("d", ""))
    assert 3 == path.get("d", "").count("h0")
    assert "round" == path.get("stroke-linecap")


def test_shares_run_to_100_percent_however_low_they_are() -> None:
    texts = _texts(_parse(render_chart_svg(_chart((0.1, 0.2), unit="ratio"))))
    assert {"0 %", "100 %"} <= set(texts)


def test_the_reference_is_dashed_and_named() -> None:
    chart = replace(_chart((1.0, 2.0), unit="bytes", reference=2.0**33), reference_label="limit")
    root = _parse(render_chart_svg(chart))

    line, label = _with_class(root, "reference")
    assert line.get("stroke-dasharray")
    assert "limit 8 GiB" == label.text


def test_a_reference_that_is_no_number_is_not_drawn() -> None:
    assert [] == list(_with_class(_parse(render_chart_svg(_chart((1.0, 2.0), reference=math.nan))), "reference"))


def test_a_screen_reader_gets_a_name_and_the_numbers() -> None:
    chart = replace(make_chart(unit="bytes", level=2.0**30, limit=2.0**33), help="Memory of each node.")
    root = _parse(render_chart_svg(chart))

    assert "img" == root.get("role")
    assert "Chart of cpu" == root.findtext(f"{_SVG}title")
    words = root.findtext(f"{_SVG}desc") or ""
    assert words.startswith("Memory of each node. n1: between 973 MiB and 1.05 GiB.")
    assert words.endswith("allocated cores: 8 GiB.")


def test_nothing_measured_is_said_not_drawn() -> None:
    root = _parse(render_chart_svg(_chart((None, None))))

    assert "not measured" in _texts(root)
    assert "n0: not measured." == describe(_chart((None, None)))
    assert "not measured" in _texts(_parse(render_chart_svg(_chart())))
    assert "Nothing was measured." == describe(_chart())


def test_one_point_in_time_is_drawn() -> None:
    (path,) = _parse(render_chart_svg(_chart((3.0,)))).iter(f"{_SVG}path")

    assert path.get("d", "").startswith("M")


def test_fifteen_lines_are_distinct() -> None:
    root = _parse(render_chart_svg(_chart(*((float(index), 1.0) for index in range(15)))))
    looks = {(path.get("stroke"), path.get("stroke-dasharray")) for path in root.iter(f"{_SVG}path")}

    assert 15 == len(looks)
    assert {f"n{index}" for index in range(15)} <= set(_texts(root))


def test_more_lines_become_highest_median_and_lowest() -> None:
    folded = fold(_chart(*((float(index), None, None if index else 7.0) for index in range(21))))

    assert ["lowest of 21", "median of 21", "highest of 21"] == [line.label for line in folded.lines]
    assert [(0.0, None, 7.0), (10.0, None, 7.0), (20.0, None, 7.0)] == [line.values for line in folded.lines]


def test_a_long_legend_stays_inside_of_the_picture() -> None:
    chart = _chart(*((1.0, 2.0) for _ in range(15)))
    chart = replace(chart, lines=tuple(replace(line, label="node-with-a-long-name" * 3) for line in chart.lines))
    root = _parse(render_chart_svg(chart, width=400, height=400))

    assert all(0 <= float(text.get("y", "")) <= 400 for text in root.iter(f"{_SVG}text"))
    assert all(float(text.get("x", "")) < 400 for text in root.iter(f"{_SVG}text"))


@settings(deadline=None, max_examples=30)
@given(st.text(max_size=60), st.lists(st.none() | st.floats(), max_size=20), st.none() | st.floats())
def test_any_chart_is_well_formed_and_has_no_script(name: str, values: list[float | None], level: float | None) -> None:
    chart = replace(_chart(tuple(values), tuple(values), reference=level), title=name, help=name, reference_label=name)
    chart = replace(chart, lines=tuple(replace(line, label=name + HOSTILE_NAME) for line in chart.lines))
    svg = render_chart_svg(chart)

    names = {element.tag.removeprefix(_SVG) for element in _parse(svg).iter()}
    assert names <= {"svg", "title", "desc", "rect", "line", "path", "text"}
    assert "nan" not in "".join(re.findall(r' (?:d|x|y|x1|y1)="([^"]*)"', svg))


@pytest.mark.parametrize(
    ("highest", "unit", "texts"),
    [
        (4.0, "cores", ["0", "1", "2", "3", "4"]),
        (8.0 * 2**30, "bytes", ["0 B", "2 GiB", "4 GiB", "6 GiB", "8 GiB"]),
        (33e6, "bytes/s", ["0 B/s", "10 MiB/s", "20 MiB/s", "30 MiB/s", "40 MiB/s"]),
        (1.0, "ratio", ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]),
        (0.0, "count", ["0", "1"]),
        (3.0, "bytes", ["0 B", "1 B", "2 B", "3 B"]),
        (math.inf, "count", ["0", "1"]),
    ],
)
def test_marks_of_values_are_round_in_their_unit(highest: float, unit: str, texts: list[str]) -> None:
    assert texts == [mark.text for mark in make_value_marks(highest, unit)]


@given(st.floats(1e-8, 1e29), st.sampled_from(["cores", "bytes", "bytes/s", "ratio", "count"]))
def test_marks_reach_the_highest_value_and_are_few(highest: float, unit: str) -> None:
    marks = make_value_marks(highest, unit)

    assert marks[-1].value >= highest * (1 - 1e-6)
    assert 2 <= len(marks) <= 12


@pytest.mark.parametrize(
    ("first", "last", "texts"),
    [
        (START, START + 7200, ["14:15", "14:30", "14:45", "15:00", "15:15", "15:30", "15:45", "16:00"]),
        (0, 60, ["01-01", "00:00:10", "00:00:20", "00:00:30", "00:00:40", "00:00:50", "00:01:00"]),
        (0, 86400, ["01-01", "03:00", "06:00", "09:00", "12:00", "15:00", "18:00", "21:00", "01-02"]),
        (0, 7 * 86400, ["01-01", "01-02", "01-03", "01-04", "01-05", "01-06", "01-07", "01-08"]),
        (0, 700 * 86400, ["1970-01-01", "1970-04-02", "1970-07-02", "1970-10-01", "1970-12-31", "1971-04-01",
                          "1971-07-01", "1971-09-30"]),
        (0, 1e12, []),
        (5, 5, []),
        (math.nan, 5, []),
    ],
)  # fmt: skip
def test_marks_of_time_are_at_round_times(first: float, last: float, texts: list[str]) -> None:
    assert texts == [mark.text for mark in make_time_marks(first, last)]


def test_a_moment_beyond_the_calendar_has_no_words() -> None:
    assert {""} == {mark.text for mark in make_time_marks(9e15, 9e15 + 3600)}


def test_each_unit_has_its_words() -> None:
    assert ["2", "1 GiB", "1 GiB/s", "50 %", "7"] == [
        format_value(value, unit)
        for value, unit in ((2.0, "cores"), (2.0**30, "bytes"), (2.0**30, "bytes/s"), (0.5, "ratio"), (7.0, "count"))
    ]


def test_a_gauge_is_filled_to_its_share() -> None:
    root = _parse(render_gauge_svg("CPU", 0.25, rating=Rating.WARNING, width=202))

    (fill,) = _with_class(root, "warning")
    assert "50" == fill.get("width")
    assert "CPU: 25 %" == root.findtext(f"{_SVG}title")


@pytest.mark.parametrize("ratio", [None, math.nan])
def test_a_gauge_of_nothing_measured_is_dashed_and_empty(ratio: float | None) -> None:
    root = _parse(render_gauge_svg("GPU", ratio))

    (frame,) = root.iter(f"{_SVG}rect")
    assert frame.get("stroke-dasharray")
    assert "GPU: not measured" == root.findtext(f"{_SVG}title")


def test_a_pie_shows_user_and_system_time() -> None:
    root = _parse(render_use_pie_svg(make_report()))

    assert ["CPU time by mode", "user code 95 %", "kernel (system) 5.0 %"] == _texts(root)
    user, system = (path.get("d", "") for path in root.iter(f"{_SVG}path"))
    assert " 0 1 1 " in user  # the large arc
    assert " 0 0 1 " in system


def test_a_pie_of_one_share_is_a_disc_and_of_none_says_so() -> None:
    assert 1 == len(list(_parse(render_pie_svg("x", [("all", 5.0), ("none", 0.0)])).iter(f"{_SVG}circle")))
    assert "not measured" in _texts(_parse(render_use_pie_svg(make_unmeasured_report(make_record()))))


@pytest.mark.parametrize("is_dark", [False, True])
def test_pictures_are_painted_in_one_palette(is_dark: bool) -> None:
    report = make_report()
    report = replace(report, summary=replace(report.summary, cpu=CpuSummary(user_seconds=9.0, system_seconds=1.0)))
    other = LIGHT if is_dark else DARK
    for svg in (
        render_chart_svg(make_chart(), dark=is_dark),
        render_gauge_svg("x", 0.5, dark=is_dark),
        render_use_pie_svg(report, dark=is_dark),
    ):
        assert not set(re.findall("#[0-9a-f]{6}", svg or "")) & {other.ink, other.grid, other.paper, *other.lines}


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_colours_can_be_seen_on_their_paper(palette: Palette) -> None:
    """WCAG 2.1: 4.5 to 1 for words, 3 to 1 for lines."""
    words = (palette.ink, palette.reference, *(palette.of(severity) for severity in Severity), palette.fine)

    assert all(4.5 <= _contrast(color, palette.paper) for color in words)
    assert all(3.0 <= _contrast(color, palette.paper) for color in (*palette.lines, palette.neutral))
    assert 8 == len(set(palette.lines))


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: str) -> float:
    parts = [int(color[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
