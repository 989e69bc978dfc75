# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope archive``: back up the archive of jobs, foresee its size, export jobs, delete a user's data."""

from __future__ import annotations

import grp
import pwd
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from json import dumps as to_json
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from slurmscope.archive.settings import ArchiveSettings
from slurmscope.cli.options import SettingsCommand, archive_options, load_config, options_for
from slurmscope.cli.output import flag, format_examples, option, write_text
from slurmscope.cli.roles import find_sections
from slurmscope.core.config import Config
from slurmscope.core.errors import ConfigError
from slurmscope.core.log import escape
from slurmscope.core.sqlite_backup import ShowPages, back_up
from slurmscope.core.units import format_bytes, format_count, format_ratio
from slurmscope.recorder.settings import RecorderSettings
from slurmscope.reporter.retention import ReporterSettings
from slurmscope.reports.sources import is_readable_file, no_archive, open_existing_archive, sqlite_path

if TYPE_CHECKING:
    from slurmscope.archive.size import ArchiveSize, Forecast, Growth


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupRequest:
    """Name the files to write; ``recorder_file`` is None without recorded samples."""

    archive_file: Path
    recorder_file: Path | None = None
    may_replace: bool = False


def write_backups(config: Config, request: BackupRequest, show_pages: ShowPages) -> Iterator[tuple[Path, int]]:
    """Yield each written file and its size in bytes; nothing is written if one of the databases is not there."""
    sources = [(_find_archive(config.of(ArchiveSettings)), request.archive_file)]
    if request.recorder_file is not None:
        sources.append((_find_recorder(config.of(RecorderSettings)), request.recorder_file))
    for source, target in sources:
        yield target, back_up(source, target, may_replace=request.may_replace, show_pages=show_pages)


def _find_archive(settings: ArchiveSettings) -> Path:
    path = sqlite_path(settings.url)
    if path is None:
        raise ConfigError(_server_advice(settings.url))
    if not is_readable_file(path):
        raise no_archive(settings)
    return path


def _find_recorder(settings: RecorderSettings) -> Path:
    if not is_readable_file(settings.file):
        raise ConfigError(
            f"there are no readable samples at {escape(str(settings.file))}: run this as the user of slurmscope up, "
            "or choose another file with --recorder.file"
        )
    return settings.file


def _server_advice(url: str) -> str:
    """Name the program of the database server that does it."""
    parts = urlsplit(url)
    name = escape(parts.path.lstrip("/"))
    if parts.scheme == "postgresql":
        return f"the archive is in PostgreSQL: back it up there with pg_dump --format=custom --file=FILE {name}"
    return (
        f"the archive is in MariaDB: back it up there with mariadb-dump --single-transaction --result-file=FILE {name}"
    )


_EXAMPLES = (
    "slurmscope archive backup /backup/archive.db",
    "slurmscope archive backup archive.db --recorder recorder.db --force",
    "slurmscope archive forget ada",
    "slurmscope archive forget ada --yes",
    "slurmscope archive export --since 2026-01-01 > jobs.log",
    "slurmscope archive export --cluster lab --until 2026-02-01 > jobs.log",
)


def make_archive_command() -> click.Command:
    commands = [_backup_command(), _size_command(), _forget_command(), _export_command()]
    text = "Back up the archive of jobs, foresee its size, export jobs, and delete the data of a user."
    return click.Group("archive", commands=commands, help=text, epilog=format_examples(*_EXAMPLES))


def _backup_command() -> click.Command:
    path = click.Path(dir_okay=False, path_type=Path)
    return SettingsCommand(
        "backup",
        callback=_back_up,
        params=[
            click.Argument(["file"], type=path, metavar="FILE"),
            option("--recorder", "FILE", "Also back up the samples of slurmscope up, to this file.", path),
            flag("--force", "Replace existing files."),
            *options_for(section for section in find_sections("up") if section.name in ("archive", "recorder")),
        ],
        help="Copy an archive in SQLite to FILE, also while the portal runs. FILE appears when it is complete.",
        examples=_EXAMPLES[:2],
        shown=("archive.url",),
    )


def _forget_command() -> click.Command:
    return SettingsCommand(
        "forget",
        callback=_forget,
        params=[
            click.Argument(["user"], metavar="USER"),
            flag("--yes", "Delete; without it, only count what would be deleted."),
            *archive_options(),
        ],
        help="Delete a user's ended jobs, curves, notes, tags, saved views and tokens from the archive, also while the "
        "portal runs.",
        examples=_EXAMPLES[2:4],
        shown=("archive.url",),
    )


def _forget(*, user: str, yes: bool, **given: object) -> int:
    with closing(open_existing_archive(load_config("report", given))) as archive:
        from slurmscope.archive.forget import count_personal_rows, forget_person

        with archive.database.reading() as connection:
            found = count_personal_rows(connection, user)
        counted = ", ".join(f"{number:,} {name}" for name, number in zip(_PERSONAL, found, strict=True) if number)
        name = escape(user)
        if not any(found._replace(running=0)):
            write_text(f"{name}: nothing to delete" + (f"; {counted}, which stay" if found.running else ""))
        elif not yes:
            write_text(f"{name}: {counted}. Nothing was deleted: repeat with --yes.")
        else:
            show = _progress()
            for deleted in forget_person(archive.database, user):
                show(min(deleted, found.jobs), found.jobs)
            write_text(f"{name}: deleted: {counted.replace(_PERSONAL[1], 'running jobs kept')}")
    return 0


_PERSONAL = ("ended jobs", "running jobs", "notes", "tags", "saved views", "tokens", "mails sent")


def _export_command() -> click.Command:
    day = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"])
    return SettingsCommand(
        "export",
        callback=_export,
        params=[
            option("--format -f", "FORMAT", "Format of the lines.", click.Choice(["xdmod"]), default="xdmod"),
            option("--since", "DATE", "First end of a job, in UTC: 2026-01-31 or 2026-01-31T12:00:00.", day),
            option("--until", "DATE", "Only jobs that ended before this time, in UTC.", day),
            option("--cluster", "NAME", "The cluster; needed if the archive has several.", default=""),
            *archive_options(),
        ],
        help="Print the jobs of all users that ran and ended in a period, as sacct prints them for xdmod-shredder of "
        "Open XDMoD.",
        examples=_EXAMPLES[4:],
        shown=("archive.url",),
    )


def _export(*, format: str, since: datetime | None, until: datetime | None, cluster: str, **given: object) -> int:  # noqa: ARG001 - one format so far
    with closing(open_existing_archive(load_config("report", given))) as archive:
        from slurmscope.archive.job_columns import LATEST_SECONDS
        from slurmscope.archive.stored_reports import read_ended_records
        from slurmscope.jobs.render.xdmod import render_xdmod_line

        period = (_in_seconds(since, 0), _in_seconds(until, LATEST_SECONDS))
        chosen = _choose_cluster(archive.clusters(), cluster)
        for record in read_ended_records(archive.database, chosen, *period):
            gid, group = _group_of(record.uid)
            sys.stdout.buffer.write(f"{render_xdmod_line(record, gid=gid, group=group)}\n".encode("utf-8", "replace"))
    return 0


def _in_seconds(moment: datetime | None, otherwise: int) -> int:
    return otherwise if moment is None else int(moment.replace(tzinfo=UTC).timestamp())


def _choose_cluster(known: Sequence[str], wanted: str) -> str:
    """Return the cluster to export: XDMoD takes all lines of a file for those of one."""
    if wanted in known:
        return wanted
    names = ", ".join(map(escape, known)) or "none"
    if wanted:
        raise ConfigError(f"the archive has no jobs of cluster {escape(wanted)}: it has {names}")
    if len(known) > 1:
        raise ConfigError(f"the archive has jobs of several clusters, choose one with --cluster: {names}")
    return known[0] if known else ""


@cache
def _group_of(uid: int | None) -> tuple[str, str]:
    """Return the number and the name of a user's primary group; empty where this host does not know it."""
    try:
        gid = None if uid is None else pwd.getpwuid(uid).pw_gid
    except (KeyError, OverflowError):
        gid = None
    if gid is None:
        return "", ""
    with suppress(KeyError):
        return str(gid), grp.getgrgid(gid).gr_name
    return str(gid), ""


def _back_up(*, file: Path, recorder: Path | None, force: bool, **given: object) -> int:
    config = load_config("up", given, file_of="portal")
    request = BackupRequest(archive_file=file, recorder_file=recorder, may_replace=force)
    # A process that gets SIGTERM deletes what it has written so far.
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        for written, size_bytes in write_backups(config, request, _progress()):
            write_text(f"{escape(str(written))}: {format_bytes(size_bytes)}")
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def _exit(number: int, frame: object) -> None:  # noqa: ARG001 - as signal calls it
    sys.exit(128 + number)


def _progress() -> Callable[[int, int], None]:
    """Return a function that shows the progress on a terminal, and does nothing elsewhere."""

    def show(done: int, total: int) -> None:
        is_done = done == total
        click.echo(f"\r{'' if is_done else format_ratio(done / max(1, total)):10}", err=True, nl=False)
        if is_done:
            click.echo("\r", err=True, nl=False)

    return show if sys.stderr.isatty() else lambda _done, _total: None


def _size_command() -> click.Command:
    sections = (section for section in find_sections("portal") if section.name in ("archive", "reporter"))
    return SettingsCommand(
        "size",
        callback=_show_size,
        params=[flag("--json", "Print the result as JSON."), *options_for(sections)],
        help="Show how large the archive is and how fast it grows, and foresee when its disk is full, if as many jobs "
        "go on to end as in the last 30 days.",
        examples=("slurmscope archive size", "slurmscope archive size --json"),
        shown=("archive.url", "reporter.keep-jobs"),
    )


def _show_size(*, json: bool, **given: object) -> int:
    config = load_config("portal", given)
    with closing(open_existing_archive(config)) as archive:
        from slurmscope.archive.size import count_growth, forecast, measure_size

        size = measure_size(archive.database)
        with archive.database.reading() as connection:
            growth = count_growth(connection, time.time())
    keep_seconds = config.of(ReporterSettings).keep_jobs
    expected = forecast(size, growth, keep_seconds)
    if json:
        click.echo(to_json({**asdict(size), **asdict(growth), **asdict(expected)}, indent=2))
    else:
        click.echo("\n".join(_describe_size(size, growth, expected)))
    return 0


def _describe_size(size: ArchiveSize, growth: Growth, expected: Forecast) -> Iterator[str]:
    """Yield lines about now, the growth and the disk; what is unknown is said."""
    per_job = f", {format_bytes(expected.bytes_per_job)} a job" if expected.bytes_per_job is not None else ""
    yield f"archive: {format_bytes(size.used_bytes)}, {format_count(growth.jobs)} ended jobs{per_job}"
    if expected.bytes_per_day is None or growth.jobs_per_day is None:
        yield "growth:  not known, the oldest job ended less than a day ago"
    else:
        rate = f"{format_count(round(growth.jobs_per_day))} jobs a day in the last {growth.days:.0f} days"
        yield f"growth:  {rate}, {format_bytes(expected.bytes_per_day)} a day"
    if expected.most_bytes is not None:
        yield f"kept:    reporter.keep-jobs bounds it at about {format_bytes(expected.most_bytes)}"
    if size.free_bytes is None:
        yield "disk:    that of the database server"
    else:
        full = "" if expected.full_in_days is None else f", full in {_format_days(expected.full_in_days)}"
        yield f"disk:    {format_bytes(size.free_bytes)} free{full}"


def _format_days(days: float) -> str:
    return f"{days:.0f} days" if days < 730 else f"{days / 365.25:.0f} years"
