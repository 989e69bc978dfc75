# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope token`` and ``slurmscope audit``: API tokens, and accesses of staff to jobs of others."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from json import dumps as to_json
from typing import TYPE_CHECKING

import click

from slurmscope.cli.options import SettingsCommand, archive_options, load_config
from slurmscope.cli.output import flag, format_examples, option, write_text
from slurmscope.core.errors import ConfigError
from slurmscope.core.log import escape
from slurmscope.core.units import DAY_SECONDS, parse_seconds
from slurmscope.jobs.render.formatting import format_day, format_time
from slurmscope.jobs.viewer import ViewerRole
from slurmscope.portal.settings import parse_user_name
from slurmscope.reports.sources import open_audit_log, open_tokens

if TYPE_CHECKING:
    from slurmscope.archive.access import AuditRow, TokenInfo


def make_token_command() -> click.Command:
    list_tokens = SettingsCommand(
        "list",
        callback=_list,
        params=[flag("--json", "Print the list as JSON; times are Unix times in seconds."), *archive_options()],
        help="List all tokens. Only their hashes are stored, so the tokens themselves are not shown.",
        examples=("slurmscope token list --json", "slurmscope token list --archive.url /tmp/archive.db"),
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
    missing = flag("--if-missing", "Print nothing if the user has a valid token with this role and purpose.")
    return SettingsCommand(
        "create",
        callback=_create,
        params=[name, role, days, purpose, missing, *archive_options()],
        help="Create a token and print it once to standard output. Only its hash is stored.",
        examples=(
            "slurmscope token create --name ada --purpose notebook",
            "slurmscope token create --name prometheus --role support > token",
        ),
        shown=("archive.url",),
    )


def _create(*, name: str, role: str, days: int | None, purpose: str, if_missing: bool, **given: object) -> int:
    with open_tokens(load_config("report", given)) as tokens:
        wanted = (_user(name), ViewerRole(role), purpose)
        if if_missing and (known := next(_valid(tokens.list_tokens(), wanted), None)):
            click.echo(f"token {known.token_id} is valid already", err=True)
            return 0
        token = tokens.create(
            _user(name),
            ViewerRole(role),
            purpose=purpose,
            expires_seconds=None if days is None else int(time.time()) + days * DAY_SECONDS,
        )
    write_text(token)
    click.echo("Store the token in a file that only its user can read; it cannot be shown again.", err=True)
    return 0


def _valid(known: Iterable[TokenInfo], wanted: tuple[str, ViewerRole, str]) -> Iterator[TokenInfo]:
    now_seconds = time.time()
    for token in known:
        is_valid = token.expires_seconds is None or token.expires_seconds > now_seconds
        if is_valid and wanted == (token.name, token.role, token.purpose):
            yield token


def _user(name: str) -> str:
    try:
        user = parse_user_name(name)
    except ValueError as error:
        raise ConfigError(f"--name: {error}") from error
    if not user:
        raise ConfigError("--name: the user name is empty")
    return user


def _list(*, json: bool, **given: object) -> int:
    with open_tokens(load_config("report", given)) as tokens:
        known = tokens.list_tokens()
    write_text(_as_json(known) if json else "\n".join(_token_lines(known)))
    return 0


def _as_json(known: tuple[TokenInfo, ...]) -> str:
    return to_json([asdict(token) for token in known], indent=2)


def _token_lines(known: tuple[TokenInfo, ...]) -> Iterator[str]:
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


def make_audit_command() -> click.Command:
    limit = option("--limit", "N", "Maximum number of rows.", click.IntRange(1, 1000), default=100)
    before = option("--before", "ID", "List rows older than this id, to continue a list.", click.IntRange(1))
    user = option("--user", "NAME", "List only access by this user.", default="")
    since = option("--since", "DURATION", "List only access within this time, such as 12h or 7d.")
    return SettingsCommand(
        "audit",
        callback=_audit,
        params=[user, since, limit, before, *archive_options()],
        help="List access by support staff and admins to other users' jobs in the portal, newest first.",
        examples=("slurmscope audit --since 7d", "slurmscope audit --user ada --limit 20"),
        shown=("archive.url",),
    )


def _audit(*, user: str, since: str | None, limit: int, before: int | None, **given: object) -> int:
    since_seconds = None if since is None else _since(since)
    with open_audit_log(load_config("report", given)) as log:
        rows = log.list_rows(viewer=user, since_seconds=since_seconds, before_id=before, limit=limit)
    write_text("\n".join(_audit_lines(rows)))
    return 0


def _since(duration: str) -> int:
    try:
        return int(time.time() - parse_seconds(duration))
    except ValueError as error:
        raise ConfigError(f"--since: {error}") from error


def _audit_lines(rows: Iterable[AuditRow]) -> Iterator[str]:
    yield f"{'id':>7}  {'when':23}  {'who':16} {'role':8} {'what':28} route"
    for row in rows:
        when, who = format_time(row.at_seconds), escape(row.viewer)
        yield f"{row.audit_id:7}  {when}  {who:16} {row.role:8} {escape(row.subject):28} {escape(row.route)}"
