# SPDX-License-Identifier: Apache-2.0
"""A report is found for viewers who may see it, archived or live, and outages are reported."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from slurmscope.core.clock import Clock
from slurmscope.core.errors import ArchiveError, MalformedAnswer, SourceError
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.reports.find import ALL_BURST, OUTAGE_SECONDS, ReportFinder, TooManyLookups
from slurmscope.reports.live_cache import FRESH_SECONDS, KEPT_VALUES, STALE_SECONDS
from slurmscope.reports.make import ReportMaker
from tests.fakes.report_finding import ADA, ARCHIVED_SECONDS, BOB, TIMED_OUT, Bench, CountedAccounting, person
from tests.fakes.reporting import FakeAccounting, FakeArchive
from tests.fakes.reports import START, make_record, make_report
from tests.processes import until


def test_ended_job_comes_from_the_archive(bench: Bench) -> None:
    report = make_report()
    bench.archive.save([report])
    assert report == bench.finder.report(ADA, "4711")
    assert [] == bench.series.queried


def test_newest_run_is_shown(bench: Bench) -> None:
    bench.archive.save([make_report(make_record(start_seconds=START + 500)), make_report()])
    report = bench.finder.report(ADA, "4711")
    assert report is not None
    assert START + 500 == report.record.start_seconds


def test_run_that_was_requeued_is_not_the_last_word(bench: Bench) -> None:
    bench.archive.save([make_report(make_record(state="REQUEUED"))])
    bench.accounting.records.append(make_record(state="RUNNING", start_seconds=START + 500, end_seconds=None))
    report = bench.finder.report(ADA, "4711")
    assert report is not None
    assert "RUNNING" == report.record.state


def test_running_job_is_measured_now(bench: Bench) -> None:
    running = make_record(state="RUNNING", end_seconds=None)
    bench.archive.save([make_report(running)])
    bench.accounting.records.append(running)
    report = bench.finder.report(ADA, "4711")
    assert report is not None
    assert 9000.0 == report.summary.run_seconds


def archive_running(bench: Bench, age_seconds: float) -> JobReport:
    """Let a job run whose report was archived so long ago."""
    running = make_record(state="RUNNING", end_seconds=None)
    archived = make_report(running, made_seconds=int(START + 9_000 - age_seconds))
    bench.archive.save([archived])
    bench.accounting.records.append(running)
    return archived


def test_who_comes_first_sees_what_was_archived_lately_and_soon_what_is_measured_now(bench: Bench) -> None:
    archived = archive_running(bench, ARCHIVED_SECONDS - 1)
    assert archived == bench.finder.report(ADA, "4711")
    until(lambda: bench.finder.report(ADA, "4711") != archived)
    report = bench.finder.report(ADA, "4711")
    assert report is not None
    assert 9000.0 == report.summary.run_seconds


def test_what_was_archived_long_ago_is_not_shown_of_a_running_job(bench: Bench) -> None:
    archived = archive_running(bench, ARCHIVED_SECONDS)
    assert archived != bench.finder.report(ADA, "4711")


def test_second_view_has_the_reason_why_nothing_could_be_measured(bench: Bench) -> None:
    archived = archive_running(bench, 1)
    bench.accounting.error = TIMED_OUT
    assert archived == bench.finder.report(ADA, "4711")
    until(lambda: (report := bench.finder.report(ADA, "4711")) is not None and "Accounting" in "".join(report.missing))


def test_recent_report_of_a_foreign_job_is_not_shown(bench: Bench) -> None:
    archive_running(bench, 1)
    assert bench.finder.report(BOB, "4711") is None
    assert [] == bench.series.queried


def test_many_views_of_a_running_job_measure_it_once(bench: Bench) -> None:
    bench.accounting.records.append(make_record(state="RUNNING", end_seconds=None))
    bench.finder.report(ADA, "4711")
    queries = len(bench.series.queried)
    bench.finder.report(ADA, "4711")
    assert queries == len(bench.series.queried)
    bench.now += STALE_SECONDS
    bench.finder.report(ADA, "4711")
    assert 2 * queries == len(bench.series.queried)


@pytest.mark.parametrize("is_kept", [False, True])
def test_foreign_job_is_like_none(bench: Bench, is_kept: bool) -> None:
    bench.accounting.records.append(make_record(state="RUNNING", end_seconds=None))
    if is_kept:
        assert bench.finder.report(ADA, "4711") is not None
    assert bench.finder.report(BOB, "4711") is None
    assert bench.finder.report(BOB, "4712") is None


def test_absent_job_costs_accounting_as_many_questions_as_a_foreign_one(bench: Bench) -> None:
    bench.accounting.records.append(make_record(state="RUNNING", end_seconds=None))

    def lookup(times: int) -> None:
        for _ in range(times):
            assert [None, None] == [bench.finder.report(BOB, number) for number in ("4711", "4712")]

    lookup(3)
    assert [4711, 4712] == bench.accounting.read_ids
    bench.now += STALE_SECONDS
    lookup(3)
    assert [4711, 4712] * 2 == bench.accounting.read_ids
    bench.now += FRESH_SECONDS
    lookup(1)
    until(lambda: sorted(bench.accounting.read_ids) == [4711] * 3 + [4712] * 3)


def test_walk_through_absent_numbers_pushes_no_live_report_out(bench: Bench) -> None:
    bench.accounting.records.append(make_record(state="RUNNING", end_seconds=None))
    report = bench.finder.report(ADA, "4711")
    measured = len(bench.series.queried)
    for number in range(ALL_BURST - 1):
        assert bench.finder.report(person(number), str(5000 + number)) is None
    for number in range(ALL_BURST - 1, KEPT_VALUES + 44):
        with pytest.raises(TooManyLookups):
            bench.finder.report(BOB, str(5000 + number))
    assert report == bench.finder.report(ADA, "4711")
    assert measured == len(bench.series.queried)


def test_record_that_was_kept_does_not_say_that_accounting_answers(bench: Bench) -> None:
    bench.accounting.records.append(make_record(state="RUNNING", end_seconds=None))
    bench.finder.report(BOB, "4711")
    bench.accounting.error = TIMED_OUT
    bench.finder.report(BOB, "4712")
    bench.finder.report(BOB, "4711")
    assert ("was killed",) == bench.outages.problems()


def test_accounting_that_fails_between_two_queries_is_like_one_that_is_unreachable() -> None:
    class FailingLater(CountedAccounting):
        def read_jobs(self, job_ids: Sequence[int]) -> tuple[JobRecord, ...]:
            self.error = TIMED_OUT if self.read_ids else None
            return super().read_jobs(job_ids)

    accounting = FailingLater()
    accounting.records.append(make_record(state="RUNNING", end_seconds=None))
    # Whatever was read is too old a moment later.
    ticks = itertools.count(0, int(STALE_SECONDS))
    clock = Clock(monotonic=lambda: float(next(ticks)), wall=lambda: START)
    finder = ReportFinder(FakeArchive(), accounting, ReportMaker(None), clock=clock)  # type: ignore[arg-type]
    assert (None, [4711, 4711]) == (finder.report(ADA, "4711"), accounting.read_ids)


def test_foreign_job_is_not_measured(bench: Bench) -> None:
    bench.accounting.records.append(make_record(state="RUNNING", end_seconds=None))
    bench.finder.report(BOB, "4711")
    assert [] == bench.series.queried


def test_report_made_a_moment_ago_is_not_shown_to_the_owner_of_another_job(bench: Bench) -> None:
    bench.accounting.records.append(make_record(user="bob", account="b", state="RUNNING", end_seconds=None))
    bench.finder.report(ADA, "4711")
    bench.now += FRESH_SECONDS - 1
    assert bench.finder.report(BOB, "4711") is not None
    # Slurm has used the number again.
    newer = make_record(submit_seconds=START + 1, state="RUNNING", end_seconds=None)
    bench.accounting.records.append(newer)
    bench.now += 2
    assert bench.finder.report(ADA, "4711") is None
    bench.now += STALE_SECONDS
    report = bench.finder.report(ADA, "4711")
    assert report is not None
    assert "ada" == report.record.user


def test_job_of_many_runs_is_read_once(bench: Bench) -> None:
    runs = [make_record(submit_seconds=START + number, start_seconds=START + number) for number in range(20)]
    bench.archive.save([make_report(run) for run in runs])
    report = bench.finder.report(ADA, "4711")
    assert report is not None
    assert (START + 19, [4711]) == (report.record.submit_seconds, bench.archive.found)


def test_array_task_is_found_by_its_shown_number(bench: Bench) -> None:
    for task in (3, 4):
        bench.accounting.records.append(
            make_record(100 + task, array_job_id=90, array_task_id=task, state="RUNNING", end_seconds=None)
        )
    report = bench.finder.report(ADA, "90_4")
    assert report is not None
    assert 104 == report.record.job_id


def test_number_of_an_array_is_no_single_job(bench: Bench) -> None:
    for task, number in ((3, 103), (4, 90)):
        bench.accounting.records.append(make_record(number, array_job_id=90, array_task_id=task, state="RUNNING"))
    assert bench.finder.report(ADA, "90") is None
    assert bench.finder.report(ADA, "103") is not None


@pytest.mark.parametrize("odd", ["", "0", "12a", "12_", "12_x", "1" * 30, "12\n", "１２", "12_3_4", '12"} or x{y="'])
def test_odd_numbers_are_no_jobs(bench: Bench, odd: str) -> None:
    bench.accounting.error = TIMED_OUT
    assert bench.finder.report(EVERYTHING, odd) is None


def test_archive_that_is_unreachable_leaves_what_runs(bench: Bench) -> None:
    bench.archive.error = ArchiveError("the archive is down")
    bench.accounting.records.append(make_record(state="RUNNING", end_seconds=None))
    report = bench.finder.report(ADA, "4711")
    assert report is not None
    assert "the archive is down" in report.missing
    assert ("the archive is down",) == bench.outages.problems()


def test_unreachable_archive_is_not_a_missing_job(bench: Bench) -> None:
    bench.archive.error = ArchiveError("the archive is down")
    with pytest.raises(ArchiveError, match="is down"):
        bench.finder.report(ADA, "4711")


def test_accounting_that_is_unreachable_leaves_what_is_archived(bench: Bench) -> None:
    bench.archive.save([make_report(make_record(state="RUNNING", end_seconds=None))])
    bench.accounting.error = TIMED_OUT
    report = bench.finder.report(ADA, "4711")
    assert report is not None
    assert "Accounting could not be read" in report.missing[-1]


def test_finder_without_archive_reports_unreachable_accounting() -> None:
    finder = ReportFinder(None, FakeAccounting(error=TIMED_OUT), ReportMaker(None))
    with pytest.raises(SourceError, match="Accounting could not be read"):
        finder.report(ADA, "4711")


def test_finder_without_accounting_reads_the_archive() -> None:
    archive = FakeArchive()
    archive.save([make_report()])
    finder = ReportFinder(archive, None, ReportMaker(None))  # type: ignore[arg-type]
    assert (True, None) == (finder.report(ADA, "4711") is not None, finder.report(ADA, "1"))


def test_outages_end_when_the_server_answers_or_after_a_while(bench: Bench) -> None:
    bench.outages.note("archive", "it is down")
    bench.outages.note("accounting", "so is this")
    bench.outages.clear("archive")
    assert ("so is this",) == bench.outages.problems()
    bench.now += OUTAGE_SECONDS
    assert () == bench.outages.problems()


def test_record_that_cannot_be_read_is_like_a_job_that_does_not_exist(bench: Bench) -> None:
    bench.accounting.error = MalformedAnswer("sacct: none of 1 rows could be parsed, such as that of 4713")
    unreadable = bench.finder.report(BOB, "4713"), bench.outages.problems()
    bench.accounting.error = None
    absent = bench.finder.report(BOB, "4714"), bench.outages.problems()

    assert (None, ()) == absent == unreadable
