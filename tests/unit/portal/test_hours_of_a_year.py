# SPDX-License-Identifier: Apache-2.0
"""Every allocated second of a simulated year has one outcome: of all, and of each user, account and partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from slurmscope.archive.interface import GroupBy, JobFilter
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.portal.hours import OutcomeTotal, TimeUse, split_hours
from slurmscope.reports.make import ReportMaker
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape
from slurmscope.simulator.history.history import History
from slurmscope.simulator.history.workload_series import SimulatedSeries
from tests.fakes.archive_backend import ArchiveBackend, open_archive_backend

NOW = 1_790_000_000
PAST = History(simulate(Shape(), now=NOW), jobs=300, days=365).make()
MEASURED = 200
"""Jobs that were measured; of the others only accounting knows."""


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArchiveBackend]:
    workloads = {job.record.job_id: job.workload for job in PAST}
    records = [job.record for job in PAST]
    measured = ReportMaker(SimulatedSeries(workloads.get)).make(records[:MEASURED])
    reports = [*measured, *ReportMaker(None).make(records[MEASURED:])]
    with open_archive_backend(tmp_path_factory.mktemp("year"), reports) as opened:
        yield opened


def split(backend: ArchiveBackend, wanted: JobFilter) -> tuple[OutcomeTotal, ...]:
    return split_hours(backend.archive.total(EVERYTHING, wanted, GroupBy.STATE, limit=100))


def allocated(records: Iterator[JobRecord]) -> tuple[int, int]:
    """Add up cores and GPUs times seconds, as whole numbers."""
    times = [((record.end_seconds or 0) - (record.start_seconds or 0), record) for record in records]
    return sum(t * (record.cpus or 0) for t, record in times), sum(t * record.gpus for t, record in times)


def summed(outcomes: tuple[OutcomeTotal, ...]) -> tuple[float, float]:
    return sum(each.core_seconds for each in outcomes), sum(each.gpu_seconds for each in outcomes)


def test_outcomes_of_a_year_add_up_to_the_second(backend: ArchiveBackend) -> None:
    outcomes = split(backend, JobFilter())

    assert allocated(job.record for job in PAST) == pytest.approx(summed(outcomes), abs=0.5)
    assert all(each.core_seconds >= 0 and each.gpu_seconds >= 0 for each in outcomes)
    # Each kind of workload leaves its traces; nothing is preempted or requeued there.
    hours = {each.outcome: each.core_seconds for each in outcomes}
    assert {outcome for outcome, seconds in hours.items() if seconds > 3600} >= {
        TimeUse.PRODUCTIVE, TimeUse.TAIL, TimeUse.IDLE, TimeUse.UNMEASURED, TimeUse.FAILED, TimeUse.OUT_OF_MEMORY,
        TimeUse.TIME_LIMIT,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["user", "account", "partition"])
def test_outcomes_of_each_name_add_up_to_the_second(backend: ArchiveBackend, name: str) -> None:
    names = Counter(str(getattr(job.record, name)) for job in PAST)
    for value, _ in names.most_common(5):
        own = allocated(job.record for job in PAST if getattr(job.record, name) == value)
        only: dict[str, Any] = {name: value}
        assert own == pytest.approx(summed(split(backend, JobFilter(**only))), abs=0.5)
