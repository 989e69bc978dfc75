# SPDX-License-Identifier: Apache-2.0
"""A portal that is not the reporter notices that jobs are archived late."""

from __future__ import annotations

import pytest

from slurmscope.core.errors import ArchiveError
from slurmscope.core.units import DAY_SECONDS
from slurmscope.portal.checks import GONE_SECONDS, KEPT_SECONDS, LateReporters
from slurmscope.reporter.reporter import CLUSTER_CHECKPOINT, ReporterProgress
from slurmscope.reporter.reporters import Reporters
from slurmscope.reporter.settings import ReporterSettings

NOW = 1_790_000_000


class Stored(dict[str, str]):
    """Hold checkpoints, and count how often they are read."""

    reads = 0
    error: ArchiveError | None = None

    def list_checkpoints(self, beginning: str) -> dict[str, str]:
        self.reads += 1
        if self.error:
            raise self.error
        return {name.removeprefix(beginning): text for name, text in self.items() if name.startswith(beginning)}


def make_late(stored: Stored, clock: list[float]) -> LateReporters:
    return LateReporters(
        stored.list_checkpoints, ReporterSettings(), wall_clock=lambda: NOW + clock[0], monotonic=lambda: clock[0]
    )


def read_until(cluster: str) -> str:
    return CLUSTER_CHECKPOINT + cluster


def test_cluster_that_is_an_hour_behind_is_named() -> None:
    stored = Stored({read_until("good"): str(NOW - 300), read_until("late"): str(NOW - 3 * 3600)})

    problem = make_late(stored, [0.0]).find_problem()

    assert problem.startswith("late: jobs that ended before ")
    assert problem.endswith(" behind")
    assert "good" not in problem


@pytest.mark.parametrize("seconds", [300, -90 * DAY_SECONDS])
def test_cluster_that_is_gone_or_was_never_read_is_no_problem(seconds: int) -> None:
    gone = Stored({read_until("gone"): str(NOW - GONE_SECONDS - 3600), read_until("good"): str(NOW - seconds)})

    assert ("", "") == tuple(make_late(stored, [0.0]).find_problem() for stored in (gone, Stored()))


def test_archive_without_any_reporter_is_late_however_long_ago_that_began() -> None:
    stored = Stored({read_until("gone"): str(NOW - 30 * DAY_SECONDS)})
    stored |= {read_until(name): str(NOW - 8 * DAY_SECONDS) for name in ("alpha", "beta")}

    problems = make_late(stored, [0.0]).find_problem().split("; ")

    assert ["alpha", "beta"] == [problem.partition(":")[0] for problem in problems]
    assert all(problem.endswith(" behind") for problem in problems)


def test_clock_that_was_wrong_once_hides_no_late_cluster() -> None:
    stored = Stored({read_until("wrong"): str(NOW + 90 * DAY_SECONDS), read_until("late"): str(NOW - 3 * 3600)})

    assert make_late(stored, [0.0]).find_problem().startswith("late: jobs that ended before ")


def test_archive_is_read_now_and_then_and_may_be_unreachable() -> None:
    stored, clock = Stored({read_until("a"): str(NOW - 3 * 3600)}), [0.0]
    late = make_late(stored, clock)
    assert late.find_problem() == late.find_problem() != ""
    assert 1 == stored.reads

    stored.error = ArchiveError("it is down")
    clock[0] += KEPT_SECONDS
    assert "" == late.find_problem()
    assert 2 == stored.reads


class Measuring(Reporters):
    """Reporters that are elected for all clusters and archive in time, but measure nothing."""

    def __init__(self, progress: ReporterProgress) -> None:
        self._progress = progress

    @property
    def progress(self) -> ReporterProgress:
        return self._progress

    @property
    def elected(self) -> dict[str, bool]:
        return {"lab": True}


def test_page_says_that_jobs_are_archived_without_numbers() -> None:
    reporters = Measuring(ReporterProgress(series_problem="Prometheus is down"))

    problems = [*LateReporters(Stored().list_checkpoints, ReporterSettings(), reporters).problems()]

    assert [
        "Jobs are not being measured; they will be when the time series server answers: Prometheus is down"
    ] == problems


def test_page_says_nothing_while_jobs_are_measured() -> None:
    assert [] == [
        *LateReporters(Stored().list_checkpoints, ReporterSettings(), Measuring(ReporterProgress())).problems()
    ]
