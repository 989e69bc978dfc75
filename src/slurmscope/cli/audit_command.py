# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope audit``: list staff access to other users' jobs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.output import write_text
from slurmscope.cli.roles import find_sections
from slurmscope.core.errors import ConfigError
from slurmscope.core.log import escape
from slurmscope.core.units import parse_seconds
from slurmscope.jobs.render.formatting import format_time
from slurmscope.reports.sources import open_audit_log

if TYPE_CHECKING:
    from slurmscope.archive.access import AuditRow


def make_command() -> click.Command:
    """Build the command."""
    limit = click.Option(
        ["--limit"],
        type=click.IntRange(1, 1000),
        default=100,
        show_default=True,
        metavar="N",
        help="Maximum number of rows.",
    )
    before = click.Option(
        ["--before"], type=click.IntRange(1), metavar="ID", help="List rows older than this id, to continue a list."
    )
    user = click.Option(["--user"], default="", metavar="NAME", help="List only access by this user.")
    since = click.Option(["--since"], metavar="DURATION", help="List only access within this time, such as 12h or 7d.")
    return SettingsCommand(
        "audit",
        callback=_run,
        params=[user, since, limit, before, *_settings()],
        help="List access by support staff and admins to other users' jobs in the portal, newest first.",
        examples=("slurmscope audit --since 7d", "slurmscope audit --user ada --limit 20"),
        shown=("archive.url",),
    )


def _settings() -> list[click.Parameter]:
    """Return the options for the archive; the configuration file may contain more settings."""
    return options_for(section for section in find_sections("report") if section.name == "archive")


def _run(*, user: str, since: str | None, limit: int, before: int | None, **given: object) -> int:
    since_seconds = None if since is None else _since(since)
    with open_audit_log(load_config("report", given)) as log:
        rows = log.list_rows(viewer=user, since_seconds=since_seconds, before_id=before, limit=limit)
    write_text("\n".join(_lines(rows)))
    return 0


def _since(duration: str) -> int:
    try:
        return int(time.time() - parse_seconds(duration))
    except ValueError as error:
        raise ConfigError(f"--since: {error}") from error


def _lines(rows: Iterable[AuditRow]) -> Iterator[str]:
    yield f"{'id':>7}  {'when':23}  {'who':16} {'role':8} {'what':28} route"
    for row in rows:
        when, who = format_time(row.at_seconds), escape(row.viewer)
        yield f"{row.audit_id:7}  {when}  {who:16} {row.role:8} {escape(row.subject):28} {escape(row.route)}"
