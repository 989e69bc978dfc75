# SPDX-License-Identifier: Apache-2.0
"""Offer slurmscope's commands: each one parses, then makes one call to a service."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

from slurmscope import __version__
from slurmscope.config import own_environment
from slurmscope.errors import SlurmscopeError

COMMANDS = {
    "cluster": "Serve what the controller knows to Prometheus.",
    "node": "Serve what every job on this node uses to Prometheus.",
    "report": "Show what a job used of what it asked for, and what to change.",
    "mail": "Mail the report of a job; also as Slurm's MailProg.",
    "digest": "Mail users and accounts what their jobs of the week used.",
    "rules": "List the rules that jobs are judged by, and try them on the archive.",
    "portal": "Serve web pages about jobs.",
    "up": "Record jobs and serve web pages about them, all in one process.",
    "token": "Give out tokens for scripts and for Prometheus, list them, take them back.",
    "audit": "List what support staff looked at.",
    "doctor": "Explain why a metric is missing.",
    "demo": "Show slurmscope over a simulated cluster.",
    "database": "Let slurmscope read jobs from Slurm's accounting database.",
    "config": "Check and show the configuration.",
    "simulate": "Write commands that answer like those of a Slurm cluster.",
}


class LazyGroup(click.Group):
    """Import a command only when it is used: a node pays for what it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command and return what it offers."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"slurmscope.cli.{cmd_name}_command")
        command: click.Command = module.make_command()
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; a reader of our output that left is no fault, though click would end with 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Keep the interpreter from complaining at its exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="slurmscope")
def slurmscope() -> None:
    """Show what a Slurm cluster and every job on it really do."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; a fault that has a name becomes one sentence and an exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = slurmscope.main(given, prog_name="slurmscope", standalone_mode=False)
    except click.ClickException as error:
        _explain(error)
        code = 2
    except SlurmscopeError as error:
        _complain(str(error))
        code = 2
    except click.Abort:
        code = 130
    except Exception as error:
        _complain(f"this is a bug, please report it with the lines that SLURMSCOPE_DEBUG=1 adds: {error!r}")
        if own_environment().get("SLURMSCOPE_DEBUG"):
            raise
        code = 70
    sys.exit(code)


def _explain(error: click.ClickException) -> None:
    """Tell a fault in one sentence; a command of which nothing but its name was given tells its help."""
    message = error.format_message()
    if message.startswith("Usage: "):
        click.echo(message, err=True)
    else:
        _complain(message)


def _complain(message: str) -> None:
    for line in message.splitlines():
        click.echo(f"slurmscope: {line}", err=True)
