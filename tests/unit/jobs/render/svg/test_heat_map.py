# SPDX-License-Identifier: Apache-2.0
"""A heat map is one small picture, with a description that names what differs."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from slurmscope.jobs.heat_maps import find_heat_maps
from slurmscope.jobs.render.svg.heat_map import (
    DARK_SCALE,
    LIGHT_SCALE,
    describe_heat_map,
    make_frame,
    render_heat_map_svg,
)
from slurmscope.jobs.report import ChartLine, HeatMap
from tests.fakes.reports import HOSTILE_NAME, START, make_two_node_report

SVG = "{http://www.w3.org/2000/svg}"


def make_map(*means: float | None, points: int = 60, **changed: object) -> HeatMap:
    rows = tuple(ChartLine(label=f"n{index}", values=(mean,) * points) for index, mean in enumerate(means))
    times = tuple(float(START + 60 * index) for index in range(points))
    heat_map = HeatMap(
        name="cpu",
        title="Busy cores by node",
        unit="ratio",
        times=times,
        end_seconds=times[-1] + 60,
        rows=rows,
        full=1.0,
    )
    return replace(heat_map, **changed)  # type: ignore[arg-type]


def paths(svg: str) -> dict[str, str]:
    root = ElementTree.fromstring(svg)
    return {path.get("class", ""): path.get("d", "") for path in root.iter(f"{SVG}path")}


def test_cells_have_the_colour_of_their_value() -> None:
    svg = render_heat_map_svg(make_map(0.0, 1.0))
    found = paths(svg)
    assert {"heat-0", "heat-8"} == set(found)
    assert LIGHT_SCALE[8] in svg
    assert DARK_SCALE[8] in render_heat_map_svg(make_map(0.0, 1.0), dark=True)
    # Sixty equal cells are one rectangle.
    assert 1 == found["heat-0"].count("M")


def test_what_was_not_measured_stays_empty() -> None:
    rows = (ChartLine(label="a", values=(0.5, None, 0.5)), ChartLine(label="b", values=(None, None, None)))
    svg = render_heat_map_svg(make_map(times=(1.0, 2.0, 3.0), end_seconds=4.0, rows=rows))
    assert 2 == sum(path.count("M") for path in paths(svg).values())


def test_sixty_four_nodes_are_one_picture_of_bounded_size() -> None:
    rows = tuple(ChartLine(label=f"n{row}", values=tuple((row + i) % 9 / 8 for i in range(60))) for row in range(64))
    heat_map = make_map(rows=rows)
    assert len(render_heat_map_svg(heat_map)) < 200_000
    frame = make_frame(heat_map)
    assert frame.height < 600
    assert frame.left < frame.right <= frame.width


@pytest.mark.parametrize(
    ("heat_map", "expected"),
    [
        (make_map(0.9, 0.92, 0.95), "All 3 nodes are alike: 90 % to 95 % on average."),
        (make_map(0.9, 0.02, 0.9), "1 node of 3 differs from the median of 90 %: n1 2.0 %."),
        (make_map(None, None), "Nothing was measured."),
        (
            make_map(0.9, 0.9, rows_left_out=7, name="cpu_core"),
            "All 2 cores are alike: 90 % on average. 7 further cores nearer to the median not shown.",
        ),
    ],
)
def test_description_names_what_differs(heat_map: HeatMap, expected: str) -> None:
    assert expected == describe_heat_map(heat_map)


def test_many_differing_rows_are_counted() -> None:
    means = [0.9] * 31 + [0.1] * 20
    text = describe_heat_map(make_map(*means))
    assert text.startswith("20 nodes of 51 differ")
    assert text.endswith("and 8 more.")


def test_names_are_texts() -> None:
    rows = (ChartLine(label=HOSTILE_NAME, values=(0.1,) * 2), ChartLine(label="b", values=(0.9,) * 2))
    svg = render_heat_map_svg(make_map(times=(1.0, 2.0), end_seconds=3.0, rows=rows))
    ElementTree.fromstring(svg)
    assert None is re.search("<script", svg)


def test_scale_without_a_limit_ends_at_the_highest_value() -> None:
    svg = render_heat_map_svg(make_map(2.0, 4.0, unit="cores", full=None))
    assert "4; empty: not measured" in svg
    assert {"heat-4", "heat-8"} == set(paths(svg))


def test_report_of_two_nodes_has_a_map() -> None:
    (cpu,) = (found for found in find_heat_maps(make_two_node_report()) if found.name == "cpu")
    assert "The 2 nodes differ a lot from each other: n2 0 %, n1 50 %." == describe_heat_map(cpu)
