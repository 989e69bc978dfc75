# SPDX-License-Identifier: Apache-2.0
"""Offer ``slurmscope doctor``: why is a metric missing?"""

from __future__ import annotations

import click

from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.roles import ROLE_NAMES, find_role
from slurmscope.services.doctor import Examination, examine
from slurmscope.services.exporter import configure_log, enabled_collectors


def make_command() -> click.Command:
    """Build the group; every role takes the same flags as the role itself."""
    group = click.Group("doctor", help="Try everything an exporter would read, and explain what is missing.")
    for name in ROLE_NAMES:
        group.add_command(_role_command(name))
    return group


def _role_command(name: str) -> click.Command:
    role = find_role(name)

    def run(**given: object) -> int:
        config = load_config(name, {**given, "log_level": given.get("log_level") or "error"})
        configure_log(config)
        wiring = role.wire(config)
        try:
            examination = examine(wiring, [e.collector for e in enabled_collectors(role.role, config)])
        finally:
            wiring.close()
        _show(examination)
        return 0 if examination.is_healthy else 1

    return SettingsCommand(
        name,
        callback=run,
        params=options_for(role.sections()),
        help=f"Examine this machine for slurmscope {name}; its flags may be given too. Ends with 1 when something is "
        "missing.",
    )


def _show(examination: Examination) -> None:
    for check in examination.checks:
        mark = click.style("ok     ", fg="green") if check.is_good else click.style("missing", fg="red")
        click.echo(f"{mark}  {check.name}: {check.told}")
        if check.advice:
            click.echo(f"         {check.advice}")
    count = sum(not check.is_good for check in examination.checks)
    click.echo("Nothing is missing." if not count else f"{count} of {len(examination.checks)} are missing.")
