# SPDX-License-Identifier: Apache-2.0
"""Draw a chart as SVG that needs no script, no font and no server."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo

from slurmscope.analysis.charts import fold_lines
from slurmscope.figures import NOT_MEASURED
from slurmscope.model.report import Chart
from slurmscope.reports.formatting import format_zoned_day, show
from slurmscope.reports.svg.axes import Mark, find_highest, format_value, make_time_marks, make_value_marks
from slurmscope.reports.svg.elements import DARK, LIGHT, Markup, Palette, element, measure_pixels, number, picture

_TOP, _RIGHT, _ROW = 38, 16, 18
_LABEL_LIMIT = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Map times and values to positions in the picture."""

    left: float
    top: float
    right: float
    bottom: float
    first: float
    last: float
    highest: float

    def x(self, time: float) -> float:
        span = self.last - self.first
        return self.left + (self.right - self.left) * ((time - self.first) / span if span > 0 else 0.5)

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * (value / self.highest)


def render_chart_svg(
    chart: Chart, *, width: int = 720, height: int = 260, dark: bool = False, zone: tzinfo = UTC
) -> Markup:
    """Draw the lines of a chart over time, with gaps where nothing was measured; times are in ``zone``."""
    palette = DARK if dark else LIGHT
    chart = fold(chart)
    legend = _place_legend(chart, width)
    rows = max((row for row, _, _ in legend), default=-1) + 1
    marks = make_value_marks(_highest(chart), chart.unit, count=max(2, int(height / 45)))
    frame = _Frame(
        left=max(measure_pixels(mark.text) for mark in marks) + 14,
        top=_TOP,
        right=width - _RIGHT,
        bottom=height - 24 - rows * _ROW,
        first=chart.times[0] if chart.times else 0.0,
        last=chart.times[-1] if chart.times else 0.0,
        highest=marks[-1].value,
    )
    return picture(
        element("rect", width=width, height=height, fill=palette.paper, class_="paper"),
        _text(8, 18, chart.title, palette, font_weight="600"),
        *_value_axis(frame, marks, palette),
        *_time_axis(frame, palette, zone),
        *(_line(frame, chart, index, palette) for index in range(len(chart.lines))),
        *_reference(frame, chart, palette),
        *_legend(legend, height - rows * _ROW, palette),
        *([] if find_any(chart) else [_nothing(frame, palette)]),
        width=width,
        height=height,
        title=chart.title,
        description=describe(chart),
    )


def fold(chart: Chart) -> Chart:
    """Return a chart with few enough lines to read; charts archived by an older release may have more."""
    return replace(chart, lines=fold_lines(chart.lines))


def describe(chart: Chart) -> str:
    """Describe the chart for screen readers."""
    parts = [chart.help] if chart.help else []
    for line in fold(chart).lines:
        known = [value for value in line.values if value is not None and math.isfinite(value)]
        if known:
            low, high = format_value(min(known), chart.unit), format_value(max(known), chart.unit)
            parts.append(f"{line.label}: between {low} and {high}.")
        else:
            parts.append(f"{line.label}: not measured.")
    if chart.reference is not None:
        parts.append(f"{chart.reference_label or 'Reference'}: {format_value(chart.reference, chart.unit)}.")
    return " ".join(parts) or "Nothing was measured."


def find_any(chart: Chart) -> bool:
    """Return whether anything was measured."""
    return any(value is not None for line in chart.lines for value in line.values)


def _highest(chart: Chart) -> float:
    # Shares always run to 100 %: a GPU at 20 % must not fill its chart.
    floor = [1.0] if chart.unit == "ratio" else []
    reference = [] if chart.reference is None else [chart.reference]
    return find_highest([*(line.values for line in chart.lines), reference, floor])


def _value_axis(frame: _Frame, marks: Sequence[Mark], palette: Palette) -> Iterator[Markup]:
    for mark in marks:
        y = frame.y(mark.value)
        yield element(
            "line", x1=frame.left, y1=y, x2=frame.right, y2=y, stroke=palette.grid, stroke_width=1, class_="grid"
        )
        yield _text(frame.left - 6, y + 4, mark.text, palette, text_anchor="end")


def _time_axis(frame: _Frame, palette: Palette, zone: tzinfo) -> Iterator[Markup]:
    count = max(1, int((frame.right - frame.left) / 90))
    if frame.last > frame.first:
        yield _text(frame.right, 18, format_zoned_day(frame.first, zone), palette, text_anchor="end")
    for mark in make_time_marks(frame.first, frame.last, count=count, zone=zone):
        x = frame.x(mark.value)
        yield element(
            "line", x1=x, y1=frame.bottom, x2=x, y2=frame.bottom + 4, stroke=palette.ink, stroke_width=1, class_="tick"
        )
        # The text of a mark at the very edge stays inside of the picture.
        half = measure_pixels(mark.text) / 2
        yield _text(min(x, frame.right + _RIGHT - half), frame.bottom + 17, mark.text, palette, text_anchor="middle")


def _line(frame: _Frame, chart: Chart, index: int, palette: Palette) -> Markup:
    return element(
        "path",
        d=_path(frame, chart.times, chart.lines[index].values),
        fill="none",
        stroke=palette.lines[index % len(palette.lines)],
        stroke_width=1.8,
        stroke_linecap="round",
        stroke_linejoin="round",
        class_=f"line line-{index % len(palette.lines)}",
        **_dashes(index, palette),
    )


def _path(frame: _Frame, times: Sequence[float], values: Sequence[float | None]) -> str:
    commands, is_down = list[str](), False
    for time, value in zip(times, values, strict=True):
        if value is None or not math.isfinite(value):
            is_down = False
            continue
        point = f"{number(frame.x(time))} {number(frame.y(max(0.0, value)))}"
        # A line of length 0 draws a lone point as a dot.
        commands.append(f"L{point}" if is_down else f"M{point}h0")
        is_down = True
    return "".join(commands)


def _dashes(index: int, palette: Palette) -> dict[str, str]:
    pattern = ("", "6 4", "2 4")[index // len(palette.lines) % 3]
    return {"stroke_dasharray": pattern} if pattern else {}


def _reference(frame: _Frame, chart: Chart, palette: Palette) -> Iterator[Markup]:
    if chart.reference is None or not math.isfinite(chart.reference):
        return
    y = frame.y(chart.reference)
    label = f"{chart.reference_label} {format_value(chart.reference, chart.unit)}".strip()
    yield element(
        "line",
        x1=frame.left, y1=y, x2=frame.right, y2=y,
        stroke=palette.reference, stroke_width=1.5, stroke_dasharray="7 4", class_="reference",
    )  # fmt: skip
    below = y + 14 if y - 5 < frame.top + 8 else y - 5
    yield _text(frame.right - 4, below, label, palette, text_anchor="end", fill=palette.reference, class_="reference")


def _place_legend(chart: Chart, width: int) -> list[tuple[int, float, str]]:
    """Return the row, position and label of each line; a single line needs no legend."""
    places, row, x = list[tuple[int, float, str]](), 0, 8.0
    for line in chart.lines if len(chart.lines) > 1 else ():
        label = show(line.label, _LABEL_LIMIT)
        needed = 24 + measure_pixels(label) + 14
        if x > 8 and x + needed > width:
            row, x = row + 1, 8.0
        places.append((row, x, label))
        x += needed
    return places


def _legend(places: Sequence[tuple[int, float, str]], top: float, palette: Palette) -> Iterator[Markup]:
    for index, (row, x, label) in enumerate(places):
        y = top + row * _ROW + 6
        color = palette.lines[index % len(palette.lines)]
        yield element(
            "line", x1=x, y1=y, x2=x + 18, y2=y, stroke=color, stroke_width=2.5,
            class_=f"line line-{index % len(palette.lines)}", **_dashes(index, palette),
        )  # fmt: skip
        yield _text(x + 24, y + 4, label, palette)


def _nothing(frame: _Frame, palette: Palette) -> Markup:
    middle = (frame.left + frame.right) / 2
    return _text(middle, (frame.top + frame.bottom) / 2 - 10, NOT_MEASURED, palette, text_anchor="middle")


def _text(x: float, y: float, text: str, palette: Palette, **attributes: str | float) -> Markup:
    return element("text", text, x=x, y=y, **{"fill": palette.ink, "class_": "ink", **attributes})
