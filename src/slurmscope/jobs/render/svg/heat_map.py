# SPDX-License-Identifier: Apache-2.0
"""Draw a heat map as SVG: rows of nodes or cores over time, darker (in dark mode brighter) for higher values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from statistics import median

from slurmscope.core.units import NOT_MEASURED, format_some
from slurmscope.jobs.heat_maps import summarize_rows
from slurmscope.jobs.render.formatting import format_zoned_day, show
from slurmscope.jobs.render.svg.charts import find_highest, format_value, make_time_marks
from slurmscope.jobs.render.svg.elements import (
    DARK,
    LIGHT,
    Markup,
    Palette,
    element,
    measure_pixels,
    number,
    picture,
    write,
)
from slurmscope.jobs.report import HeatMap

LIGHT_SCALE = ("#eef3f8", "#d6e4f0", "#b5d0e6", "#8db8da", "#639bc9", "#3f7db3", "#246199", "#13477a", "#082f57")
DARK_SCALE = ("#1f2a35", "#21394d", "#244b68", "#2a5f85", "#3376a3", "#4590c0", "#63abd6", "#90c8e8", "#c8e6f7")
_TOP, _RIGHT, _BOTTOM = 34, 16, 46
_LABEL_LIMIT = 22
_MAX_NAMED = 12
"""Rows that are named in the description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatFrame:
    """Where the cells are: the script maps the pointer to a cell by these."""

    left: float
    top: float
    right: float
    bottom: float
    width: int
    height: int


def make_frame(heat_map: HeatMap, *, width: int = 720) -> HeatFrame:
    """Place the cells of a heat map in a picture of this width."""
    row = 18 if len(heat_map.rows) <= 8 else 12 if len(heat_map.rows) <= 24 else 7
    labels = [measure_pixels(show(line.label, _LABEL_LIMIT)) for line in heat_map.rows]
    bottom = _TOP + row * len(heat_map.rows)
    return HeatFrame(
        left=max(labels) + 14, top=_TOP, right=width - _RIGHT, bottom=bottom, width=width, height=bottom + _BOTTOM
    )


def render_heat_map_svg(
    heat_map: HeatMap, *, width: int = 720, dark: bool = False, zone: tzinfo = UTC, title: str | None = None
) -> Markup:
    """Draw one heat map with its axes and the scale of its colours; a page has its title above the picture."""
    frame, palette = make_frame(heat_map, width=width), DARK if dark else LIGHT
    scale = DARK_SCALE if dark else LIGHT_SCALE
    return picture(
        element("rect", width=width, height=frame.height, fill=palette.paper, class_="paper"),
        write(8, 18, heat_map.title if title is None else title, palette, font_weight="600"),
        *_cells(heat_map, frame, scale, palette),
        *_row_labels(heat_map, frame, palette),
        *_time_axis(heat_map, frame, palette, zone),
        *_legend(heat_map, frame, scale, palette),
        width=width,
        height=frame.height,
        title=heat_map.title,
        description=describe_heat_map(heat_map),
    )


def describe_heat_map(heat_map: HeatMap) -> str:
    """Describe which rows differ, for everyone who cannot see the picture or does not want to search it."""
    rows = summarize_rows(heat_map)
    known = sorted(row.mean for row in rows if row.mean is not None)
    if not known:
        return "Nothing was measured."
    middle = format_value(median(known), heat_map.unit)
    kind = "core" if heat_map.name == "cpu_core" else "node"
    left_out = heat_map.rows_left_out
    more = f" {format_some(left_out, f'further {kind}')} nearer to the median not shown." if left_out else ""
    far = sorted((row for row in rows if row.differs), key=lambda row: row.mean or 0.0)
    if not far:
        low, high = format_value(known[0], heat_map.unit), format_value(known[-1], heat_map.unit)
        span = low if low == high else f"{low} to {high}"
        return f"All {format_some(len(rows), kind)} are alike: {span} on average.{more}"
    named = ", ".join(f"{show(row.label, 60)} {format_value(row.mean, heat_map.unit)}" for row in far[:_MAX_NAMED])
    others = f" and {len(far) - _MAX_NAMED} more" if len(far) > _MAX_NAMED else ""
    if 2 * len(far) > len(rows):
        return f"The {format_some(len(rows), kind)} differ a lot from each other: {named}{others}.{more}"
    verb = "differs" if len(far) == 1 else "differ"
    return f"{format_some(len(far), kind)} of {len(rows)} {verb} from the median of {middle}: {named}{others}.{more}"


def _cells(heat_map: HeatMap, frame: HeatFrame, scale: Sequence[str], palette: Palette) -> Iterator[Markup]:
    """Yield one path per colour: thousands of elements would be slow."""
    highest = heat_map.full or find_highest([line.values for line in heat_map.rows]) or 1.0
    paths: dict[int, list[str]] = {}
    height = (frame.bottom - frame.top) / len(heat_map.rows)
    step = (frame.right - frame.left) / len(heat_map.times)
    for row, line in enumerate(heat_map.rows):
        for level, first, count in _runs([_level(value, highest, len(scale)) for value in line.values]):
            x, y = frame.left + first * step, frame.top + row * height
            path = f"M{number(x)} {number(y)}h{number(count * step)}v{number(height - 1)}h-{number(count * step)}z"
            paths.setdefault(level, []).append(path)
    for level, parts in sorted(paths.items()):
        yield element("path", d="".join(parts), fill=scale[level], class_=f"heat-{level}")
    yield element(
        "rect", x=frame.left, y=frame.top, width=frame.right - frame.left, height=frame.bottom - frame.top,
        fill="none", stroke=palette.grid, class_="grid",
    )  # fmt: skip


def _runs(levels: Sequence[int | None]) -> Iterator[tuple[int, int, int]]:
    """Yield level, first cell and length of each run of equal cells; cells without a value are left empty."""
    first = 0
    for index in range(1, len(levels) + 1):
        if index == len(levels) or levels[index] != levels[first]:
            if (level := levels[first]) is not None:
                yield level, first, index - first
            first = index


def _level(value: float | None, highest: float, levels: int) -> int | None:
    return None if value is None else min(levels - 1, max(0, int(value / highest * levels)))


def _row_labels(heat_map: HeatMap, frame: HeatFrame, palette: Palette) -> Iterator[Markup]:
    height = (frame.bottom - frame.top) / len(heat_map.rows)
    every = max(1, int(13 / height + 0.999))
    for index in range(0, len(heat_map.rows), every):
        label = show(heat_map.rows[index].label, _LABEL_LIMIT)
        y = frame.top + (index + 0.5) * height + 4
        yield write(frame.left - 6, y, label, palette, text_anchor="end", font_size=11)


def _time_axis(heat_map: HeatMap, frame: HeatFrame, palette: Palette, zone: tzinfo) -> Iterator[Markup]:
    first, last = heat_map.times[0], heat_map.end_seconds
    yield write(frame.right, 18, format_zoned_day(first, zone), palette, text_anchor="end")
    for mark in make_time_marks(first, last, count=max(1, int((frame.right - frame.left) / 90)), zone=zone):
        x = frame.left + (frame.right - frame.left) * (mark.value - first) / (last - first)
        yield write(min(x, frame.right - 10), frame.bottom + 16, mark.text, palette, text_anchor="middle")


def _legend(heat_map: HeatMap, frame: HeatFrame, scale: Sequence[str], palette: Palette) -> Iterator[Markup]:
    highest = heat_map.full or find_highest([line.values for line in heat_map.rows])
    y, x = frame.bottom + 28, frame.left
    yield write(x, y + 9, format_value(0.0, heat_map.unit), palette)
    x += measure_pixels(format_value(0.0, heat_map.unit)) + 6
    for index, color in enumerate(scale):
        yield element("rect", x=x + 16 * index, y=y, width=16, height=10, fill=color, class_=f"heat-{index}")
    x += 16 * len(scale) + 6
    yield write(x, y + 9, f"{format_value(highest, heat_map.unit)}; empty: {NOT_MEASURED}", palette)
