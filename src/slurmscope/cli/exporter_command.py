# SPDX-License-Identifier: Apache-2.0
"""Build the commands that run an exporter."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import click

from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.roles import find_role
from slurmscope.services.exporter.exporter import Exporter, run_forever, run_once


def make_exporter_command(name: str) -> click.Command:
    """Build the command of a role, with a flag for every setting."""
    once = click.Option(
        ["--once", "is_once"],
        is_flag=True,
        help="Write one page to standard output and end: with 0, or with 1 when a collector failed.",
    )

    def run(*, is_once: bool, **given: object) -> int:
        return run_exporter(name, given, is_once=is_once)

    role = find_role(name)
    return SettingsCommand(name, callback=run, params=[once, *options_for(role.sections())], help=role.help)


def run_exporter(name: str, given: Mapping[str, object], *, is_once: bool = False) -> int:
    """Run the exporter of a role with the flags that were given, by their Python names."""
    role = find_role(name)
    exporter = Exporter(role=role.role, load=lambda: load_config(name, given), make_readings=role.make_readings)
    return run_once(exporter, sys.stdout.buffer) if is_once else run_forever(exporter)
