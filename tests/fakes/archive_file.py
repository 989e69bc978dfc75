# SPDX-License-Identifier: Apache-2.0
"""Open an archive in a file, and write one for commands that run as processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from slurmscope.archive.settings import ArchiveSettings, parse_archive_url
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.core.errors import ArchiveError
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.reports.sources import open_archive
from tests.fakes.reports import HOSTILE_NAME, make_record, make_report

DAY = 86400
WIDE_NAME = "grün – 模型 🚀"

JOBS: tuple[tuple[int, int, dict[str, Any]], ...] = (
    (12, 1, {}),
    (13, 1, {"name": HOSTILE_NAME}),
    (14, 1, {"name": WIDE_NAME, "user": "bob"}),
    (16, 1, {"array_job_id": 15, "array_task_id": 3}),
    (17, 10, {}),
)
"""Numbers of jobs, how many days ago they ended, and what is special about them."""


def open_at(path: Path, timeout: float = 60.0) -> SqlArchive:
    return open_archive(ArchiveSettings(url=parse_archive_url(str(path)), timeout=timeout))


def refusal(archive: SqlArchive) -> str:
    """Return why a query is refused."""
    with pytest.raises(ArchiveError) as raised:
        archive.find(EVERYTHING, 1)
    archive.close()
    assert "\n" not in str(raised.value)
    return str(raised.value)


def write_archive(path: Path, now_seconds: int, *, user: str = "ada") -> None:
    """Save jobs of eight core hours each, four of them used: of this week three by ``user``, one by bob."""
    with closing(open_at(path)) as archive:
        archive.save(list(_reports(now_seconds, user)))


def _reports(now_seconds: int, user: str) -> Iterator[JobReport]:
    for job_id, days, changed in JOBS:
        start = now_seconds - days * DAY - 7200
        times = {"submit_seconds": start - 600, "start_seconds": start, "end_seconds": start + 7200}
        yield make_report(make_record(job_id, **({"user": user} | times | changed)))
