# SPDX-License-Identifier: Apache-2.0
"""Render the script of a job for a terminal, with what to check in it."""

from __future__ import annotations

from collections.abc import Iterator

from slurmscope.log import escape
from slurmscope.model.job_script import JobScript, ScriptFinding
from slurmscope.reports.formatting import show
from slurmscope.reports.text import TextPage

MAX_LINES = 5000
MAX_LINE_CHARACTERS = 2000
CUT = "The script is longer; only its beginning is shown."
NO_FINDINGS = "No problems were found in the script."


def render_script_text(shown_id: str, script: JobScript, *, width: int = 80, use_color: bool = False) -> str:
    """Return the findings, the script with line numbers, and the environment, without escape codes but our own."""
    page = TextPage(width, use_color=use_color)
    lines = [
        *page.top(f"Script of job {show(shown_id, 40)}"),
        *page.heading("Check"),
        *(line for finding in script.findings for line in _finding(page, finding)),
        *(() if script.findings else page.sentence(NO_FINDINGS)),
        *page.heading("Script"),
        *(f"{number:5}  {line}" for number, line in enumerate(show_lines(script.text), 1)),
        *(page.sentence(CUT) if script.is_cut else ()),
        *_environment(page, script),
    ]
    return "\n".join(lines) + "\n"


def show_lines(text: str) -> tuple[str, ...]:
    """Return the lines of a script, safe to show: unprintable characters are escaped."""
    lines = text.rstrip("\n").split("\n")[:MAX_LINES]
    return tuple(escape(line.expandtabs(8), MAX_LINE_CHARACTERS) for line in lines)


def _finding(page: TextPage, finding: ScriptFinding) -> Iterator[str]:
    where = "" if finding.line is None else f"Line {finding.line}: "
    yield from page.sentence(f"{where}{show(finding.title)}.")
    yield from page.sentence(f"    {show(finding.advice)}")


def _environment(page: TextPage, script: JobScript) -> Iterator[str]:
    if not script.environment:
        return
    yield from page.heading("Environment at submission")
    for variable in script.environment:
        if variable.value is not None:
            yield from page.sentence(f"{variable.name}={show(variable.value)}")
    names = [variable.name for variable in script.environment if variable.value is None]
    if names:
        yield from page.sentence(f"Without their values, which may be secret: {', '.join(names)}")
