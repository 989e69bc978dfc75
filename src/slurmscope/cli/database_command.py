# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope database``: grant, check and revoke read access to Slurm's accounting database."""

from __future__ import annotations

import os
from collections.abc import Callable

import click

from slurmscope.accounting.grant import GrantSettings, check, database_sections, grant, revoke
from slurmscope.accounting.settings import AccountingSettings
from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.output import flag, format_examples, show_checks
from slurmscope.core.config import Config


def make_database_command() -> click.Command:
    dry_run = flag("--dry-run is_dry_run", "Print the SQL statements without executing them.")
    commands = [
        _command(
            "grant",
            _grant,
            "Create views of the job tables and a database user that can read only these. Run it as database "
            "administrator; run it again after adding a cluster, upgrading Slurm or changing the password.",
            dry_run,
        ),
        _command("check", _check, "Check that the user can read the views and nothing else; exit with 1 if not."),
        _command("revoke", _revoke, "Drop the user, and the views that no other user can read.", dry_run),
    ]
    return click.Group(
        "database",
        commands=commands,
        help="Set up read access to jobs in Slurm's accounting database, instead of calling sacct.",
        epilog=format_examples(_example("grant"), _example("check")),
    )


def _command(name: str, action: Callable[..., int], help: str, *more: click.Option) -> click.Command:
    return SettingsCommand(
        name,
        callback=lambda is_dry_run=False, **given: action(load_config("database", given), is_dry_run=is_dry_run),
        params=[*more, *options_for(database_sections())],
        help=help,
        examples=(_example(name), f"slurmscope database {name} --accounting.password-file accounting.password"),
        shown=("accounting.host", "accounting.password-file", "database.admin-user"),
    )


def _example(name: str) -> str:
    return f"slurmscope database {name} --config.file /etc/slurmscope/portal.toml"


def _grant(config: Config, *, is_dry_run: bool) -> int:
    settings = config.of(AccountingSettings)
    is_new = settings.password_file is not None and not os.access(settings.password_file, os.F_OK)
    statements = grant(settings, config.of(GrantSettings), is_dry_run=is_dry_run)
    _show(statements)
    if is_new and not is_dry_run:
        click.echo(
            f"-- The password is in {settings.password_file}; make that file readable for the slurmscope service."
        )
    return 0


def _revoke(config: Config, *, is_dry_run: bool) -> int:
    _show(revoke(config.of(AccountingSettings), config.of(GrantSettings), is_dry_run=is_dry_run))
    return 0


def _check(config: Config, *, is_dry_run: bool) -> int:  # noqa: ARG001 - check is read-only
    return 0 if show_checks(check(config.of(AccountingSettings))) else 1


def _show(statements: tuple[str, ...]) -> None:
    for statement in statements:
        click.echo(f"{statement};")
