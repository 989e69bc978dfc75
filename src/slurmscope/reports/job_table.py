# SPDX-License-Identifier: Apache-2.0
"""Render several jobs, or the tasks of a job array, as a table: for a terminal, as JSON or as CSV.

::

    Array 15: relax, 3 tasks (2 COMPLETED, 1 TIMEOUT)

    Task  State      Run time    CPU  Memory  Findings
    15_1  COMPLETED       2 h   50 %    12 %         1

::

    Job   Name   State      Submitted (CET)   Run time   CPU  Memory  Findings
    4711  relax  COMPLETED  2026-03-01 08:15       2 h  50 %    10 %  Cores were idle, and 1 more
"""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, tzinfo
from typing import NamedTuple

from slurmscope.archive.job_columns import JobRow
from slurmscope.core.log import escape
from slurmscope.core.units import NOT_MEASURED, format_ratio, format_seconds, format_some
from slurmscope.jobs.render.formatting import in_zone, show
from slurmscope.jobs.render.json import as_plain, encode_json
from slurmscope.jobs.render.text import MAX_WIDTH, MIN_WIDTH, cut, lay_table, measure, pad, wrap
from slurmscope.jobs.rule import Severity

# The full-width forms of these characters start formulas too, in East Asian versions of spreadsheets.
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")

Cell = str | int | float | bool | tuple[str, ...] | None
"""What a table holds; several texts are separated by blanks in CSV, and a list in JSON."""


def render_csv_rows(rows: Iterable[tuple[Cell, ...]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerows([_escape_formula(cell) for cell in row] for row in rows)
    return stream.getvalue()


def _escape_formula(cell: Cell) -> Cell:
    if isinstance(cell, tuple):
        cell = " ".join(cell)
    if not isinstance(cell, str):
        return cell
    return f"'{escape(cell)}" if _FORMULA.match(cell) else escape(cell)


_BOLD, _RESET = "\x1b[1m", "\x1b[0m"
_COLORS = {Severity.CRITICAL: "\x1b[1;31m", Severity.WARNING: "\x1b[33m", Severity.INFO: "\x1b[36m"}
_NAME_COLUMNS = 16
_FINDINGS_COLUMNS = 16
"""The least room for findings: before there is less, other columns are left out."""
_NOTHING = "–"


class _Column(NamedTuple):
    head: str
    is_right: bool
    rank: int
    """Columns of the highest rank are left out first where the terminal is narrow."""
    text: Callable[[JobRow], str]


def render_job_table(
    rows: Sequence[JobRow],
    *,
    width: int = 80,
    use_color: bool = False,
    notes: Sequence[str] = (),
    titles: Callable[[str], str] = str,
    zone: tzinfo | None = UTC,
) -> str:
    """Return a table of jobs in lines of at most ``width`` columns, and sentences below it.

    ``titles`` returns the title of a rule by its name. Times are in ``zone``; None is the time zone of this host.
    """
    width = max(MIN_WIDTH, min(width, MAX_WIDTH))
    columns = _fit(_columns(rows, zone), rows, width)
    widths = [max(measure(column.head), *(measure(column.text(row)) for row in rows)) for column in columns]
    heads = "  ".join(
        pad(column.head, width, is_right=column.is_right) for column, width in zip(columns, widths, strict=True)
    )
    lines = [_paint(f"{heads}  Findings", _BOLD, use_color=use_color)]
    for row in rows:
        cells = (pad(c.text(row), w, is_right=c.is_right) for c, w in zip(columns, widths, strict=True))
        begin = "  ".join(cells) + "  "
        found = cut(_describe_findings(row, titles), width - measure(begin))
        lines.append(begin + _paint(found, _COLORS.get(row.worst, "") if row.worst else "", use_color=use_color))
    below = [line for note in notes for line in wrap(note, width)]
    return "\n".join([*(line.rstrip() for line in lines), "", *below]).rstrip("\n") + "\n"


def render_job_table_json(rows: Sequence[JobRow], *, is_cut: bool) -> bytes:
    """Return the rows as one JSON object; what was not measured is null."""
    return encode_json({"jobs": as_plain(tuple(rows)), "is_cut": is_cut})


def render_job_table_csv(rows: Sequence[JobRow]) -> str:
    """Return the rows as CSV; what was not measured is an empty cell."""
    names = tuple(field.name for field in dataclasses.fields(JobRow))
    return render_csv_rows((names, *(tuple(_cell(getattr(row, name)) for name in names) for row in rows)))


def _columns(rows: Sequence[JobRow], zone: tzinfo | None) -> list[_Column]:
    def submitted(row: JobRow) -> str:
        moment = in_zone(row.submit_seconds, zone)
        return f"{moment:%Y-%m-%d %H:%M}" if moment else _NOTHING

    found = [
        _Column("Job", False, 0, lambda row: show(row.shown_id, 30)),
        _Column("Name", False, 1, lambda row: cut(show(row.name, 100), _NAME_COLUMNS)),
        _Column("State", False, 1, lambda row: show(row.state, 20)),
        _Column(f"Submitted ({_name_zone(rows, zone)})", False, 4, submitted),
        _Column("Run time", True, 3, _run_time),
        _Column("CPU", True, 2, lambda row: _share(row.cpu_ratio)),
        _Column("Memory", True, 2, lambda row: _share(row.memory_ratio)),
    ]
    if len({row.cluster for row in rows}) > 1:
        found.insert(1, _Column("Cluster", False, 0, lambda row: cut(show(row.cluster, 64), _NAME_COLUMNS)))
    if any(row.gpus for row in rows):
        found.append(_Column("GPU", True, 2, lambda row: _share(row.gpu_ratio)))
    if len({row.user for row in rows}) > 1:
        found.append(_Column("User", False, 5, lambda row: cut(show(row.user, 100), _NAME_COLUMNS)))
    return found


def _name_zone(rows: Sequence[JobRow], zone: tzinfo | None) -> str:
    """Return the name of a time zone at the newest submission."""
    moment = in_zone(max(row.submit_seconds for row in rows), zone)
    return f"{moment:%Z}" if moment else "UTC"


def _fit(columns: list[_Column], rows: Sequence[JobRow], width: int) -> list[_Column]:
    """Leave out columns until there is room for the findings."""

    def taken() -> int:
        return sum(max(measure(c.head), *(measure(c.text(row)) for row in rows)) + 2 for c in columns)

    while len(columns) > 1 and taken() + _FINDINGS_COLUMNS > width:
        least = max(column.rank for column in columns)
        columns = [column for column in columns if column.rank < least]
    return columns


def _describe_findings(row: JobRow, titles: Callable[[str], str]) -> str:
    if not row.rules:
        return "too short to judge" if row.is_too_short and row.end_seconds is not None else _NOTHING
    first = show(titles(row.rules[0]), 200)
    return f"{first}, and {len(row.rules) - 1} more" if len(row.rules) > 1 else first


def _run_time(row: JobRow) -> str:
    return format_seconds(row.run_seconds) if row.start_seconds is not None else _NOTHING


def _share(ratio: float | None) -> str:
    text = format_ratio(ratio)
    return _NOTHING if text == NOT_MEASURED else text


def _cell(value: object) -> Cell:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return value if value is None or isinstance(value, int | float) else str(value)


def _paint(text: str, code: str, *, use_color: bool) -> str:
    return f"{code}{text}{_RESET}" if use_color and code else text


_HEAD = ("Task", "State", "Run time", "CPU", "Memory", "Findings")


def render_array_text(
    array_id: str, tasks: Sequence[JobRow], *, cluster: str = "", width: int = 80, use_color: bool = False
) -> str:
    """Return a table of the tasks in lines of at most ``width`` columns; it names the cluster if one was chosen."""
    width = max(MIN_WIDTH, min(width, MAX_WIDTH))
    states = Counter[str]()
    for task in tasks:
        states[task.state] += task.array_tasks
    counted = ", ".join(f"{count:,} {show(state, 40)}" for state, count in states.most_common())
    where, option = (f" on {cluster}", f" -M {cluster}") if cluster else ("", "")
    title = f"Array {array_id}{where}: {show(tasks[0].name, 100)}, {format_some(states.total(), 'task')} ({counted})"
    heading = cut(title, width)
    example = next((task for task in tasks if task.rules), tasks[0])
    lines = [
        f"{_BOLD}{heading}{_RESET}" if use_color else heading,
        "",
        *lay_table(_HEAD, [_row(task) for task in tasks], width),
        "",
        *wrap(f"The report of one task: slurmscope report {example.shown_id}{option}", width),
    ]
    return "\n".join(lines) + "\n"


def _row(task: JobRow) -> tuple[str, ...]:
    waiting = f"{task.array_tasks:,} not started" if task.array_tasks > 1 else "not started"
    return (
        waiting if task.shown_id == str(task.array_job_id) else show(task.shown_id, 30),
        show(task.state, 20),
        _run_time(task),
        _share(task.cpu_ratio),
        _share(task.memory_ratio),
        str(len(task.rules)) if task.rules else "–",
    )
