# SPDX-License-Identifier: Apache-2.0
"""Draw the figures of a report that have no time axis: gauges, pies, and the use of each core."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from slurmscope.core.units import NOT_MEASURED, format_ratio
from slurmscope.jobs.rating import Rating
from slurmscope.jobs.render.formatting import show
from slurmscope.jobs.render.svg.elements import DARK, LIGHT, Markup, Palette, element, number, picture
from slurmscope.jobs.report import JobReport

MAX_CORE_ROWS = 32
MAX_CORES_IN_ROW = 256


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


def render_cores_svg(report: JobReport, *, width: int = 720, dark: bool = False) -> Markup | None:
    """Draw a cell per core, darker the busier it was; None where cores were not measured separately.

    One row is one node; of many nodes, those with the idlest cores are drawn.
    """
    seconds = report.summary.run_seconds
    rows = [
        (node.node, [used / seconds for used in node.core_seconds.values()])
        for node in report.summary.nodes
        if node.core_seconds and seconds > 0
    ]
    if not rows:
        return None
    palette = DARK if dark else LIGHT
    drawn = sorted(rows, key=lambda row: min(row[1]))[:MAX_CORE_ROWS]
    every = [ratio for _, ratios in rows for ratio in ratios]
    height = 34 + 24 * len(drawn)
    title = "Use of each core"
    if len(drawn) < len(rows):
        title += f" ({len(drawn)} of {len(rows):,} nodes, those with the idlest cores first)"
    return picture(
        element("rect", width=width, height=height, fill=palette.paper, class_="paper"),
        element("text", title, x=8, y=18, fill=palette.ink, font_weight="600", class_="ink"),
        *(cell for index, row in enumerate(drawn) for cell in _core_row(row, 28.0 + 24 * index, width, palette)),
        width=width,
        height=height,
        title=title,
        description=f"{len(every):,} cores were busy between {format_ratio(min(every))} and {format_ratio(max(every))} "
        f"of the time, half of them less than {format_ratio(median(every))}.",
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


def _core_row(row: tuple[str, list[float]], top: float, width: float, palette: Palette) -> Iterator[Markup]:
    node, ratios = row
    yield element("text", show(node, 16), x=8, y=top + 15, fill=palette.ink, class_="ink")
    ratios = ratios[:MAX_CORES_IN_ROW]
    size = min(64.0, (width - 140) / len(ratios))
    for index, ratio in enumerate(ratios):
        x = 124 + index * size
        gap = 2 if size >= 8 else 0
        share = max(0.0, min(ratio, 1.0))
        yield element(
            "rect", x=x, y=top, width=size - gap, height=20, stroke=palette.grid, stroke_width=0.5,
            fill=palette.lines[0], fill_opacity=f"{share:.2f}", class_="fill-0",
        )  # fmt: skip
        if size >= 44:
            is_dark = share > 0.55
            yield element(
                "text", format_ratio(ratio), x=x + (size - gap) / 2, y=top + 14, text_anchor="middle", font_size=11,
                fill=palette.paper if is_dark else palette.ink, class_="on-fill" if is_dark else "ink",
            )  # fmt: skip
