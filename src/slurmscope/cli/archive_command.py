# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope archive``: back up the archive of jobs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import click

from slurmscope.archive.settings import ArchiveSettings
from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.output import flag, format_examples, option, write_text
from slurmscope.cli.roles import find_sections
from slurmscope.core.config import Config
from slurmscope.core.errors import ConfigError
from slurmscope.core.log import escape
from slurmscope.core.sqlite_backup import ShowPages, back_up
from slurmscope.core.units import format_bytes, format_ratio
from slurmscope.recorder.settings import RecorderSettings
from slurmscope.reports.sources import is_readable_file, no_archive, sqlite_path


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
)


def make_command() -> click.Command:
    commands = [_backup_command()]
    return click.Group(
        "archive", commands=commands, help="Back up the archive of jobs.", epilog=format_examples(*_EXAMPLES)
    )


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
        examples=_EXAMPLES,
        shown=("archive.url",),
    )


def _back_up(*, file: Path, recorder: Path | None, force: bool, **given: object) -> int:
    config = load_config("up", given)
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
