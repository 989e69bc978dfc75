# SPDX-License-Identifier: Apache-2.0
"""Offer ``slurmscope token``: give out tokens for scripts and Prometheus, list them, take them back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.roles import find_sections
from slurmscope.cli.terminal import write_text
from slurmscope.errors import ConfigError
from slurmscope.log import escape
from slurmscope.model.viewer import ViewerRole
from slurmscope.portal.settings import parse_user_name
from slurmscope.reports.words import format_day, format_time
from slurmscope.services.portal.access_records import open_tokens
from slurmscope.units import DAY_SECONDS

if TYPE_CHECKING:
    from slurmscope.store.archive.tokens import TokenInfo


def make_command() -> click.Command:
    """Build the group."""
    group = click.Group("token", help="Give out tokens for scripts and for Prometheus, list them, take them back.")
    group.add_command(_create_command())
    group.add_command(
        SettingsCommand(
            "list",
            callback=_list,
            params=_settings(),
            help="List the tokens that were given out; the tokens themselves are not kept.",
        )
    )
    group.add_command(
        SettingsCommand(
            "revoke",
            callback=_revoke,
            params=[click.Argument(["token_id"], type=click.IntRange(1), metavar="ID"), *_settings()],
            help="Take a token back by its number in the list. It is refused from the next request on.",
        )
    )
    return group


def _settings() -> list[click.Parameter]:
    """Take what is about the archive; the file may hold more."""
    return options_for(section for section in find_sections("report") if section.name == "archive")


def _create_command() -> click.Command:
    name = click.Option(["--name"], required=True, metavar="USER", help="User whom the token's holder acts for.")
    role = click.Option(
        ["--role"],
        type=click.Choice([role.value for role in ViewerRole]),
        default=ViewerRole.USER.value,
        show_default=True,
        help="What its holder may see: the user's own jobs, or, as support or admin, everybody's.",
    )
    days = click.Option(
        ["--days"], type=click.IntRange(1, 3650), metavar="N", help="Days after which it is refused; else never."
    )
    purpose = click.Option(["--purpose"], default="", metavar="TEXT", help="What it is for, for the list.")
    return SettingsCommand(
        "create",
        callback=_create,
        params=[name, role, days, purpose, *_settings()],
        help="Write a new token to standard output. It is shown this once, and only its hash is kept.",
    )


def _create(*, name: str, role: str, days: int | None, purpose: str, **given: object) -> int:
    with open_tokens(load_config("report", given)) as tokens:
        token = tokens.create(
            _user(name),
            ViewerRole(role),
            purpose=purpose,
            expires_seconds=None if days is None else int(time.time()) + days * DAY_SECONDS,
        )
    write_text(token)
    click.echo("Keep it in a file that only its user can read: it cannot be shown again.", err=True)
    return 0


def _user(name: str) -> str:
    try:
        user = parse_user_name(name)
    except ValueError as error:
        raise ConfigError(f"--name: {error}") from error
    if not user:
        raise ConfigError("--name: it names nobody")
    return user


def _list(**given: object) -> int:
    with open_tokens(load_config("report", given)) as tokens:
        known = tokens.list_tokens()
    write_text("\n".join(_lines(known)))
    return 0


def _lines(known: tuple[TokenInfo, ...]) -> Iterator[str]:
    if not known:
        yield "no tokens were given out"
        return
    yield f"{'id':>5}  {'user':16} {'role':8} {'created':10}  {'last used':23}  {'expires':10}  purpose"
    for token in known:
        used = "never" if token.last_used_seconds is None else format_time(token.last_used_seconds)
        expires = "never" if token.expires_seconds is None else format_day(token.expires_seconds)
        created = format_day(token.created_seconds)
        line = f"{token.token_id:5}  {escape(token.name):16} {token.role:8} {created}  {used:23}  {expires:10}"
        yield f"{line}  {escape(token.purpose)}".rstrip()


def _revoke(*, token_id: int, **given: object) -> int:
    with open_tokens(load_config("report", given)) as tokens:
        if not tokens.revoke(token_id):
            raise ConfigError(f"there is no token {token_id}: see slurmscope token list")
    click.echo(f"token {token_id} is revoked")
    return 0
