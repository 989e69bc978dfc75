# SPDX-License-Identifier: Apache-2.0
"""Go through the archive by when jobs ended; its own order is that of submission."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from slurmscope.model.archive import Archive, JobFilter, JobRow
from slurmscope.model.viewer import EVERYTHING

PAGE_JOBS = 1000
LONGEST_LIFE_SECONDS = 60 * 86400
"""How long before a time jobs are looked for that ended in it: they waited and ran meanwhile."""


def read_ended(
    archive: Archive, since_seconds: int, until_seconds: int, wanted: JobFilter | None = None
) -> Iterator[JobRow]:
    """Yield every run that began and then ended in this time, last submitted first; ``wanted`` narrows further."""
    narrowed = replace(
        wanted or JobFilter(),
        since_seconds=max(0, since_seconds - LONGEST_LIFE_SECONDS),
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
