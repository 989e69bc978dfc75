# SPDX-License-Identifier: Apache-2.0
"""Print the tables of simulated commands in the formats that are requested of them.

``-O`` takes ``Field:suffix,Field:.8,Field``: after the colon come an optional ``.`` (right-justified), an optional
width and a suffix of any text without a comma. A colon without a width means "as wide as needed", no colon at all means
20 characters.

``-o`` takes ``text%i|%.8j``: each ``%`` is followed by the same width, one letter and a suffix.

Everything works on whole columns: a hundred thousand rows are normal here, and row by row they cost several times more.
"""

from __future__ import annotations

import getopt
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from slurmscope.simulator.cluster.records import SimulatedCluster


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


VERSION = "slurm 22.05.8"

# Exit code, standard output, standard error.
CommandResult: TypeAlias = tuple[int, bytes, bytes]

# Gives a column by its name: one value per record. Columns come from a cluster in memory or from files.
ReadColumn: TypeAlias = Callable[[str], Sequence[bytes]]

ListedRecord = TypeVar("ListedRecord")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field(Generic[ListedRecord]):
    """Hold the header of a field and its text; ``text_at`` is for what depends on the moment (seconds since 1970)."""

    header: str
    text: Callable[[ListedRecord], str] = str
    text_at: Callable[[ListedRecord, int], str] | None = None
    is_time: bool = False

    def of(self, record: ListedRecord, now: int) -> str:
        """Return the text of this field for one record."""
        return self.text(record) if self.text_at is None else self.text_at(record, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Hold what a fake command needs: the columns to store once, and how to answer from them."""

    name: str
    columns: tuple[str, ...]
    column: Callable[[SimulatedCluster, str], list[bytes]]
    respond: Callable[[ReadColumn, Sequence[str], Mapping[str, str]], CommandResult]

    def answer(
        self, cluster: SimulatedCluster, argv: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> CommandResult:
        """Answer ``argv`` (without the command's own name) straight from a cluster in memory."""
        return self.respond(lambda name: self.column(cluster, name), argv, environment or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Hold the options of one call; ``values`` has the last value of each option, by its long name."""

    values: Mapping[str, str]

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def names(self, option: str) -> frozenset[str] | None:
        """Return the names of a comma-separated filter, or None when the filter was not given."""
        return frozenset(self.values[option].split(",")) if option in self.values else None


class UsageError(Exception):
    """Report wrong usage."""


def parse_options(argv: Sequence[str], letters: Mapping[str, str]) -> Options:
    """Parse options; ``letters`` maps "t:" or "h" to long names, a colon means that a value follows."""
    short = "".join(letter for letter in letters if len(letter.rstrip(":")) == 1)
    long = [name + "=" if letter.endswith(":") else name for letter, name in letters.items()]
    by_letter = {"-" + letter.rstrip(":"): name for letter, name in letters.items()}
    try:
        found, rest = getopt.gnu_getopt(list(argv), short, long)
    except getopt.GetoptError as error:
        raise UsageError(error.msg) from error
    if rest:
        raise UsageError(f"unexpected argument {rest[0]!r}")
    return Options(values={by_letter.get(option, option.lstrip("-")): value for option, value in found})


def choose_layout(options: Options, default: str) -> tuple[ColumnLayout, bool]:
    """Return the requested layout, and whether its columns are named by letters."""
    if "Format" in options and "format" in options:
        raise UsageError("-o and -O exclude each other")
    if "Format" in options:
        return parse_long_format(options.values["Format"]), False
    return parse_short_format(options.values.get("format", default)), True


def name_columns(
    command: str, layout: ColumnLayout, fields: Mapping[str, Field[ListedRecord]], letters: Mapping[str, str] | None
) -> tuple[ColumnLayout, bytes]:
    """Turn typed names or letters into keys of ``fields``; return complaints about those that are none.

    The real commands complain on standard error about an unknown field, print an empty column for it and still exit
    with 0. An unknown letter of ``-o`` is printed as it was typed.
    """
    columns: list[Column] = []
    complaints = b""
    for column in layout.columns:
        key = column.name.lower() if letters is None else letters.get(column.name, "")
        if key not in fields:
            complaints += encode(f"{command}: error: no such field: {column.name}\n")
            key = "" if letters is None else "%" if column.name == "%" else f"%{column.name}"
        columns.append(Column(name=key, width=column.width, is_right=column.is_right, suffix=column.suffix))
    return ColumnLayout(columns=tuple(columns), prefix=layout.prefix), complaints


def header_of(layout: ColumnLayout, fields: Mapping[str, Field[ListedRecord]]) -> bytes:
    """Print the header row of a layout whose columns are named."""
    return render_header(
        layout, [fields[column.name].header if column.name in fields else column.name for column in layout.columns]
    )


def refuse(command: str, error: Exception) -> CommandResult:
    """Answer wrong usage the way the real commands do: exit code 1, a hint on standard error."""
    return 1, b"", encode(f"{command}: error: {error}\n{command}: see its manual page for the options\n")


def version_answer() -> CommandResult:
    """Answer ``--version``."""
    return 0, encode(VERSION + "\n"), b""
