# SPDX-License-Identifier: Apache-2.0
"""The archive that benchmarks measure is one that saved reports could have made."""

from __future__ import annotations

import pytest

from bench.archive_rows import fill
from slurmscope.archive.interface import GroupBy, JobFilter
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.jobs.viewer import EVERYTHING

JOBS = 400


@pytest.mark.parametrize("by", [GroupBy.USER, GroupBy.STATE, GroupBy.RULE])
def test_sums_of_the_benchmarks_archive_are_those_of_its_jobs(archive: SqlArchive, by: GroupBy) -> None:
    fill(archive, JOBS)

    rows = archive.list_jobs(EVERYTHING, JobFilter(), limit=JOBS).rows
    totals = archive.total(EVERYTHING, JobFilter(), by, limit=1000)

    assert JOBS == len(rows)
    assert totals
    for total in totals:
        of_group = [row for row in rows if total.key in (row.rules if by is GroupBy.RULE else (getattr(row, by),))]
        assert len(of_group) == total.jobs
        assert pytest.approx(sum(row.core_seconds for row in of_group), abs=1) == total.core_seconds
        idle = sum(row.wasted_core_seconds or 0.0 for row in of_group)
        assert pytest.approx(idle, abs=1) == total.idle_core_seconds
