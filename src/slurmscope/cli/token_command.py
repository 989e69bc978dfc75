# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope token``: create, list and revoke API tokens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from slurmscope.cli.options import SettingsCommand, archive_options, load_config
from slurmscope.cli.output import format_examples, option, write_text
from slurmscope.core.errors import ConfigError
from slurmscope.core.log import escape
from slurmscope.core.units import DAY_SECONDS
from slurmscope.jobs.render.formatting import format_day, format_time
from slurmscope.jobs.viewer import ViewerRole
from slurmscope.portal.settings import parse_user_name
from slurmscope.reports.sources import open_tokens

if TYPE_CHECKING:
    from slurmscope.archive.access import TokenInfo


def make_command() -> click.Command:
    list_tokens = SettingsCommand(
        "list",
        callback=_list,
        params=archive_options(),
        help="List all tokens. Only their hashes are stored, so the tokens themselves are not shown.",
        examples=("slurmscope token list", "slurmscope token list --archive.url /tmp/archive.db"),
        shown=("archive.url",),
    )
    revoke = SettingsCommand(
        "revoke",
        callback=_revoke,
        params=[click.Argument(["token_id"], type=click.IntRange(1), metavar="ID"), *archive_options()],
        help="Revoke a token by its id in the list. The next request with it is rejected.",
        examples=("slurmscope token revoke 3", "slurmscope token revoke 3 --archive.url /tmp/archive.db"),
        shown=("archive.url",),
    )
    return click.Group(
        "token",
        commands=[_create_command(), list_tokens, revoke],
        help="Create, list and revoke tokens for the portal's API, for scripts and Prometheus.",
        epilog=format_examples("slurmscope token create --name ada --days 90", "slurmscope token list"),
    )


def _create_command() -> click.Command:
    roles = click.Choice([role.value for role in ViewerRole])
    name = option("--name", "USER", "User that the token authenticates.", required=True)
    role = option("--role", "ROLE", "user (own jobs), support or admin (all jobs).", roles, default="user")
    days = option("--days", "N", "Days until the token expires; default is never.", click.IntRange(1, 3650))
    purpose = option("--purpose", "TEXT", "Description, shown in the list.", default="")
    return SettingsCommand(
        "create",
        callback=_create,
        params=[name, role, days, purpose, *archive_options()],
        help="Create a token and print it once to standard output. Only its hash is stored.",
        examples=(
            "slurmscope token create --name ada --purpose notebook",
            "slurmscope token create --name prometheus --role support > token",
        ),
        shown=("archive.url",),
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
    click.echo("Store the token in a file that only its user can read; it cannot be shown again.", err=True)
    return 0


def _user(name: str) -> str:
    try:
        user = parse_user_name(name)
    except ValueError as error:
        raise ConfigError(f"--name: {error}") from error
    if not user:
        raise ConfigError("--name: the user name is empty")
    return user


def _list(**given: object) -> int:
    with open_tokens(load_config("report", given)) as tokens:
        known = tokens.list_tokens()
    write_text("\n".join(_lines(known)))
    return 0


def _lines(known: tuple[TokenInfo, ...]) -> Iterator[str]:
    if not known:
        yield "no tokens"
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
            raise ConfigError(f"there is no token {token_id}; see slurmscope token list")
    click.echo(f"token {token_id} is revoked")
    return 0
