# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope archive``: back up and migrate the archive of jobs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import click

from slurmscope.cli.examples import format_examples
from slurmscope.cli.flags.options import SettingsCommand, load_config, options_for
from slurmscope.cli.output.step_progress import StepProgress
from slurmscope.cli.output.terminal import write_text
from slurmscope.cli.roles import find_sections
from slurmscope.figures import format_bytes, format_ratio, format_seconds
from slurmscope.log import escape
from slurmscope.services.reporting.backup import BackupRequest, write_backups
from slurmscope.services.reporting.migration import migrate_archive

_EXAMPLES = (
    "slurmscope archive backup /backup/archive.db",
    "slurmscope archive backup archive.db --recorder recorder.db --force",
)
_MIGRATE_EXAMPLES = (
    "slurmscope archive migrate --dry-run",
    "slurmscope archive migrate --config.file /etc/slurmscope/portal.toml",
)


def make_command() -> click.Command:
    """Build the group."""
    examples = format_examples(*_EXAMPLES, *_MIGRATE_EXAMPLES)
    group = click.Group("archive", help="Back up and migrate the archive of jobs.", epilog=examples)
    group.add_command(_backup_command())
    group.add_command(_migrate_command())
    return group


def _backup_command() -> click.Command:
    path = click.Path(dir_okay=False, path_type=Path)
    return SettingsCommand(
        "backup",
        callback=_back_up,
        params=[
            click.Argument(["file"], type=path, metavar="FILE"),
            click.Option(
                ["--recorder"],
                type=path,
                metavar="FILE",
                help="Also back up the samples of slurmscope up, to this file.",
            ),
            click.Option(["--force"], is_flag=True, help="Replace existing files."),
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


def _migrate_command() -> click.Command:
    return SettingsCommand(
        "migrate",
        callback=_migrate,
        params=[
            click.Option(
                ["--dry-run"],
                is_flag=True,
                help="Print the steps, the rows of their tables and a rough duration; change nothing.",
            ),
            *options_for(section for section in find_sections("portal") if section.name == "archive"),
        ],
        help="Migrate the archive to the tables of this release, without a query timeout. First stop the portals of "
        "earlier releases, and back up the archive.",
        examples=_MIGRATE_EXAMPLES,
        shown=("archive.url",),
    )


def _migrate(*, dry_run: bool, **given: object) -> int:
    with StepProgress() as progress:
        steps = migrate_archive(load_config("portal", given), progress.show, is_dry_run=dry_run)
    if not steps:
        write_text("the archive has the tables of this release; there is nothing to do")
    elif dry_run:
        write_text(f"{len(steps)} step{'' if len(steps) == 1 else 's'}:")
        for step in steps:
            write_text(f"{escape(step.title)}; {step.table} has about {step.rows:,} rows")
        write_text(f"roughly {format_seconds(sum(step.seconds for step in steps))} in all, on an idle server")
        write_text("nothing was changed: this was a dry run")
    else:
        write_text(f"the archive was migrated in {format_seconds(progress.seconds)}")
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
