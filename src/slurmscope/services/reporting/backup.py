# SPDX-License-Identifier: Apache-2.0
"""Back up the archive and the recorded samples of this host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from slurmscope.config import Config
from slurmscope.errors import ConfigError
from slurmscope.log import escape
from slurmscope.services.reporting.opening import is_readable_file, no_archive, sqlite_path
from slurmscope.store.archive.settings import ArchiveSettings
from slurmscope.store.backup import ShowPages, back_up
from slurmscope.store.recorder.settings import RecorderSettings


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
