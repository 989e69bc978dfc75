# SPDX-License-Identifier: Apache-2.0
"""The forecast of the archive's size, worked out by hand."""

from __future__ import annotations

import pytest

from slurmscope.archive.size import ArchiveSize, Forecast, Growth, forecast

DAY = 86_400
# 1,000 jobs take 1 MB, and 10 more end each day: 10 kB a day.
GROWTH = Growth(jobs=1000, recent_jobs=300, days=30.0)


def test_disk_is_full_when_its_room_is_used_up() -> None:
    expected = forecast(ArchiveSize(used_bytes=1_000_000, free_bytes=500_000), GROWTH, 0)

    assert Forecast(bytes_per_job=1000, bytes_per_day=10_000, full_in_days=50) == expected


def test_retention_bounds_the_archive() -> None:
    size = ArchiveSize(used_bytes=1_000_000, free_bytes=5_000_000)

    bounded = forecast(size, GROWTH, 365 * DAY)
    assert (3_650_000, None) == (bounded.most_bytes, bounded.full_in_days)
    # Not if the disk is smaller than what is kept.
    assert 500 == forecast(size, GROWTH, 3650 * DAY).full_in_days


@pytest.mark.parametrize(
    ("growth", "expected"),
    [
        (Growth(jobs=0, recent_jobs=0, days=0.0), Forecast()),
        (Growth(jobs=10, recent_jobs=10, days=0.5), Forecast(bytes_per_job=100_000)),
    ],
)
def test_nothing_is_foreseen_of_an_archive_that_is_new(growth: Growth, expected: Forecast) -> None:
    assert expected == forecast(ArchiveSize(used_bytes=1_000_000, free_bytes=9), growth, 0)


def test_archive_without_recent_jobs_and_one_on_a_server_are_never_full() -> None:
    idle = Growth(jobs=10, recent_jobs=0, days=30.0)

    assert forecast(ArchiveSize(used_bytes=10, free_bytes=9), idle, 0).full_in_days is None
    assert forecast(ArchiveSize(used_bytes=10), GROWTH, 0).full_in_days is None
