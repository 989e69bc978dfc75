# SPDX-License-Identifier: Apache-2.0
"""What is deleted and thinned in an archive of any database, and what is kept."""

from __future__ import annotations

from dataclasses import replace

from slurmscope.archive.interface import GroupBy, JobFilter
from slurmscope.archive.size import Growth, count_growth, measure_size
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.archive.stored_reports import THINNED
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.viewer import EVERYTHING, Viewer
from tests.contracts.jobs import END_OF_TIME, check_totals, make_fact, make_small_report
from tests.contracts.model import (
    DAY,
    NEW_YEAR,
    Fact,
    ListArchive,
)
from tests.contracts.sums import check_sums
from tests.fakes.reports import (
    START,
    make_gpu_report,
    make_record,
    make_report,
    make_unmeasured_report,
)


class RetentionContract:
    """Run these with a fixture ``archive`` that is empty at first."""

    def test_sums_are_empty_after_everything_was_forgotten(self, archive: SqlArchive) -> None:
        archive.save([make_report(), make_gpu_report()])
        later = make_report(make_record(5, submit_seconds=START + DAY))
        archive.save([later])

        assert START + DAY == archive.newest_submit_seconds()
        assert 2 == archive.delete_jobs(START + DAY)
        assert (later,) == archive.find(EVERYTHING, 5)
        assert [1] == [total.jobs for total in archive.total(EVERYTHING, JobFilter(), GroupBy.DAY)]
        assert 1 == archive.delete_jobs(END_OF_TIME)
        assert () == archive.total(EVERYTHING, JobFilter(), GroupBy.RULE)
        assert (0, None) == (archive.delete_jobs(END_OF_TIME), archive.newest_submit_seconds())

    def test_day_by_day_the_oldest_jobs_are_deleted_with_their_sums(self, archive: SqlArchive) -> None:
        model, states = ListArchive(), ("COMPLETED", "FAILED", "TIMEOUT")
        for number in range(70):
            fact = replace(make_fact(number), state=states[number % 3])
            model.save([fact, replace(fact, job_id=1000 + number, user="eve", partition="long")])
        running = make_record(2000, submit_seconds=NEW_YEAR + 5 * DAY, state="RUNNING", end_seconds=None)
        archive.save([_ended(fact) for fact in model.facts] + [make_unmeasured_report(running)])

        before = NEW_YEAR + 40 * DAY + 100
        while archive.delete_jobs(before):
            pass

        model.facts = [fact for fact in model.facts if fact.submit + 60 >= before]
        found = [row for row in archive.list_jobs(EVERYTHING, JobFilter(), limit=1000).rows if row.job_id != 2000]
        assert sorted(fact.job_id for fact in model.facts) == sorted(row.job_id for row in found)
        assert 1 == len(archive.find_shown(EVERYTHING, "2000"))
        archive.save([make_unmeasured_report(replace(running, state="COMPLETED", end_seconds=NEW_YEAR + 6 * DAY))])
        assert [1, 0] == [archive.delete_jobs(before) for _ in range(2)]
        for by in GroupBy:
            check_totals(archive, model, EVERYTHING, JobFilter(), by)
            check_totals(archive, model, Viewer(name="eve"), JobFilter(), by)
        check_sums(archive)
        assert sum(total.jobs for total in archive.total(EVERYTHING, JobFilter(), GroupBy.USER)) == sum(
            waited.jobs for waited in archive.waiting_times(0)
        )

    def test_size_and_growth_are_those_of_ended_jobs(self, archive: SqlArchive) -> None:
        def grow(now: int) -> Growth:
            with archive.database.reading() as connection:
                return count_growth(connection, now)

        assert Growth(jobs=0, recent_jobs=0, days=0.0) == grow(NEW_YEAR + 40 * DAY)
        # Each ends a minute after its submission, the first 40 days before the last.
        archive.save([_ended(replace(make_fact(number), submit=NEW_YEAR + 10 * number * DAY)) for number in range(5)])
        running = make_record(2000, submit_seconds=NEW_YEAR, state="RUNNING", end_seconds=None)
        archive.save([make_unmeasured_report(running)])

        grown = grow(NEW_YEAR + 40 * DAY + 60)
        assert (5, 4, 30.0) == (grown.jobs, grown.recent_jobs, grown.days)
        assert 0.5 == grow(NEW_YEAR + DAY // 2 + 60).days
        size = measure_size(archive.database)
        assert size.used_bytes > 10_000
        assert (size.free_bytes is not None) == (archive.database.dialect == "sqlite")

    def test_report_without_its_curves_says_so(self, archive: SqlArchive) -> None:
        archive.save([make_report(), make_report(make_record(5, submit_seconds=START + DAY))])

        assert 1 == archive.delete_curves(START + DAY)

        (old,), (new,) = archive.find(EVERYTHING, 4711), archive.find(EVERYTHING, 5)
        assert ((), "The curves of this job are not kept any more.") == (old.charts, old.missing[-1])
        assert (make_report().charts, make_report().missing) == (new.charts, new.missing)
        assert make_report().findings == old.findings

    def test_curves_of_old_jobs_are_thinned_once(self, archive: SqlArchive) -> None:
        report = make_report()
        times = tuple(START + 60.0 * number for number in range(120))
        line = replace(report.charts[0].lines[0], values=tuple(float(number) for number in range(120)))
        chart = replace(report.charts[0], unit="cores", times=times, lines=(line,))
        long = replace(report, charts=(chart, replace(chart, unit="bytes")))
        running = make_record(6, state="RUNNING", end_seconds=None, submit_seconds=START - 700)
        young = replace(long, summary=replace(long.summary, record=make_record(5, submit_seconds=START + 2 * DAY)))
        still = replace(long, summary=replace(long.summary, record=running))
        archive.save([long, still, young, make_unmeasured_report(make_record(7))])

        assert [2, 0] == [archive.thin_curves(START + DAY, 12) for _ in range(2)]

        (thinned,) = archive.find(EVERYTHING, 4711)
        # Ten minutes each: of 0 to 9 the mean is 4.5, and the highest 9.
        assert [(4.5, 14.5), (9.0, 19.0)] == [each.lines[0].values[:2] for each in thinned.charts]
        assert (START + 270.0, 12) == (thinned.charts[0].times[0], len(thinned.charts[0].times))
        assert (*report.missing, THINNED) == thinned.missing
        assert [(still,), (young,)] == [archive.find(EVERYTHING, job) for job in (6, 5)]
        assert 1 == archive.thin_curves(END_OF_TIME, 12)

    def test_curves_of_long_jobs_are_thinned_when_they_are_old(self, archive: SqlArchive) -> None:
        # Submitted before the limit, ended after it; another one is submitted later and ended sooner.
        long = make_record(1, submit_seconds=START, start_seconds=START, end_seconds=START + 20 * DAY)
        short = make_record(2, submit_seconds=START + DAY, start_seconds=START + DAY, end_seconds=START + DAY + 60)
        unfinished = make_record(3, state="RUNNING", end_seconds=None, submit_seconds=START, start_seconds=START)
        archive.save([make_report(record) for record in (long, short, unfinished)])

        assert [1, 0] == [archive.thin_curves(START + 10 * DAY, 12) for _ in range(2)]
        assert [False, True, False] == [_is_thinned(archive, job) for job in (1, 2, 3)]
        # A longer time to keep them whole, and a clock that went back.
        assert 0 == archive.thin_curves(START + 5 * DAY, 12)
        archive.save([make_report(replace(unfinished, state="COMPLETED", end_seconds=START + 21 * DAY))])
        assert [1, 1, 0] == [archive.thin_curves(START + days * DAY, 12) for days in (21, 22, 23)]
        assert [True, True, True] == [_is_thinned(archive, job) for job in (1, 2, 3)]

    def test_job_is_as_old_as_its_end(self, archive: SqlArchive) -> None:
        # Submitted 60 days before, ended 1 day before: what is kept for 30 days is kept for 29 more.
        now = START + 60 * DAY
        archive.save([make_report(make_record(submit_seconds=START, start_seconds=START, end_seconds=now - DAY))])

        forgotten = [
            forget(now - days * DAY) for forget in (archive.delete_curves, archive.delete_jobs) for days in (30, 1, 0)
        ]

        assert [0, 0, 1, 0, 0, 1] == forgotten

    def test_job_that_runs_is_not_taken_out(self, archive: SqlArchive) -> None:
        running = make_report(make_record(state="RUNNING", end_seconds=None))
        archive.save([running])

        assert (0, 0) == (archive.delete_curves(END_OF_TIME), archive.delete_jobs(END_OF_TIME))
        assert (running,) == archive.find(EVERYTHING, 4711)

    def test_days_come_in_order_and_the_latest_ones_are_kept(self, archive: SqlArchive) -> None:
        archive.save([make_small_report(day + 1, NEW_YEAR + day * DAY) for day in range(5)])

        totals = archive.total(EVERYTHING, JobFilter(), GroupBy.DAY, limit=3)

        assert ["2026-01-03", "2026-01-04", "2026-01-05"] == [total.key for total in totals]


def _ended(fact: Fact) -> JobReport:
    """Return the report of a job that ended a moment after it began."""
    report = fact.report()
    record = replace(report.record, end_seconds=fact.submit + 60)
    return replace(report, summary=replace(report.summary, record=record))


def _is_thinned(archive: SqlArchive, job_id: int) -> bool:
    (report,) = archive.find(EVERYTHING, job_id)
    return THINNED in report.missing
