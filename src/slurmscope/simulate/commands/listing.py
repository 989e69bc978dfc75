# SPDX-License-Identifier: Apache-2.0
"""Answer the arguments that squeue and sinfo have in common: options, columns, header, version."""

from __future__ import annotations

import getopt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from slurmscope.simulate.commands.formats import Column, ColumnLayout, parse_long_format, parse_short_format
from slurmscope.simulate.commands.table import encode, render_header

if TYPE_CHECKING:
    # A fake command never needs the records, and making their classes would double its start-up.
    from slurmscope.simulate.cluster.records import SimulatedCluster

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
