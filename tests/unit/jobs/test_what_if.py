# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurmscope.jobs.what_if import (
    MemoryOutcome,
    OtherRequest,
    Sufficiency,
    TimeOutcome,
    WhatIfOutcome,
    describe_outcome,
)
from tests.fakes.reports import GIB, make_record, make_report

HOUR = 3600.0
FEW = "Too few jobs of this size ran in the last four weeks to estimate its waiting time."
ENOUGH = MemoryOutcome(verdict=Sufficiency.ENOUGH, needed_bytes=6.0 * GIB)
DONE = TimeOutcome(verdict=Sufficiency.ENOUGH, run_seconds=2 * HOUR)
KILLED = MemoryOutcome(verdict=Sufficiency.TOO_LITTLE, needed_bytes=6.0 * GIB, killed_after_seconds=HOUR)
CUT = TimeOutcome(verdict=Sufficiency.TOO_LITTLE, run_seconds=2 * HOUR, cut_after_seconds=0.5 * HOUR)


def describe(
    request: dict[str, Any], memory: MemoryOutcome = ENOUGH, time: TimeOutcome = DONE, **waits: Any
) -> list[str]:
    outcome = WhatIfOutcome(request=OtherRequest(**request), memory=memory, time=time, **waits)
    return [sentence for sentence in describe_outcome(make_report(), outcome) if sentence != FEW]


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (
            KILLED,
            (
                "With 4 GiB of memory per node it would have been OOM-killed after 1 h, at 2026-09-21 15:13:20 UTC: "
                "it needed 6 GiB."
            ),
        ),
        (
            replace(KILLED, killed_after_seconds=None),
            "With 4 GiB of memory per node it would have been OOM-killed: it needed 6 GiB.",
        ),
        (ENOUGH, "With 4 GiB of memory per node it would have had enough: it needed 6 GiB."),
        (
            MemoryOutcome(verdict=Sufficiency.UNKNOWN),
            "Whether 4 GiB of memory are enough is not known: its memory was not measured.",
        ),
        (
            MemoryOutcome(verdict=Sufficiency.UNKNOWN, needed_bytes=3.0 * GIB),
            "Whether 4 GiB of memory are enough is not known: it needed at least 3 GiB.",
        ),
    ],
)
def test_memory_is_described(memory: MemoryOutcome, expected: str) -> None:
    assert [expected] == describe({"memory_bytes": 4.0 * GIB}, memory)


@pytest.mark.parametrize(
    ("cpus", "run_hours", "expected"),
    [
        (2, 3.0, "With 2 cores it would have run for at least 3 h instead of 2 h."),
        (2, 2.0, "With 2 cores it would have run for about 2 h, as it did."),
        (1, None, "With 1 core its run time is not known: its CPU time was not measured."),
        (8, 2.0, "With 8 cores it would not have been faster."),
        (4, 2.0, "With 4 cores it would have run for about 2 h, as it did."),
    ],
)
def test_cores_are_described(cpus: int, run_hours: float | None, expected: str) -> None:
    time = replace(DONE, run_seconds=None if run_hours is None else run_hours * HOUR)
    assert [expected] == describe({"cpus": cpus}, time=time)


def test_more_cores_of_a_busy_job_are_unknown() -> None:
    report = make_report()
    busy = replace(report, summary=replace(report.summary, cpu=replace(report.summary.cpu, peak_cores=4.0)))
    outcome = WhatIfOutcome(request=OtherRequest(cpus=8), memory=ENOUGH, time=DONE)
    assert "With 8 cores it may be faster: that was not measured." == describe_outcome(busy, outcome)[0]
    unknown = make_report(make_record(cpus=4))
    unknown = replace(unknown, summary=replace(unknown.summary, record=replace(unknown.record, cpus=None)))
    assert (FEW,) == describe_outcome(unknown, outcome)


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (CUT, "Its time limit of 30 min would have ended it after 30 min, at 2026-09-21 14:43:20 UTC."),
        (DONE, "A time limit of 30 min would have been enough."),
        (TimeOutcome(verdict=Sufficiency.UNKNOWN), "Whether a time limit of 30 min is enough is not known."),
        (replace(CUT, cut_after_seconds=None), "Whether a time limit of 30 min is enough is not known."),
    ],
)
def test_time_limit_is_described(time: TimeOutcome, expected: str) -> None:
    assert [expected] == describe({"limit_seconds": 1800.0}, time=time)


def test_limit_after_an_oom_kill_does_not_matter() -> None:
    sentences = describe({"memory_bytes": 4.0 * GIB}, KILLED, replace(CUT, cut_after_seconds=1.5 * HOUR))
    assert 1 == len(sentences)


def test_limit_before_an_oom_kill_comes_first() -> None:
    memory, limit = describe({"memory_bytes": 4.0 * GIB}, KILLED, CUT)
    assert "With 4 GiB of memory per node its time limit would have ended it before it ran out of memory" in memory
    assert "Its time limit of 30 min would have ended it after 30 min" in limit


def test_waiting_time_is_described() -> None:
    assert ["Jobs of this size waited about 1 min instead of 10 min."] == describe(
        {}, wait_seconds=60.0, submitted_wait_seconds=600.0
    )
    assert ["Jobs of this size waited about 1 min."] == describe({}, wait_seconds=60.0)
    outcome = WhatIfOutcome(request=OtherRequest(), memory=ENOUGH, time=DONE)
    assert (FEW,) == describe_outcome(make_report(), outcome)


def test_run_without_a_start_has_no_times() -> None:
    report = make_report(make_record(start_seconds=None))
    outcome = WhatIfOutcome(request=OtherRequest(memory_bytes=4.0 * GIB), memory=KILLED, time=DONE)
    assert "it would have been OOM-killed: it" in describe_outcome(report, outcome)[0]
