# SPDX-License-Identifier: Apache-2.0
"""What an archive of any database records of waiting times, and of what became of advice."""

from __future__ import annotations

import pytest

from slurmscope.archive.advice import SqlAdviceReader
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.jobs.advice import AdviceGroup, Savings
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.rule import Finding
from slurmscope.jobs.viewer import EVERYTHING, Viewer
from tests.contracts.jobs import END_OF_TIME
from tests.contracts.model import (
    DAY,
)
from tests.fakes.reports import (
    START,
    make_finding,
    make_record,
    make_report,
)


class AdviceContract:
    """Run these with a fixture ``archive`` that is empty at first."""

    def test_waiting_times_are_those_of_the_jobs(self, archive: SqlArchive) -> None:
        # Nine jobs of 1 core waited a minute and one an hour; one of 8 cores without a time limit waited a day.
        waits = [(job, 1, 3600, 60) for job in range(9)] + [(10, 1, 3600, 3600), (11, 8, None, DAY)]
        reports = [
            make_report(
                make_record(
                    job, cpus=cpus, time_limit_seconds=limit, submit_seconds=START - wait, eligible_seconds=START - wait
                )
            )
            for job, cpus, limit, wait in waits
        ]
        archive.save([*reports, make_report(make_record(12, start_seconds=None, state="CANCELLED"))])
        archive.save(reports[:3])

        small, large = archive.waiting_times(START - 2 * DAY, cluster="lab", partition="batch")

        assert (10, 0, 0, 1, 2, 6) == (
            small.jobs, small.cores_class, small.limit_class, large.jobs, large.cores_class, large.limit_class,
        )  # fmt: skip
        assert pytest.approx(60, rel=0.3) == small.median_seconds
        assert pytest.approx(60, rel=0.3) == small.p90_seconds
        assert pytest.approx(DAY, rel=0.3) == large.median_seconds
        assert () == archive.waiting_times(START - 2 * DAY, partition="gpu")
        assert () == archive.waiting_times(START - 2 * DAY, cluster="other")
        assert () == archive.waiting_times(START + 2 * DAY)

    def test_advice_that_the_next_run_followed_is_recorded_with_what_it_saved(self, archive: SqlArchive) -> None:
        # One core busy of 16 for two hours; then 4 cores, twice; then 16 again; one that another user ran.
        fewer = (
            make_finding("cpu_idle", suggestion="#SBATCH --cpus-per-task=4"),
            make_finding("io_small", suggestion=""),
        )
        archive.save([_run(1, 0, 16, fewer), _run(9, 0, 16, fewer, user="bob")])
        archive.save([_run(2, 1, 4), _run(3, 2, 4)])
        archive.save([_run(4, 3, 16, fewer), _run(5, 3, 16, user="carol")])
        reader = SqlAdviceReader(archive.database)

        first, other = reader.find_outcomes(EVERYTHING, "lab", 2, START + DAY)
        (third,) = reader.find_outcomes(EVERYTHING, "lab", 3, START + 2 * DAY)
        totals = reader.total_outcomes(EVERYTHING, AdviceGroup.RULE, since_seconds=START)

        assert ("cpu_idle", True, True, True) == (first.rule, first.is_followed, first.is_gone, first.is_first)
        assert ("1", 16, "2", 4) == (first.earlier.shown_id, first.earlier.cpus, first.later.shown_id, first.later.cpus)
        assert Savings(core_seconds=12 * 7200.0) == first.savings
        assert ("io_small", None, True) == (other.rule, other.is_followed, other.is_gone)
        # Further runs save as well, and are not counted as followed once more; the relapse saves nothing.
        assert (True, False, 12 * 7200.0) == (third.is_followed, third.is_first, third.savings.core_seconds)
        assert [] == [found.rule for found in reader.find_outcomes(EVERYTHING, "lab", 4, START + 3 * DAY)]
        assert {("cpu_idle", 1, 1, 0, 2, 24 * 7200.0), ("io_small", 1, 0, 0, 0, 0.0)} == {
            (t.key, t.advised, t.followed, t.ignored, t.saving_runs, t.saved_core_seconds) for t in totals
        }
        # The earlier run links to the one that followed; others see nothing of it.
        assert ["2", "2"] == [found.later.shown_id for found in reader.find_outcomes(EVERYTHING, "lab", 1, START)]
        bob = Viewer(name="bob")
        assert () == reader.find_outcomes(bob, "lab", 2, START + DAY)
        assert () == reader.total_outcomes(bob, AdviceGroup.USER, since_seconds=0)
        assert () == reader.total_outcomes(EVERYTHING, AdviceGroup.USER, since_seconds=0, cluster="other")
        assert 1 == len(reader.total_outcomes(EVERYTHING, AdviceGroup.USER, since_seconds=0, cluster="lab"))
        (mine,) = reader.total_outcomes(Viewer(name="ada"), AdviceGroup.USER, since_seconds=0, user="ada")
        assert ("ada", 24 * 7200.0) == (mine.key, mine.saved_core_seconds)

    def test_outcomes_are_replaced_with_their_run_and_kept_when_it_is_deleted(self, archive: SqlArchive) -> None:
        fewer = (make_finding("cpu_idle", suggestion="#SBATCH --cpus-per-task=4"),)
        reader = SqlAdviceReader(archive.database)
        archive.save([_run(1, 0, 16, fewer)])
        for cpus in (4, 4, 16, 8):
            archive.save([_run(2, 1, cpus)])
        (month,) = reader.total_outcomes(EVERYTHING, AdviceGroup.MONTH, since_seconds=START)

        assert ("2026-09", 1, 1, 0, 8 * 7200.0) == (
            month.key, month.advised, month.followed, month.ignored, month.saved_core_seconds,
        )  # fmt: skip
        assert 2 == archive.delete_jobs(END_OF_TIME)
        assert () == reader.find_outcomes(EVERYTHING, "lab", 2, START + DAY)
        assert (month,) == reader.total_outcomes(EVERYTHING, AdviceGroup.MONTH, since_seconds=START)

    def test_run_that_is_saved_late_is_compared_with_the_next_one(self, archive: SqlArchive) -> None:
        fewer = (make_finding("cpu_idle", suggestion="#SBATCH --cpus-per-task=4"),)
        reader = SqlAdviceReader(archive.database)
        for report in (_run(3, 2, 4), _run(1, 0, 32, fewer), _run(2, 1, 16, fewer), _run(4, 3, 4)):
            archive.save([report])

        totals = reader.total_outcomes(EVERYTHING, AdviceGroup.RULE, since_seconds=START)
        (third,) = reader.find_outcomes(EVERYTHING, "lab", 3, START + 2 * DAY)

        # The second run went half of the way from 32 to 4 cores; the third is compared with the second, not the first.
        assert [("cpu_idle", 2, 2, 0)] == [(t.key, t.advised, t.followed, t.ignored) for t in totals]
        assert ("2", 12 * 7200.0) == (third.earlier.shown_id, third.savings.core_seconds)

    def test_run_that_is_saved_late_is_compared_with_all_that_were_submitted_before_the_next_end(
        self, archive: SqlArchive
    ) -> None:
        """As with a job that was measured again after two runs had followed it, at the same time."""
        archive.save([_run(1, 0, 16), _run(2, 1, 4), _run(3, 1, 4), _run(4, 2, 4)])
        reader = SqlAdviceReader(archive.database)
        assert () == reader.find_outcomes(EVERYTHING, "lab", 3, START + DAY)

        archive.save([_run(1, 0, 16, (make_finding("cpu_idle", suggestion="#SBATCH --cpus-per-task=4"),))])
        found = [reader.find_outcomes(EVERYTHING, "lab", job, START + DAY) for job in (2, 3)]
        assert [["cpu_idle"], ["cpu_idle"]] == [[outcome.rule for outcome in outcomes] for outcomes in found]

    def test_outcome_is_forgotten_when_the_advised_run_is_saved_again_without_findings(
        self, archive: SqlArchive
    ) -> None:
        fewer = (make_finding("cpu_idle", suggestion="#SBATCH --cpus-per-task=4"),)
        reader = SqlAdviceReader(archive.database)
        for report in (_run(1, 0, 16, fewer), _run(2, 1, 4), _run(1, 0, 16)):
            archive.save([report])

        totals = reader.total_outcomes(EVERYTHING, AdviceGroup.RULE, since_seconds=START)

        assert [] == [total.key for total in totals if total.advised or total.followed or total.saved_core_seconds]
        assert () == reader.find_outcomes(EVERYTHING, "lab", 2, START + DAY)

    def test_advice_is_compared_where_its_user_could_know_it(self, archive: SqlArchive) -> None:
        fewer = (make_finding("cpu_idle", suggestion="#SBATCH --cpus-per-task=4"),)
        archive.save(
            [
                _run(1, 0, 16, fewer),
                # Submitted before the first ended; of a name that says nothing; of another cluster.
                make_report(
                    make_record(2, submit_seconds=START + 60, end_seconds=START + 3 * DAY, cpus=16), findings=()
                ),
                _run(3, 0, 16, fewer, name="bash"),
                _run(4, 1, 16, name="bash"),
                _run(5, 1, 16, cluster="other"),
                # A whole array counts once: the task that has its number.
                *(_run(job, 2, 16, array_job_id=12, array_task_id=job) for job in (10, 11, 12)),
            ]
        )

        (total,) = SqlAdviceReader(archive.database).total_outcomes(EVERYTHING, AdviceGroup.RULE, since_seconds=0)

        assert ("cpu_idle", 1, 0, 1) == (total.key, total.advised, total.followed, total.ignored)


def _run(job_id: int, day: int, cpus: int, findings: tuple[Finding, ...] = (), **changed: object) -> JobReport:
    """Make a run of two hours on this day."""
    start = START + day * DAY
    times = {"submit_seconds": start, "start_seconds": start, "end_seconds": start + 7200}
    return make_report(make_record(job_id, cpus=cpus, **times, **changed), findings=findings)
