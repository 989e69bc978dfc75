# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope audit``: list staff access to other users' jobs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from slurmscope.cli.options import SettingsCommand, archive_options, load_config
from slurmscope.cli.output import option, write_text
from slurmscope.core.errors import ConfigError
from slurmscope.core.log import escape
from slurmscope.core.units import parse_seconds
from slurmscope.jobs.render.formatting import format_time
from slurmscope.reports.sources import open_audit_log

if TYPE_CHECKING:
    from slurmscope.archive.access import AuditRow


def make_command() -> click.Command:
    limit = option("--limit", "N", "Maximum number of rows.", click.IntRange(1, 1000), default=100)
    before = option("--before", "ID", "List rows older than this id, to continue a list.", click.IntRange(1))
    user = option("--user", "NAME", "List only access by this user.", default="")
    since = option("--since", "DURATION", "List only access within this time, such as 12h or 7d.")
    return SettingsCommand(
        "audit",
        callback=_run,
        params=[user, since, limit, before, *archive_options()],
        help="List access by support staff and admins to other users' jobs in the portal, newest first.",
        examples=("slurmscope audit --since 7d", "slurmscope audit --user ada --limit 20"),
        shown=("archive.url",),
    )


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
