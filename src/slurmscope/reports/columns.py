# SPDX-License-Identifier: Apache-2.0
"""Fit text into the columns of a terminal, where some characters take two and some none."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence


def measure(text: str) -> int:
    """Count the columns that a text takes."""
    return len(text) if text.isascii() else sum(map(_char_columns, text))


def cut(text: str, columns: int) -> str:
    """Shorten a text to this many columns, with an ellipsis where it was cut."""
    if measure(text) <= columns:
        return text
    return _head(text, columns - 1) + "…" if columns > 0 else ""


def pad(text: str, columns: int, *, is_right: bool = False) -> str:
    """Pad or cut a text to exactly this many columns."""
    text = cut(text, columns)
    blanks = " " * (columns - measure(text))
    return blanks + text if is_right else text + blanks


def wrap(text: str, columns: int) -> list[str]:
    """Break a text at blanks, and within words that are longer than a line."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if measure(joined) <= columns:
            lines[-1] = joined
        elif lines[-1]:
            lines += _pieces(word, columns)
        else:
            lines[-1:] = _pieces(word, columns)
    return lines


def lay_table(head: Sequence[str], rows: Sequence[Sequence[str]], columns: int) -> list[str]:
    """Lay out a table; its last columns are left out where the terminal is too narrow for them.

    The first column is left-aligned and cut where it is long, the others are right-aligned.
    """
    widths = [max(measure(row[index]) for row in (head, *rows)) for index in range(len(head))]
    widths[0] = min(widths[0], max(8, columns // 3))
    while len(widths) > 1 and sum(widths) + 2 * (len(widths) - 1) > columns:
        widths.pop()
    return [
        "  ".join(pad(row[index], width, is_right=index > 0) for index, width in enumerate(widths)).rstrip()
        for row in (head, *rows)
    ]


def _pieces(word: str, columns: int) -> list[str]:
    pieces = list[str]()
    while word:
        # A character that is wider than the whole line still has to go somewhere.
        pieces.append(_head(word, columns) or word[0])
        word = word[len(pieces[-1]) :]
    return pieces


def _head(text: str, columns: int) -> str:
    taken = 0
    for index, char in enumerate(text):
        taken += _char_columns(char)
        if taken > columns:
            return text[:index]
    return text


def _char_columns(char: str) -> int:
    if unicodedata.category(char) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
