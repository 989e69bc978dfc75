# SPDX-License-Identifier: Apache-2.0
"""Offer ``slurmscope database``: open Slurm's accounting database to slurmscope, and prove that no more is open."""

from __future__ import annotations

import os
from collections.abc import Callable

import click

from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.config import Config
from slurmscope.model.check import Check
from slurmscope.services.database.check import check
from slurmscope.services.database.grant import GrantSettings, database_sections, grant, revoke
from slurmscope.sources.accounting.settings import AccountingSettings


def make_command() -> click.Command:
    """Build the group."""
    group = click.Group("database", help="Let slurmscope read jobs from Slurm's accounting database, and only those.")
    group.add_command(
        _command(
            "grant",
            _grant,
            "Make views of jobs and a user that may read them and nothing else. Run it as administrator of the "
            "database, as often as you like: after a new cluster, a new release of Slurm, for a new password.",
            _dry_run(),
        )
    )
    group.add_command(
        _command(
            "check",
            _check,
            "Prove that this user can read the views and nothing else. Ends with 1 when that is not so.",
        )
    )
    group.add_command(
        _command("revoke", _revoke, "Remove that user, and the views that nobody else was given.", _dry_run())
    )
    return group


def _dry_run() -> click.Option:
    return click.Option(["--dry-run", "is_dry_run"], is_flag=True, help="Show the statements and change nothing.")


def _command(name: str, action: Callable[..., int], help: str, *more: click.Option) -> click.Command:
    return SettingsCommand(
        name,
        callback=lambda is_dry_run=False, **given: action(load_config("database", given), is_dry_run=is_dry_run),
        params=[*more, *options_for(database_sections())],
        help=help,
    )


def _grant(config: Config, *, is_dry_run: bool) -> int:
    settings = config.of(AccountingSettings)
    is_new = settings.password_file is not None and not os.access(settings.password_file, os.F_OK)
    statements = grant(settings, config.of(GrantSettings), is_dry_run=is_dry_run)
    _show(statements)
    if is_new and not is_dry_run:
        click.echo(f"-- The password is in {settings.password_file}; give that file to the user of the service.")
    return 0


def _revoke(config: Config, *, is_dry_run: bool) -> int:
    _show(revoke(config.of(AccountingSettings), config.of(GrantSettings), is_dry_run=is_dry_run))
    return 0


def _check(config: Config, *, is_dry_run: bool) -> int:  # noqa: ARG001 - it never changes anything
    bad = 0
    for one in check(config.of(AccountingSettings)):
        bad += not one.is_good
        _show_check(one)
    click.echo("All is as it should be." if not bad else "Not all is as it should be; see above.")
    return 1 if bad else 0


def _show(statements: tuple[str, ...]) -> None:
    for statement in statements:
        click.echo(f"{statement};")


def _show_check(one: Check) -> None:
    mark = click.style("good", fg="green") if one.is_good else click.style("bad ", fg="red")
    click.echo(f"{mark}  {one.name}: {one.message}")
    if one.advice:
        click.echo(f"      {one.advice}")
