# SPDX-License-Identifier: Apache-2.0
"""Parse the two format languages of Slurm's listing commands into columns.

``-O`` takes ``Field:suffix,Field:.8,Field``: after the colon come an optional ``.`` (right-justified), an optional
width and a suffix of any text without a comma. A colon without a width means "as wide as needed", no colon at all means
20 characters.

``-o`` takes ``text%i|%.8j``: each ``%`` is followed by the same width, one letter and a suffix.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# What -O pads and cuts to when the field has no colon.
PLAIN_WIDTH = 20

_LONG_WIDTH = re.compile(r"(\.?)([0-9]*)(.*)", re.DOTALL)
_SHORT_FIELD = re.compile(r"%(\.?)([0-9]*)([^0-9.])([^%]*)", re.DOTALL)

# A format longer than this is a mistake, not a format.
MAX_FORMAT_CHARACTERS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Describe what one column shows and how wide it is; ``width`` 0 prints the whole value, neither cut nor padded."""

    name: str
    width: int = 0
    is_right: bool = False
    suffix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLayout:
    """Hold the columns of a row and the text before the first of them."""

    columns: tuple[Column, ...]
    prefix: str = ""


def parse_long_format(text: str) -> ColumnLayout:
    """Parse the argument of ``-O``; names are kept as typed, empty fields are passed over as squeue does."""
    fields = [field for field in text[:MAX_FORMAT_CHARACTERS].split(",") if field]
    return ColumnLayout(columns=tuple(_long_column(field) for field in fields))


def parse_short_format(text: str) -> ColumnLayout:
    """Parse the argument of ``-o``; the names of the columns are the letters."""
    text = text[:MAX_FORMAT_CHARACTERS]
    prefix, percent, rest = text.partition("%")
    columns = tuple(
        Column(name=letter, width=_width(digits), is_right=bool(dot), suffix=suffix)
        for dot, digits, letter, suffix in _SHORT_FIELD.findall(percent + rest)
    )
    return ColumnLayout(columns=columns, prefix=prefix)


def _long_column(field: str) -> Column:
    name, colon, rest = field.partition(":")
    if not colon:
        return Column(name=name, width=PLAIN_WIDTH)
    found = _LONG_WIDTH.fullmatch(rest)
    dot, digits, suffix = found.groups() if found else ("", "", rest)
    return Column(name=name, width=_width(digits), is_right=bool(dot), suffix=suffix)


def _width(digits: str) -> int:
    # Slurm reads the number into an int; a cap keeps one argument from asking for gigabytes of blanks.
    return min(int(digits[:6] or "0"), 65_535)
