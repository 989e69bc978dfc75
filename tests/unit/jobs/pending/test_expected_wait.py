# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from slurmscope.jobs.pending.smaller_request import compare_waits
from slurmscope.jobs.report import ExpectedWait, RequestedSize
from slurmscope.jobs.wait_times import WaitingTime

LARGE = RequestedSize(nodes=1, cpus=32, gpus=0, memory_bytes=None, limit_seconds=86400.0)
SMALL = replace(LARGE, cpus=4, limit_seconds=3600.0)


def waited(seconds: float, jobs: int) -> WaitingTime:
    return WaitingTime(
        partition="batch", cores_class=0, limit_class=0, jobs=jobs, median_seconds=seconds, p90_seconds=seconds
    )


# 32 cores are in the class up to 64, a day in the one up to a day; 4 cores up to 4, an hour up to one.
WAITS = {(3, 3): waited(4380.0, 24), (1, 0): waited(360.0, 20)}


def test_medians_of_both_shapes_are_compared() -> None:
    expected = ExpectedWait(submitted_seconds=4380.0, suggested_seconds=360.0, jobs=20)
    assert expected == compare_waits(WAITS, LARGE, SMALL)


def test_nothing_is_said_about_fewer_than_twenty_jobs() -> None:
    assert compare_waits({**WAITS, (1, 0): waited(360.0, 19)}, LARGE, SMALL) is None


def test_nothing_is_said_about_an_unknown_shape() -> None:
    assert compare_waits(WAITS, replace(LARGE, limit_seconds=None), SMALL) is None


def test_nothing_is_said_where_the_shape_stays_the_same() -> None:
    assert compare_waits(WAITS, LARGE, replace(LARGE, cpus=40)) is None
