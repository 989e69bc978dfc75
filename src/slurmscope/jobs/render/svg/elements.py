# SPDX-License-Identifier: Apache-2.0
"""Write SVG elements, and define the colours of charts: everything is escaped and styled by attributes only.

The style sheet of a page may recolour a picture by class; a page that forbids inline styles still shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from slurmscope.jobs.rating import Rating
from slurmscope.jobs.render.formatting import show
from slurmscope.jobs.rule import Severity

FONT = "system-ui, Helvetica, Arial, sans-serif"
FONT_SIZE = 12
ATTRIBUTE_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """The colours for one background; eight for lines, which dash patterns extend to more than a chart has.

    They are distinguishable for colour-blind readers, with a contrast of at least 3:1.
    """

    paper: str
    ink: str
    grid: str
    reference: str
    lines: tuple[str, ...]
    critical: str
    warning: str
    info: str
    fine: str
    neutral: str

    def of(self, severity: Severity) -> str:
        return {Severity.CRITICAL: self.critical, Severity.WARNING: self.warning, Severity.INFO: self.info}[severity]

    def rated(self, rating: Rating) -> str:
        bad = {Rating.CRITICAL: self.critical, Rating.WARNING: self.warning}
        return bad.get(rating) or (self.fine if rating is Rating.FINE else self.neutral)


LIGHT = Palette(
    paper="#ffffff",
    ink="#24292f",
    grid="#d8dee4",
    reference="#8a3b00",
    lines=("#0067a3", "#c04f00", "#00775a", "#a03a83", "#665c00", "#3b3fa8", "#5a6470", "#a3142b"),
    critical="#b3261e",
    warning="#8f5200",
    info="#0067a3",
    fine="#00775a",
    neutral="#6a7a8a",
)

DARK = Palette(
    paper="#191e24",
    ink="#e6e9ed",
    grid="#39424d",
    reference="#f3b27a",
    lines=("#62b8ee", "#f0a040", "#3cc79c", "#e79aca", "#e6d860", "#a8a6ff", "#b4bec8", "#ff8a80"),
    critical="#ff9b93",
    warning="#f2b866",
    info="#62b8ee",
    fine="#3cc79c",
    neutral="#8796a5",
)


class Markup(str):
    """Mark text that is already markup and must not be escaped again."""

    __slots__ = ()

    def __html__(self) -> str:
        """Return the text as is, for template engines."""
        return str(self)


def element(name: str, *children: str, **attributes: str | float) -> Markup:
    """Make an element; ``stroke_width`` stands for stroke-width, ``class_`` for class."""
    written = "".join(f" {_key(key)}={_value(value)}" for key, value in attributes.items())
    content = "".join(child if isinstance(child, Markup) else escape(show(child), quote=False) for child in children)
    return Markup(f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>")


def picture(*children: str, width: float, height: float, title: str, description: str) -> Markup:
    """Make a whole picture with a title and description for screen readers."""
    return element(
        "svg",
        element("title", title),
        element("desc", description),
        *children,
        xmlns="http://www.w3.org/2000/svg",
        width=width,
        height=height,
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="img",
        font_family=FONT,
        font_size=FONT_SIZE,
    )


def write(x: float, y: float, text: str, palette: Palette, **attributes: str | float) -> Markup:
    """Make a text in the colour of the palette."""
    return element("text", text, x=x, y=y, **{"fill": palette.ink, "class_": "ink", **attributes})


def number(value: float) -> str:
    """Format a coordinate to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def measure_pixels(text: str, font_size: float = FONT_SIZE) -> float:
    """Estimate the width of a text without font metrics."""
    return sum(1.0 if ord(char) > 0x2E7F else 0.58 for char in show(text)) * font_size


def _key(key: str) -> str:
    return "viewBox" if key == "viewBox" else key.rstrip("_").replace("_", "-")


def _value(value: str | float) -> str:
    # A path of many points is long and must not be cut.
    return f'"{escape(show(value, ATTRIBUTE_LIMIT) if isinstance(value, str) else number(value))}"'
