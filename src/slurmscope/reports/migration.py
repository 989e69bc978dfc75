# SPDX-License-Identifier: Apache-2.0
"""Migrate the archive to the schema of this release, or list what would be done."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from slurmscope.archive.settings import ArchiveSettings
from slurmscope.core.config import Config
from slurmscope.reports.sources import no_archive, open_known_archive


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """Describe one step: its statement or what it does, and about how many rows and seconds it takes."""

    title: str
    table: str
    rows: int
    seconds: float


def migrate_archive(config: Config, show: Callable[[int, int, str], None], *, is_dry_run: bool) -> list[PlannedStep]:
    """Return the steps that were done, or would be; ``show`` is called before each with its number and their number."""
    settings = config.of(ArchiveSettings)
    archive = open_known_archive(settings)
    if archive is None:
        raise no_archive(settings)
    with closing(archive):
        planned = [
            PlannedStep(
                title=step.title, table=step.table.name, rows=rows, seconds=rows / (step.rows_a_second or math.inf)
            )
            for step, rows in archive.database.plan_migration()
        ]
        if planned and not is_dry_run:
            archive.database.migrate(lambda number, count, step: show(number, count, step.title))
    return planned
