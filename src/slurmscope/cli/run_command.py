# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope run``: run a command and report what it used."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, TextIO

import click

from slurmscope.cli.output import (
    USUAL_WIDTH,
    choose_format,
    format_examples,
    format_option,
    page_width,
    wants_color,
    write_error,
    write_text,
)
from slurmscope.core.config import own_environment
from slurmscope.core.errors import ConfigError, OutputError
from slurmscope.core.log import configure, escape
from slurmscope.core.units import format_bytes, format_some, parse_positive_seconds
from slurmscope.jobs.render.formatting import format_elapsed
from slurmscope.jobs.render.text import cut
from slurmscope.jobs.traced_run import TracedRun, TreeSample
from slurmscope.node.gpu.records import DRIVER_SIGNS
from slurmscope.run.context import expand_file_name, host_name, read_context, user_name
from slurmscope.run.delivery import Sample
from slurmscope.run.feed import FeedOptions, SampleFeed, run_and_give, run_and_send, run_and_validate
from slurmscope.run.runner import CommandNotStarted, Runner, RunPlan

FORMATS = ("text", "json", "html")
DEFAULT_SOCKET = Path("/run/slurmscope-node/trace.sock")
WRAPPER_OPTIONS = ("--endpoint", "--sample-rate", "--jobid", "--dry-run", "--verbose", "--validate")
"""Options of the older wrapper script, which may follow the words after its ``--cmd``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChoices:
    """The options as click parses them."""

    command: tuple[str, ...]
    format: str
    output: str | None
    quiet: bool
    live: bool
    sample_rate: float
    endpoint: str | None
    trace_socket: Path
    auth: str
    jobid: int | None
    dry_run: bool
    validate: bool
    verbose: bool
    cmd: bool


class RunCommand(click.Command):
    """Take every word after the first that is no option as the command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as usual; options of the wrapper script may also follow its ``--cmd``."""
        given = list(args)
        rest = super().parse_args(ctx, list(args))
        command: Sequence[str] = ctx.params["command"]
        own = list(takewhile(lambda word: word not in WRAPPER_OPTIONS, command))
        if not ctx.params["cmd"] or len(own) == len(command):
            return rest
        head, tail = given[: len(given) - len(command)], list(command[len(own) :])
        head.remove("--cmd")
        # Older releases of click keep the values of the first parsing.
        ctx.params.clear()
        return super().parse_args(ctx, [*head, *tail, "--cmd", *own])


def run_options() -> list[click.Parameter]:
    """Return the options in the order of the help, and the command as the only argument."""
    return [
        format_option(FORMATS, "text, json or html"),
        click.Option(["--output", "-o"], metavar="FILE", help="Write the report to this file."),
        click.Option(["--quiet", "-q"], is_flag=True, help="Print no report."),
        click.Option(["--live"], is_flag=True, help="Show the current use while the command runs."),
        click.Option(
            ["--sample-rate"], callback=_parse_rate, default="10", envvar="SAMPLE_RATE", metavar="SECONDS",
            help="Longest time between samples. [default: 10]",
        ),
        click.Option(["--endpoint"], envvar="SLURM_EXPORTER", metavar="URL", help="Send samples to this exporter."),
        click.Option(
            ["--trace.socket", "trace_socket"], type=click.Path(path_type=Path), envvar="SLURMSCOPE_TRACE_SOCKET",
            default=DEFAULT_SOCKET, metavar="FILE", help="Socket of the node agent, which is tried first.",
        ),
        click.Option(
            ["--auth"], type=click.Choice(["token", "munge"]), default="token", metavar="METHOD",
            help="Authenticate to the exporter with token or munge. [default: token]",
        ),
        click.Option(["--jobid"], type=click.IntRange(1), metavar="N", help="Job ID, if not in the environment."),
        click.Option(["--dry-run"], is_flag=True, help="Print samples instead of sending them."),
        click.Option(["--validate"], is_flag=True, help="Print one sample and end the command."),
        click.Option(["--verbose"], is_flag=True, help="Print each sample that is sent."),
        click.Option(["--cmd"], is_flag=True, hidden=True),
        click.Argument(["command"], nargs=-1, type=click.UNPROCESSED, metavar="COMMAND [ARGS]..."),
    ]  # fmt: skip


def _parse_rate(ctx: click.Context, param: click.Parameter, given: object) -> float:
    try:
        return parse_positive_seconds(given)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", ctx, param) from error


EARLIEST_SECONDS = 1.0
_CLEAR = "\r\x1b[K"


class LiveLine:
    """Rewrite one line of a terminal with each sample, at most once a second."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._first_seconds = 0.0
        self._before: TreeSample | None = None

    def show(self, sample: TreeSample) -> None:
        """Show a sample; what the command writes to the terminal appears after the line."""
        before = self._before
        if before is None:
            self._first_seconds, self._before = sample.time_seconds, sample
        elif sample.time_seconds - before.time_seconds >= EARLIEST_SECONDS:
            self._before = sample
            self._write(_CLEAR + cut(describe(sample, before, self._first_seconds), page_width(self._stream) - 1))

    def clear(self) -> None:
        self._write(_CLEAR)

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


def describe(sample: TreeSample, before: TreeSample, start_seconds: float) -> str:
    """Format the use since the sample before."""
    cores = (sample.cpu_seconds - before.cpu_seconds) / (sample.time_seconds - before.time_seconds)
    parts = [
        format_elapsed(sample.time_seconds - start_seconds),
        f"{format_some(round(max(0.0, cores), 2), 'core')} busy",
        f"{format_bytes(sample.resident_bytes)} of memory",
        format_some(sample.processes, "process", "processes"),
        format_some(sample.threads, "thread"),
    ]
    return "  ".join(parts)


SIGNAL_CODES = 128
LIVE_SECONDS = 1.0
_RENDER_NODES = Path("/sys/class/drm")
"""GPUs of AMD and Intel have an entry here."""
TOKEN_VARIABLE = "SLURMSCOPE_TRACE_TOKEN"  # noqa: S105 - the name of a variable


def make_run_command() -> click.Command:
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
    if not any(sign.exists() for sign in DRIVER_SIGNS) and not any(_RENDER_NODES.glob("renderD*")):
        return _execute(runner, plan, choices, environment)
    from slurmscope.run.gpu_watch import watch_gpus

    watch = watch_gpus(runner, environment)
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
    from slurmscope.exporter.outputs import write_textfile

    for loss in run.losses if not choices.quiet else ():
        write_error(f"slurmscope: {loss}")
    try:
        write_textfile(file, [_render(run, choices.format, width=USUAL_WIDTH, use_color=False).encode()])
    except OutputError as error:
        write_error(f"slurmscope: {error}")
        write_error(_render(run, "text", width=page_width(sys.stderr), use_color=False))


def _render(run: TracedRun, format: str, *, width: int, use_color: bool) -> str:
    from slurmscope.run.report import make_run_report

    made = make_run_report(run, made_seconds=int(time.time()))
    if format == "json":
        from slurmscope.jobs.render.json import render_run_json

        return render_run_json(made).decode() + "\n"
    if format == "html":
        from slurmscope.run.render import render_run_html

        return render_run_html(made)
    from slurmscope.jobs.render.text import ASCII, BLOCKS
    from slurmscope.run.render import render_run_text

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
