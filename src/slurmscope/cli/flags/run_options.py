# SPDX-License-Identifier: Apache-2.0
"""Declare the options of ``slurmscope run``, with those of the wrapper script that it replaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import click

from slurmscope.cli.output.report_format import format_option
from slurmscope.units import parse_positive_seconds

FORMATS = ("text", "json", "html")
DEFAULT_SOCKET = Path("/run/slurmscope-node/trace.sock")
WRAPPER_OPTIONS = ("--endpoint", "--sample-rate", "--jobid", "--dry-run", "--verbose", "--validate")
"""Options of the older wrapper script, which may follow the words after its ``--cmd``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChoices:
    """Hold the options as click parses them."""

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
