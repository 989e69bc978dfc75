# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope run``: run a command and report what it used."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from slurmscope.cli.examples import format_examples
from slurmscope.cli.flags.run_options import FORMATS, RunChoices, RunCommand, run_options
from slurmscope.cli.output.live_line import LiveLine
from slurmscope.cli.output.report_format import choose_format
from slurmscope.cli.output.terminal import USUAL_WIDTH, page_width, wants_color, write_error, write_text
from slurmscope.config import own_environment
from slurmscope.errors import ConfigError, OutputError
from slurmscope.log import configure, escape
from slurmscope.model.traced_run import TracedRun
from slurmscope.services.run.context import expand_file_name, host_name, read_context, user_name
from slurmscope.services.run.feed import FeedOptions, SampleFeed, run_and_give, run_and_send, run_and_validate
from slurmscope.services.run.launching import CommandNotStarted
from slurmscope.services.run.runner import Runner, RunPlan
from slurmscope.services.run.wire import Sample
from slurmscope.sources.gpu.nvml.driver import DRIVER_SIGNS

SIGNAL_CODES = 128
LIVE_SECONDS = 1.0
TOKEN_VARIABLE = "SLURMSCOPE_TRACE_TOKEN"  # noqa: S105 - the name of a variable


def make_command() -> click.Command:
    """Build the command."""
    return RunCommand(
        "run",
        callback=_run_given,
        params=run_options(),
        help="Run COMMAND, measure it with all processes that it starts, and report what it used. The exit code "
        "is that of COMMAND.",
        epilog=format_examples("slurmscope run -- make test", "slurmscope run -o run.json -- ./train.sh"),
        context_settings={"allow_interspersed_args": False},
    )


def _run_given(*, format: str | None, output: str | None, **given: Any) -> int:
    return _run(RunChoices(format=choose_format(format, output, FORMATS), output=output, **given))


def _run(choices: RunChoices) -> int:
    if not choices.command:
        raise click.UsageError("Name the command to run: slurmscope run -- COMMAND.")
    configure("warn", "logfmt", sys.stderr)  # with the cause of each problem
    environment = own_environment()
    plan = _make_plan(choices, environment)
    file = _find_file(choices.output, plan)
    runner = Runner(plan)
    try:
        run = _execute_with_gpus(runner, plan, choices, environment)
        # Signals that end the command must not end its report.
        return 0 if choices.validate else _report(run, choices, file)
    except CommandNotStarted as error:
        write_error(f"slurmscope: {error}")
        return error.code
    finally:
        runner.close()


def _make_plan(choices: RunChoices, environment: Mapping[str, str]) -> RunPlan:
    rate = choices.sample_rate
    return RunPlan(
        command=choices.command,
        environment=environment,
        host=host_name(environment),
        user=user_name(environment),
        slurm=read_context(environment, choices.jobid),
        sample_rate=min(rate, LIVE_SECONDS) if choices.live else rate,
    )


def _find_file(output: str | None, plan: RunPlan) -> Path | None:
    """Return the file for the report; fail before the command runs, not after hours of work."""
    if not output:
        return None
    file = Path(expand_file_name(output, slurm=plan.slurm, host=plan.host, user=plan.user))
    # Unlike Path.is_dir, these do not fail for a folder that we may not enter.
    if os.path.isdir(file) or not os.access(file.parent, os.W_OK | os.X_OK) or not os.path.isdir(file.parent):  # noqa: PTH112
        raise ConfigError(f"cannot write {escape(str(file))}; name a file in a folder that exists and is writable")
    return file


def _execute_with_gpus(runner: Runner, plan: RunPlan, choices: RunChoices, environment: Mapping[str, str]) -> TracedRun:
    """Run the command, and watch its GPUs where there is a driver; elsewhere nothing that reads GPUs is imported."""
    if not any(sign.exists() for sign in DRIVER_SIGNS):
        return _execute(runner, plan, choices, environment)
    from slurmscope.services.run.gpu_watch import watch_gpus

    watch = watch_gpus(runner, environment, plan.sample_rate)
    runner.starters.append(watch.start)
    return replace(_execute(runner, plan, choices, environment), gpu_samples=watch.end())


def _execute(runner: Runner, plan: RunPlan, choices: RunChoices, environment: Mapping[str, str]) -> TracedRun:
    """Run the command, and show, send or print its samples meanwhile."""
    if choices.live and sys.stderr and sys.stderr.isatty():
        line = LiveLine(sys.stderr)
        runner.on_sample, runner.on_end = line.show, line.clear
    if choices.validate:
        show = partial(_print_sample, is_result=True)
        return run_and_validate(runner, SampleFeed(runner, plan, choices.sample_rate, show))
    if choices.dry_run:
        return run_and_give(runner, SampleFeed(runner, plan, choices.sample_rate, _print_sample))
    options = FeedOptions(
        endpoint=choices.endpoint or "",
        socket=choices.trace_socket,
        token=environment.get(TOKEN_VARIABLE, ""),
        use_munge=choices.auth == "munge",
    )
    show_attempt = _print_attempt if choices.verbose else _print_nothing
    return run_and_send(runner, plan, options, choices.sample_rate, show_attempt)


def _report(run: TracedRun, choices: RunChoices, file: Path | None) -> int:
    """Write the report, and return the exit code of the command whatever happens here."""
    try:
        if file is not None:
            _store(run, choices, file)
        elif not choices.quiet:
            width, use_color = page_width(sys.stderr), wants_color(stream=sys.stderr)
            write_error(_render(run, choices.format, width=width, use_color=use_color))
    except Exception as error:  # noqa: BLE001 - a fault of ours must not look like one of the command
        write_error(f"slurmscope: the report could not be made, please report this: {error!r}")
    return SIGNAL_CODES + run.exit_signal if run.exit_signal else run.exit_code


def _store(run: TracedRun, choices: RunChoices, file: Path) -> None:
    from slurmscope.outputs.textfile import write_textfile

    for loss in run.losses if not choices.quiet else ():
        write_error(f"slurmscope: {loss}")
    try:
        write_textfile(file, [_render(run, choices.format, width=USUAL_WIDTH, use_color=False).encode()])
    except OutputError as error:
        write_error(f"slurmscope: {error}")
        write_error(_render(run, "text", width=page_width(sys.stderr), use_color=False))


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
        marks.encode(getattr(sys.stderr, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _print_sample(sample: Sample, *, is_result: bool = False) -> None:
    """Print a sample: the result of --validate to standard output, others beside the output of the command."""
    line = json.dumps(sample)
    if is_result:
        write_text(line)
    else:
        write_error(line)


def _print_attempt(line: str) -> None:
    write_error(f"slurmscope: {line}")


def _print_nothing(_line: str) -> None:
    """Ignore what was sent."""
