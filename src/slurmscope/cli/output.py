# SPDX-License-Identifier: Apache-2.0
"""Choose the format of a report: the one that was named, or else that of the file's extension."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

import click

from slurmscope.core.check import Check, find_root_cause
from slurmscope.core.config import own_environment


def format_examples(*commands: str) -> str:
    """Format the end of a help text: example command lines."""
    # \b keeps click from wrapping the paragraph.
    return "\b\nExamples:\n" + "\n".join(f"  {command}" for command in commands)


USUAL_WIDTH = 80
MIN_WIDTH = 40
MAX_WIDTH = 120


def write_text(text: str) -> None:
    """Write text in the encoding of the terminal; unsupported characters become question marks."""
    ended = text if text.endswith("\n") else text + "\n"
    write_bytes(ended.encode(sys.stdout.encoding or "utf-8", "replace"))


def write_bytes(content: bytes) -> None:
    """Write bytes and flush."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def write_error(text: str) -> None:
    """Write text to standard error; a reader that has gone does not matter."""
    ended = text if text.endswith("\n") else text + "\n"
    # Python has no stream for a descriptor that was closed before it started.
    with contextlib.suppress(ValueError, AttributeError):
        try:
            sys.stderr.buffer.write(ended.encode(sys.stderr.encoding or "utf-8", "replace"))
            sys.stderr.flush()
        except OSError:
            _discard_errors()


def _discard_errors() -> None:
    """Let what is left in the buffer of standard error go nowhere: at exit, Python would fail with code 120."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stderr.fileno())
    os.close(nowhere)


def page_width(stream: TextIO | None = None) -> int:
    """Return the maximum number of columns per line, on standard output or another stream."""
    if not (stream or sys.stdout).isatty():
        return USUAL_WIDTH
    import shutil  # which loads three compressors

    return max(MIN_WIDTH, min(shutil.get_terminal_size((USUAL_WIDTH, 24)).columns, MAX_WIDTH))


def wants_color(choice: str = "auto", stream: TextIO | None = None) -> bool:
    """Return whether to use colors: always, never, or (auto) on terminals unless NO_COLOR is set."""
    if choice != "auto":
        return choice == "always"
    environment = own_environment()
    return (stream or sys.stdout).isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def show_checks(checks: Iterable[Check]) -> bool:
    """Print checks, which to begin with, and a summary; return whether all of them passed."""
    shown = list(checks)
    for check in shown:
        click.echo(f"{click.style(f'{check.status:6}', fg=_COLORS[check.status])}  {check.name}: {check.message}")
        if check.advice:
            click.echo(f"        {check.advice}")
    failed = sum(not check.is_good for check in shown)
    root = find_root_cause(shown)
    if root is not None:
        click.echo(f"Begin with {root.name}; other failures may follow from it: {root.message}")
        click.echo(f"        {root.advice}")
    click.echo(f"{failed} of {len(shown)} checks failed; see above." if failed else "All checks passed.")
    return not failed


_COLORS = {"ok": "green", "note": "yellow", "failed": "red"}


def option(names: str, metavar: str | None, help: str, type: object = None, **more: Any) -> click.Option:
    """Declare an option that takes a value; its help shows the default, if there is one."""
    shows_default = more.get("default") not in (None, "")
    return click.Option(names.split(), metavar=metavar, help=help, type=type, show_default=shows_default, **more)


def flag(names: str, help: str) -> click.Option:
    return click.Option(names.split(), is_flag=True, help=help)


def format_option(formats: Sequence[str], listing: str) -> click.Option:
    """Declare ``--format``; ``listing`` names the formats in the help."""
    text = f"{listing}. [default: extension of --output, or text]"
    return option("--format -f", "FORMAT", text, click.Choice(formats))


def choose_format(named: str | None, output: str | Path | None, formats: Sequence[str]) -> str:
    """Return the named format, or that of a file such as report.html, or text."""
    ending = Path(output).suffix[1:].lower() if output else ""
    return named or (ending if ending in formats else "text")
