# SPDX-License-Identifier: Apache-2.0
"""Provide slurmscope's commands: each one parses its arguments, then calls one service."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

from slurmscope import __version__
from slurmscope.cli.output import format_examples
from slurmscope.core.config import own_environment
from slurmscope.core.errors import SlurmscopeError
from slurmscope.core.log import escape

_LINE_LIMIT = 10_000

COMMAND_GROUPS = {
    "Exporters": {
        "cluster": "Export cluster metrics to Prometheus; runs on one host.",
        "node": "Export the resource usage of jobs; runs on every compute node.",
    },
    "Reports": {
        "report": "Show what a job requested and used, and suggest changes.",
        "top": "Show running jobs live in the terminal.",
        "run": "Run a command and report what it used.",
        "compare": "Compare two stored reports.",
        "mail": "Mail a job report; also works as Slurm's MailProg.",
        "digest": "Mail weekly usage digests to users and accounts.",
        "rules": "List the rules that check jobs, and test them on the archive.",
        "portal": "Run the web portal with job and cluster pages.",
        "up": "Run exporters, recorder and portal in one process.",
        "demo": "Run slurmscope on a simulated cluster.",
    },
    "Administration": {
        "init": "Set up this host: configuration, units, scrape jobs.",
        "config": "Check and show the configuration.",
        "doctor": "Find out why metrics or pages are missing.",
        "files": "List and copy units, examples, rules and scripts.",
        "migrate": "Compare the metrics of a replaced exporter with those of slurmscope.",
        "database": "Set up read access to Slurm's accounting database.",
        "token": "Create, list and revoke API tokens.",
        "trace": "Create keys and job tokens for tracing.",
        "nodes": "Find nodes on which jobs fail or are slow.",
        "audit": "List which jobs support staff accessed.",
        "archive": "Back up the job archive, foresee its size, and export jobs.",
        "simulate": "Write simulated Slurm commands for testing.",
    },
}
COMMANDS = tuple(name for group in COMMAND_GROUPS.values() for name in group)
_FILES = {
    "up": "portal",
    "digest": "mail",
    "audit": "access",
    "token": "access",
    "files": "init",
    "simulate": "demo",
    "compare": "report",
}
"""Commands whose file has the name of another one."""


class LazyGroup(click.Group):
    """Import a command only when it is used, so that a compute node loads only what it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command and return the command."""
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in COMMAND_GROUPS["Exporters"]:
            from slurmscope.cli.exporter_command import make_exporter_command

            return make_exporter_command(cmd_name)
        module = importlib.import_module(f"slurmscope.cli.{_FILES.get(cmd_name, cmd_name)}_command")
        command: click.Command = getattr(module, f"make_{cmd_name}_command")()
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; suggest the most similar one where there is none of this name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise click.UsageError(f"{error.message}{hint}", ctx) from error

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; exit with 0 instead of 1 when the reader of a pipe has closed it."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Avoid a second BrokenPipeError when the interpreter flushes standard output at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # One column of names for all groups.
        width = max(map(len, COMMANDS))
        for title, commands in COMMAND_GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), summary) for name, summary in commands.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=format_examples("slurmscope demo", "slurmscope report 1234", "slurmscope cluster --help"),
)
@click.version_option(__version__, prog_name="slurmscope")
def slurmscope() -> None:
    """Monitor a Slurm cluster and report what every job really uses."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; turn errors into one line on standard error and an exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = slurmscope.main(given, prog_name="slurmscope", standalone_mode=False)
    except click.ClickException as error:
        _print_usage_error(error)
        code = 2
    except SlurmscopeError as error:
        _print_error(str(error))
        code = 2
    except click.Abort:
        code = 130
    except Exception as error:
        _print_error(f"unexpected error, please report it with the output of SLURMSCOPE_DEBUG=1: {error!r}")
        if own_environment().get("SLURMSCOPE_DEBUG"):
            raise
        code = 70
    sys.exit(code)


def _print_usage_error(error: click.ClickException) -> None:
    """Print the error, or the help of a command group that was called without a command."""
    message = error.format_message()
    if message.startswith("Usage: "):
        click.echo(message, err=True)
        return
    context = error.ctx if isinstance(error, click.UsageError) else None
    ending = "" if message.endswith((".", "?", "!")) else "."
    _print_error(f"{message}{ending} See '{context.command_path} --help'." if context else message)


def _print_error(message: str) -> None:
    for line in message.splitlines():
        # Some of it comes from servers.
        click.echo(f"slurmscope: {escape(line, _LINE_LIMIT)}", err=True)
