# SPDX-License-Identifier: Apache-2.0
"""Read archived jobs by their end time; the archive itself is ordered by submission."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from slurmscope.model.archive import Archive, JobFilter, JobRow
from slurmscope.model.viewer import EVERYTHING

PAGE_JOBS = 1000
MAX_AGE_SECONDS = 60 * 86400
"""How long before a period a job that ended in it may have been submitted."""


def read_ended(
    archive: Archive, since_seconds: int, until_seconds: int, job_filter: JobFilter | None = None
) -> Iterator[JobRow]:
    """Yield every run that started, and ended in this period, last submitted first; ``job_filter`` narrows further."""
    narrowed = replace(
        job_filter or JobFilter(),
        since_seconds=max(0, since_seconds - MAX_AGE_SECONDS),
        until_seconds=until_seconds,
        is_running=False,
    )
    after = None
    while True:
        page = archive.list_jobs(EVERYTHING, narrowed, after=after, limit=PAGE_JOBS)
        for row in page.rows:
            if row.start_seconds is not None and since_seconds <= (row.end_seconds or 0) < until_seconds:
                yield row
        after = page.next_key
        if after is None:
            return
