# SPDX-License-Identifier: Apache-2.0
"""Draw charts, gauges and pies as SVG that needs no script, no font and no server."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from typing import NamedTuple

from slurmscope.core.units import NOT_MEASURED, format_bytes, format_count, format_power, format_rate, format_ratio
from slurmscope.jobs.charts import fold_lines
from slurmscope.jobs.rating import Rating
from slurmscope.jobs.render.formatting import format_zoned_day, in_zone, show
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
from slurmscope.jobs.report import Chart, JobReport

_DAY, _HOUR, _MINUTE = 86400, 3600, 60
_TIME_STEPS = (
    *(1, 2, 5, 10, 15, 30),
    *(count * _MINUTE for count in (1, 2, 5, 10, 15, 30)),
    *(count * _HOUR for count in (1, 2, 3, 6, 12)),
    *(count * _DAY for count in (1, 2, 7, 14, 28, 91, 182, 364)),
)


class Mark(NamedTuple):
    """One mark of an axis."""

    value: float
    text: str


def make_value_marks(highest: float, unit: str, *, count: int = 5) -> tuple[Mark, ...]:
    """Return marks from 0 to at least the highest value; bytes are marked in powers of 1024."""
    highest = highest if 1e-9 < highest < 1e30 else 1.0
    base = 1.0
    if unit in {"bytes", "bytes/s"}:
        base = 1024.0 ** min(6, int(math.log(highest, 1024))) if highest >= 1024 else 1.0
    step = _round_up(highest / base / count) * base
    if unit in {"bytes", "count"}:
        step = max(1.0, step)
    steps = math.ceil(highest / step - 1e-9)
    return tuple(Mark(index * step, format_value(index * step, unit)) for index in range(steps + 1))


def make_time_marks(first: float, last: float, *, count: int = 8, zone: tzinfo = UTC) -> tuple[Mark, ...]:
    """Return marks within a span of seconds since 1970, at round times of the day in a time zone."""
    shortest = (last - first) / max(1, count)
    step = next((step for step in _TIME_STEPS if step >= shortest), None)
    if step is None or not (math.isfinite(first) and last > first):
        return ()
    # Where the clock changes within the span, marks stay as far apart as they are.
    offset = _offset_seconds(first, zone)
    start, end = math.ceil((first + offset) / step), math.floor((last + offset) / step)
    times = (index * step - offset for index in range(start, end + 1))
    return tuple(Mark(time, _format_mark(time, step, zone)) for time in times)


def _offset_seconds(seconds: float, zone: tzinfo) -> int:
    moment = in_zone(seconds, zone)
    offset = moment.utcoffset() if moment else None
    return round(offset.total_seconds()) if offset else 0


def format_value(value: float | None, unit: str) -> str:
    if unit == "bytes":
        return format_bytes(value)
    if unit == "bytes/s":
        return format_rate(value)
    if unit == "watts":
        return format_power(value)
    return format_ratio(value) if unit == "ratio" else format_count(value)


def find_highest(rows: Sequence[Sequence[float | None]]) -> float:
    """Return the highest value that was measured, 0 when there is none."""
    return max((value for row in rows for value in row if value is not None and math.isfinite(value)), default=0.0)


def _round_up(value: float) -> float:
    """Return the next of 1, 2, 5, 10, … with any power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= value * (1 - 1e-9))


def _format_mark(seconds: int, step: int, zone: tzinfo) -> str:
    moment = in_zone(seconds, zone)
    if moment is None:
        return ""
    if step >= _DAY:
        return f"{moment:%Y-%m-%d}" if step > 28 * _DAY else f"{moment:%m-%d}"
    if (moment.hour, moment.minute, moment.second) == (0, 0, 0):
        return f"{moment:%m-%d}"
    return f"{moment:%H:%M:%S}" if step < _MINUTE else f"{moment:%H:%M}"


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
        write(8, 18, chart.title, palette, font_weight="600"),
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


def describe_range(chart: Chart) -> str:
    """Return the lowest and the highest value of a chart, or the one that both are."""
    known = [value for line in chart.lines for value in line.values if value is not None and math.isfinite(value)]
    ends = dict.fromkeys(format_value(end, chart.unit) for end in (min(known), max(known))) if known else {}
    return " to ".join(ends) or NOT_MEASURED


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
        yield write(frame.left - 6, y + 4, mark.text, palette, text_anchor="end")


def _time_axis(frame: _Frame, palette: Palette, zone: tzinfo) -> Iterator[Markup]:
    count = max(1, int((frame.right - frame.left) / 90))
    if frame.last > frame.first:
        yield write(frame.right, 18, format_zoned_day(frame.first, zone), palette, text_anchor="end")
    for mark in make_time_marks(frame.first, frame.last, count=count, zone=zone):
        x = frame.x(mark.value)
        yield element(
            "line", x1=x, y1=frame.bottom, x2=x, y2=frame.bottom + 4, stroke=palette.ink, stroke_width=1, class_="tick"
        )
        # The text of a mark at the very edge stays inside of the picture.
        half = measure_pixels(mark.text) / 2
        yield write(min(x, frame.right + _RIGHT - half), frame.bottom + 17, mark.text, palette, text_anchor="middle")


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
    yield write(frame.right - 4, below, label, palette, text_anchor="end", fill=palette.reference, class_="reference")


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
        yield write(x + 24, y + 4, label, palette)


def _nothing(frame: _Frame, palette: Palette) -> Markup:
    middle = (frame.left + frame.right) / 2
    return write(middle, (frame.top + frame.bottom) / 2 - 10, NOT_MEASURED, palette, text_anchor="middle")


def render_gauge_svg(
    label: str,
    ratio: float | None,
    *,
    rating: Rating = Rating.UNRATED,
    width: int = 240,
    height: int = 14,
    dark: bool = False,
) -> Markup:
    """Draw a bar that is filled up to the ratio; without a measurement, draw an empty dashed frame."""
    palette = DARK if dark else LIGHT
    is_known = ratio is not None and math.isfinite(ratio)
    filled = (width - 2) * max(0.0, min(ratio or 0.0, 1.0)) if is_known else 0.0
    dashes = {} if is_known else {"stroke_dasharray": "4 3"}
    color = palette.rated(rating)
    return picture(
        element(
            "rect", x=0.5, y=0.5, width=width - 1, height=height - 1, rx=3,
            fill="none", stroke=palette.ink, class_="frame", **dashes,
        ),
        *([element("rect", x=1, y=1, width=filled, height=height - 2, rx=2, fill=color, class_=rating.value)]
          if filled else []),
        width=width,
        height=height,
        title=f"{label}: {format_ratio(ratio)}",
        description="Used share of what was requested.",
    )  # fmt: skip


def render_use_pie_svg(report: JobReport, *, width: int = 420, height: int = 220, dark: bool = False) -> Markup:
    """Draw how CPU time was split between user and system mode."""
    cpu = report.summary.cpu
    slices = [("user code", cpu.user_seconds), ("kernel (system)", cpu.system_seconds)]
    known = [(name, seconds) for name, seconds in slices if seconds is not None]
    return render_pie_svg("CPU time by mode", known, width=width, height=height, dark=dark)


def render_pie_svg(
    title: str, slices: Sequence[tuple[str, float]], *, width: int = 420, height: int = 220, dark: bool = False
) -> Markup:
    """Draw shares of a whole, at most five."""
    palette = DARK if dark else LIGHT
    slices = [(name, amount) for name, amount in slices[: len(palette.lines)] if amount >= 0]
    whole = sum(amount for _, amount in slices)
    labels = [f"{name} {format_ratio(amount / whole)}" for name, amount in slices] if whole > 0 else [NOT_MEASURED]
    radius = (height - 50) / 2
    return picture(
        element("rect", width=width, height=height, fill=palette.paper, class_="paper"),
        element("text", title, x=8, y=18, fill=palette.ink, font_weight="600", class_="ink"),
        *(_pie(slices, whole, radius, palette) if whole > 0 else []),
        *_pie_labels(labels, 2 * radius + 50 if whole > 0 else 0.0, height / 2, palette),
        width=width,
        height=height,
        title=title,
        description=", ".join(labels) + ".",
    )


def _pie(slices: Sequence[tuple[str, float]], whole: float, radius: float, palette: Palette) -> Iterator[Markup]:
    x, y, turned = radius + 20, radius + 34, 0.0
    for index, (_, amount) in enumerate(slices):
        share = amount / whole
        color = palette.lines[index]
        if share >= 0.9999:
            # An arc that ends where it starts draws nothing.
            yield element("circle", cx=x, cy=y, r=radius, fill=color, class_=f"fill-{index}")
        elif share > 0:
            start, end = _on_circle(x, y, radius, turned), _on_circle(x, y, radius, turned + share)
            path = f"M{number(x)} {number(y)}L{start}A{number(radius)} {number(radius)} 0 {int(share > 0.5)} 1 {end}Z"
            yield element("path", d=path, fill=color, stroke=palette.paper, stroke_width=1, class_=f"fill-{index}")
        turned += share


def _pie_labels(labels: Sequence[str], x: float, middle: float, palette: Palette) -> Iterator[Markup]:
    top = middle - 11 * (len(labels) - 1)
    for index, label in enumerate(labels):
        y = top + 22 * index
        if x:
            yield element("rect", x=x, y=y - 9, width=12, height=12, fill=palette.lines[index], class_=f"fill-{index}")
        yield element("text", label, x=x + 20, y=y + 2, fill=palette.ink, class_="ink")


def _on_circle(x: float, y: float, radius: float, turns: float) -> str:
    angle = 2 * math.pi * turns - math.pi / 2
    return f"{number(x + radius * math.cos(angle))} {number(y + radius * math.sin(angle))}"
