# SPDX-License-Identifier: Apache-2.0
"""Offer ``slurmscope doctor``: why is a metric missing?"""

from __future__ import annotations

from collections.abc import Mapping

import click

from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.roles import ROLE_NAMES, find_role, find_sections
from slurmscope.config import Config, own_environment
from slurmscope.services.exporter.doctor import Examination, examine
from slurmscope.services.exporter.exporter import configure_log, enabled_collectors


def make_command() -> click.Command:
    """Build the group; every role takes the same flags as the role itself."""
    group = click.Group("doctor", help="Try everything an exporter would read, and explain what is missing.")
    for name in ROLE_NAMES:
        group.add_command(_role_command(name))
    group.add_command(_portal_command())
    return group


def _role_command(name: str) -> click.Command:
    role = find_role(name)

    def run(**given: object) -> int:
        config = _load_quietly(name, given)
        wiring = role.wire(config)
        try:
            examination = examine(wiring, [e.collector for e in enabled_collectors(role.role, config)])
        finally:
            wiring.close()
        return _show(examination)

    return SettingsCommand(name, callback=run, params=options_for(role.sections()), help=_help(name))


def _portal_command() -> click.Command:
    def run(**given: object) -> int:
        from slurmscope.services.reporting.checks import examine_portal

        return _show(examine_portal(_load_quietly("portal", given), own_environment()))

    return SettingsCommand("portal", callback=run, params=options_for(find_sections("portal")), help=_help("portal"))


def _help(name: str) -> str:
    what = f"Examine this machine for slurmscope {name}; its flags may be given too."
    return f"{what} Ends with 1 when something is missing."


def _load_quietly(name: str, given: Mapping[str, object]) -> Config:
    config = load_config(name, {**given, "log_level": given.get("log_level") or "error"})
    configure_log(config)
    return config


def _show(examination: Examination) -> int:
    for check in examination.checks:
        mark = click.style("ok     ", fg="green") if check.is_good else click.style("missing", fg="red")
        click.echo(f"{mark}  {check.name}: {check.message}")
        if check.advice:
            click.echo(f"         {check.advice}")
    count = sum(not check.is_good for check in examination.checks)
    click.echo("Nothing is missing." if not count else f"{count} of {len(examination.checks)} are missing.")
    return 0 if examination.is_healthy else 1
