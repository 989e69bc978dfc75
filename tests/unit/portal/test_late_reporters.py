# SPDX-License-Identifier: Apache-2.0
"""A portal that is not the reporter notices that jobs are archived late."""

from __future__ import annotations

import pytest

from slurmscope.core.errors import ArchiveError
from slurmscope.core.units import DAY_SECONDS
from slurmscope.portal.checks import GONE_SECONDS, KEPT_SECONDS, LateReporters
from slurmscope.reporter.reporter import CLUSTER_CHECKPOINT, ReporterProgress
from slurmscope.reporter.reporters import Reporters
from slurmscope.reporter.retention import ReporterSettings

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
    """Reporters of one cluster that archive in time, but measure nothing."""

    def __init__(self, progress: ReporterProgress, *, is_elected: bool = True) -> None:
        self._progress = progress
        self._is_elected = is_elected

    @property
    def progress(self) -> ReporterProgress:
        return self._progress

    @property
    def elected(self) -> dict[str, bool]:
        return {"lab": self._is_elected}


def test_page_says_that_jobs_are_archived_without_numbers() -> None:
    reporters = Measuring(ReporterProgress(series_problem="Prometheus is down"))

    problems = [*LateReporters(Stored().list_checkpoints, ReporterSettings(), reporters).problems()]

    assert [
        "Jobs are not being measured; they will be when the time series server answers: Prometheus is down"
    ] == problems


def test_page_says_nothing_while_jobs_are_measured() -> None:
    assert [] == [
        *LateReporters(Stored().list_checkpoints, ReporterSettings(), Measuring(ReporterProgress(rounds=1))).problems()
    ]


def test_first_round_says_how_far_it_is() -> None:
    """Lists are empty meanwhile, although the cluster has jobs."""
    progress = ReporterProgress(jobs_archived=1234, read_until_seconds=float(NOW))
    (sentence,) = LateReporters(Stored().list_checkpoints, ReporterSettings(), Measuring(progress)).problems()

    # date -u -d @1790000000
    assert "still being read from Slurm's accounting: 1,234 so far; those that ended until 2026-09-21 14:13" in sentence


def test_portal_that_another_one_reads_for_waits_for_no_first_round() -> None:
    standby = Measuring(ReporterProgress(), is_elected=False)
    stored = Stored({read_until("lab"): str(NOW - 300)})
    late = LateReporters(stored.list_checkpoints, ReporterSettings(), standby, wall_clock=lambda: float(NOW))
    assert [] == [*late.problems()]
