# SPDX-License-Identifier: Apache-2.0
"""Set columns of values beside each other as the bytes a command prints.

Everything works on whole columns: a hundred thousand rows are normal here, and row by row they cost several times more.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

from slurmscope.simulate.commands.formats import Column, ColumnLayout

STANDARD_TIME = "standard"


def encode(text: str) -> bytes:
    """Turn text into the bytes a user typed, also where they were no valid UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def render_lines(layout: ColumnLayout, values: Sequence[Sequence[bytes]], rows: int) -> Iterator[bytes]:
    """Give ``rows`` rows, each with its newline; ``values`` holds one sequence per column of the layout."""
    parts: list[Iterable[bytes]] = [repeat(encode(layout.prefix))] if layout.prefix else []
    for column, texts in zip(layout.columns, values, strict=True):
        parts.append(_fit(column, texts))
        if column.suffix:
            parts.append(repeat(encode(column.suffix)))
    parts.append(repeat(b"\n", rows))
    return map(b"".join, zip(*parts, strict=False))


def render_header(layout: ColumnLayout, headers: Sequence[str]) -> bytes:
    """Print the header row."""
    return b"".join(render_lines(layout, [(encode(header),) for header in headers], 1))


def render_times(values: Sequence[bytes], time_format: str = STANDARD_TIME) -> list[bytes]:
    """Print seconds since 1970 in the zone of this process, as Slurm does; a value that is no number stays as it is."""
    if time_format == "%s":
        return list(values)
    if time_format == STANDARD_TIME:
        return _standard_times(values)
    return [
        encode(time.strftime(time_format, time.localtime(int(value)))) if value.isdigit() else value for value in values
    ]


def _fit(column: Column, texts: Sequence[bytes]) -> Sequence[bytes]:
    # Slurm counts bytes, not characters: a width may cut a letter in two.
    width = column.width
    if not width:
        return texts
    if column.is_right:
        return [text[:width].rjust(width) for text in texts]
    return [text[:width].ljust(width) for text in texts]


def _standard_times(values: Sequence[bytes]) -> list[bytes]:
    """Print 2026-01-31T23:59:58, asking for the calendar once per minute: the offset of a zone is whole minutes."""
    minutes: dict[int, bytes] = {}
    texts: list[bytes] = []
    for value in values:
        if not value.isdigit():
            texts.append(value)
            continue
        minute, second = divmod(int(value), 60)
        start = minutes.get(minute)
        if start is None:
            start = minutes[minute] = encode(time.strftime("%Y-%m-%dT%H:%M:", time.localtime(minute * 60)))
        texts.append(b"%b%02d" % (start, second))
    return texts
