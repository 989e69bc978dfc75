# SPDX-License-Identifier: Apache-2.0
"""Build the commands that run an exporter."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import click

from slurmscope.cli.options import SettingsCommand, make_exporter, options_for
from slurmscope.cli.roles import find_role
from slurmscope.exporter.exporter import run_forever, run_once


def make_exporter_command(name: str) -> click.Command:
    """Build the command of an exporter, with a flag for every setting."""
    once = click.Option(
        ["--once", "is_once"],
        is_flag=True,
        help="Print the metrics once and exit; exit with 1 if a collector failed.",
    )

    def run(*, is_once: bool, **given: object) -> int:
        return run_exporter(name, given, is_once=is_once)

    role = find_role(name)
    return SettingsCommand(
        name,
        callback=run,
        params=[once, *options_for(role.sections())],
        help=role.help,
        examples=(f"slurmscope {name} --once", f"slurmscope {name} --config.file /etc/slurmscope/{name}.toml"),
        shown=role.shown,
    )


def run_exporter(name: str, given: Mapping[str, object], *, is_once: bool = False) -> int:
    """Run the exporter of a role; ``given`` holds the flags by their Python names."""
    exporter = make_exporter(name, given)
    return run_once(exporter, sys.stdout.buffer) if is_once else run_forever(exporter)
