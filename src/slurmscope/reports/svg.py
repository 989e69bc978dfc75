# SPDX-License-Identifier: Apache-2.0
"""Write SVG elements: everything is escaped and styled by attributes only.

The style sheet of a page may recolour a picture by class; a page that forbids inline styles still shows it.
"""

from __future__ import annotations

from xml.sax.saxutils import escape as escape_xml
from xml.sax.saxutils import quoteattr

from slurmscope.reports.words import show

FONT = "system-ui, Helvetica, Arial, sans-serif"
FONT_SIZE = 12
ATTRIBUTE_LIMIT = 1_000_000


class Markup(str):
    """Mark text that is already markup and must not be escaped again."""

    __slots__ = ()

    def __html__(self) -> str:
        """Return the text as is, for template engines."""
        return str(self)


def element(name: str, *children: str, **attributes: str | float) -> Markup:
    """Make an element; ``stroke_width`` stands for stroke-width, ``class_`` for class."""
    written = "".join(f" {_key(key)}={_value(value)}" for key, value in attributes.items())
    content = "".join(child if isinstance(child, Markup) else escape_xml(show(child)) for child in children)
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
    return quoteattr(show(value, ATTRIBUTE_LIMIT) if isinstance(value, str) else number(value))
