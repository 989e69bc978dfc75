# SPDX-License-Identifier: Apache-2.0
"""Render the tasks of a job array for a terminal.

::

    Array 15: relax, 3 tasks (2 COMPLETED, 1 TIMEOUT)

    Task  State      Run time    CPU  Memory  Findings
    15_1  COMPLETED       2 h   50 %    12 %         1
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from slurmscope.figures import NOT_MEASURED, format_ratio, format_seconds, format_some
from slurmscope.model.archive import JobRow
from slurmscope.reports.columns import cut, lay_table, wrap
from slurmscope.reports.formatting import show
from slurmscope.reports.text import MAX_WIDTH, MIN_WIDTH

_HEAD = ("Task", "State", "Run time", "CPU", "Memory", "Findings")
_BOLD, _RESET = "\x1b[1m", "\x1b[0m"


def render_array_text(
    array_id: str, tasks: Sequence[JobRow], *, cluster: str = "", width: int = 80, use_color: bool = False
) -> str:
    """Return a table of the tasks in lines of at most ``width`` columns; it names the cluster if one was chosen."""
    width = max(MIN_WIDTH, min(width, MAX_WIDTH))
    states = Counter(task.state for task in tasks)
    counted = ", ".join(f"{count:,} {show(state, 40)}" for state, count in states.most_common())
    where, option = (f" on {cluster}", f" -M {cluster}") if cluster else ("", "")
    title = f"Array {array_id}{where}: {show(tasks[0].name, 100)}, {format_some(len(tasks), 'task')} ({counted})"
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
    return (
        "not started" if task.shown_id == str(task.array_job_id) else show(task.shown_id, 30),
        show(task.state, 20),
        format_seconds(task.run_seconds) if task.start_seconds is not None else "–",
        _share(task.cpu_ratio),
        _share(task.memory_ratio),
        str(len(task.rules)) if task.rules else "–",
    )


def _share(ratio: float | None) -> str:
    text = format_ratio(ratio)
    return "–" if text == NOT_MEASURED else text
