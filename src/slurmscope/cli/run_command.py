# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope run``: run a command and report what it used."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

import click

from slurmscope.cli.examples import format_examples
from slurmscope.cli.run_options import RunCommand, run_options
from slurmscope.cli.terminal import USUAL_WIDTH, page_width, wants_color
from slurmscope.config import own_environment
from slurmscope.errors import ConfigError, OutputError
from slurmscope.log import escape
from slurmscope.model.traced_run import TracedRun
from slurmscope.services.run.context import expand_file_name, host_name, read_context, user_name
from slurmscope.services.run.launching import CommandNotStarted
from slurmscope.services.run.runner import Runner, RunPlan

SIGNAL_CODES = 128


def make_command() -> click.Command:
    """Build the command."""
    return RunCommand(
        "run",
        callback=_run,
        params=run_options(),
        help="Run COMMAND, measure it with all processes that it starts, and report what it used. The exit code "
        "is that of COMMAND.",
        epilog=format_examples("slurmscope run -- make test", "slurmscope run -f json -o run.json -- ./train.sh"),
        context_settings={"allow_interspersed_args": False},
    )


def _run(*, command: tuple[str, ...], format: str, output: str | None, quiet: bool, **options: object) -> int:
    if not command:
        raise click.UsageError("Name the command to run: slurmscope run -- COMMAND.")
    environment = own_environment()
    slurm = read_context(environment)
    host, user = host_name(environment), user_name(environment)
    file = Path(expand_file_name(output, slurm=slurm, host=host, user=user)) if output else None
    if file is not None:
        _check_writable(file)
    rate = options["sample_rate"]
    plan = RunPlan(
        command=command,
        environment=environment,
        host=host,
        user=user,
        slurm=slurm,
        sample_rate=rate if isinstance(rate, float) else 10.0,
    )
    try:
        run = Runner(plan).run()
    except CommandNotStarted as error:
        _print(f"slurmscope: {error}")
        return error.code
    if not quiet or file is not None:
        _report(run, format, file)
    return SIGNAL_CODES + run.exit_signal if run.exit_signal else run.exit_code


def _check_writable(file: Path) -> None:
    """Fail before the command runs, not after hours of work."""
    folder = file.parent
    if file.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"cannot write {escape(str(file))}; name a file in a folder that exists and is writable")


def _report(run: TracedRun, format: str, file: Path | None) -> None:
    """Write the report; whatever happens here, the exit code stays that of the command."""
    if file is None:
        _print(_render(run, format, width=page_width(sys.stderr), use_color=wants_color(stream=sys.stderr)))
        return
    from slurmscope.outputs.textfile import write_textfile

    try:
        write_textfile(file, [_render(run, format, width=USUAL_WIDTH, use_color=False).encode()])
    except OutputError as error:
        _print(f"slurmscope: {error}")
        _print(_render(run, "text", width=page_width(sys.stderr), use_color=False))


def _render(run: TracedRun, format: str, *, width: int, use_color: bool) -> str:
    from slurmscope.services.run.reporting import make_run_report

    made = make_run_report(run, made_seconds=int(time.time()))
    if format == "json":
        from slurmscope.reports.json import render_run_json

        return render_run_json(made).decode() + "\n"
    if format == "html":
        from slurmscope.reports.run_html import render_run_html

        return render_run_html(made)
    from slurmscope.reports.run_text import render_run_text
    from slurmscope.reports.sparkline import ASCII, BLOCKS

    return render_run_text(made, width=width, use_color=use_color, marks=BLOCKS if _has_blocks(BLOCKS) else ASCII)


def _has_blocks(marks: str) -> bool:
    try:
        marks.encode(sys.stderr.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _print(text: str) -> None:
    """Write to standard error; a reader that has gone does not matter."""
    ended = text if text.endswith("\n") else text + "\n"
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.buffer.write(ended.encode(sys.stderr.encoding or "utf-8", "replace"))
        sys.stderr.flush()
