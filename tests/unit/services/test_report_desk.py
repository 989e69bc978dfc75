# SPDX-License-Identifier: Apache-2.0
"""A report is found by whoever may see it, in the archive or live, and what is away is told."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from slurmscope.errors import ArchiveError, CommandTimedOut
from slurmscope.model.report import JobReport
from slurmscope.model.viewer import EVERYTHING, Viewer
from slurmscope.services.fresh_values import FRESH_SECONDS, KEPT_VALUES, MADE_AT_ONCE, STALE_SECONDS, FreshValues
from slurmscope.services.readings import Clock
from slurmscope.services.report_desk import ReportDesk
from slurmscope.services.report_maker import ReportMaker
from slurmscope.services.troubles import FORGET_SECONDS, Troubles
from tests.fakes.reporting import FakeAccounting, FakeArchive, FakeSeries
from tests.fakes.reports import START, make_record, make_report
from tests.processes import until

ADA = Viewer(name="ada")
BOB = Viewer(name="bob")
AWAY = CommandTimedOut(["sacct"], "was killed")
ARCHIVED_SECONDS = 120.0


class Bench:
    """Hold a desk and what it asks."""

    def __init__(self) -> None:
        self.now = 0.0
        self.archive = FakeArchive()
        self.accounting = FakeAccounting()
        self.series = FakeSeries()
        self.troubles = Troubles(lambda: self.now)
        maker = ReportMaker(self.series, wall_clock=lambda: START + 9_000.0)
        self.desk = ReportDesk(
            self.archive,  # type: ignore[arg-type]
            self.accounting,
            maker,
            self.troubles,
            archived_seconds=ARCHIVED_SECONDS,
            clock=Clock(monotonic=lambda: self.now, wall=lambda: START + 9_000.0 + self.now),
        )


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_ended_job_comes_from_the_archive(bench: Bench) -> None:
    report = make_report()
    bench.archive.save([report])
    assert report == bench.desk.report(ADA, "4711")
    assert [] == bench.series.asked


def test_newest_run_is_shown(bench: Bench) -> None:
    bench.archive.save([make_report(make_record(start_seconds=START + 500)), make_report()])
    report = bench.desk.report(ADA, "4711")
    assert report is not None
    assert START + 500 == report.record.start_seconds


def test_run_that_was_requeued_is_not_the_last_word(bench: Bench) -> None:
    bench.archive.save([make_report(make_record(state="REQUEUED"))])
    bench.accounting.records.append(make_record(state="RUNNING", start_seconds=START + 500, end_seconds=None))
    report = bench.desk.report(ADA, "4711")
    assert report is not None
    assert "RUNNING" == report.record.state


def test_running_job_is_measured_now(bench: Bench) -> None:
    running = make_record(state="RUNNING", end_seconds=None)
    bench.archive.save([make_report(running)])
    bench.accounting.records.append(running)
    report = bench.desk.report(ADA, "4711")
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
    assert archived == bench.desk.report(ADA, "4711")
    until(lambda: bench.desk.report(ADA, "4711") != archived)
    report = bench.desk.report(ADA, "4711")
    assert report is not None
    assert 9000.0 == report.summary.run_seconds


def test_what_was_archived_long_ago_is_not_shown_of_a_running_job(bench: Bench) -> None:
    archived = archive_running(bench, ARCHIVED_SECONDS)
    assert archived != bench.desk.report(ADA, "4711")


def test_who_looks_again_hears_why_nothing_new_could_be_measured(bench: Bench) -> None:
    archived = archive_running(bench, 1)
    bench.accounting.error = AWAY
    assert archived == bench.desk.report(ADA, "4711")
    until(lambda: (report := bench.desk.report(ADA, "4711")) is not None and "Accounting" in "".join(report.missing))


def test_recent_report_of_a_foreign_job_is_not_shown(bench: Bench) -> None:
    archive_running(bench, 1)
    assert bench.desk.report(BOB, "4711") is None
    assert [] == bench.series.asked


def test_many_looks_at_a_running_job_measure_it_once(bench: Bench) -> None:
    bench.accounting.records.append(make_record(state="RUNNING", end_seconds=None))
    bench.desk.report(ADA, "4711")
    asked = len(bench.series.asked)
    bench.desk.report(ADA, "4711")
    assert asked == len(bench.series.asked)
    bench.now += STALE_SECONDS
    bench.desk.report(ADA, "4711")
    assert 2 * asked == len(bench.series.asked)


def test_kept_reports_are_bounded() -> None:
    live = FreshValues(lambda _: make_report())
    for number in range(KEPT_VALUES + 10):
        live.get(str(number))
    assert KEPT_VALUES == len(live)


def test_old_report_is_shown_while_one_new_one_is_made() -> None:
    now, made = [0.0], []
    go_on = threading.Event()

    def make(shown_id: str) -> JobReport:
        made.append(shown_id)
        assert len(made) == 1 or go_on.wait(60)
        return make_report(made_seconds=len(made))

    live = FreshValues(make, lambda: now[0])
    first = live.get("12")
    now[0] += FRESH_SECONDS
    assert [first] * 3 == [live.get("12") for _ in range(3)]
    go_on.set()
    until(lambda: live.get("12") != first)
    assert ["12", "12"] == made


def test_report_that_cannot_be_renewed_stays_for_a_while() -> None:
    now, made = [0.0], []

    def make(shown_id: str) -> JobReport:
        made.append(shown_id)
        if len(made) > 1:
            raise AWAY
        return make_report()

    live = FreshValues(make, lambda: now[0])
    first = live.get("12")
    now[0] += FRESH_SECONDS
    assert first == live.get("12")
    until(lambda: len(made) == 2)
    now[0] += STALE_SECONDS
    with pytest.raises(CommandTimedOut):
        live.get("12")


def test_only_so_many_are_made_in_the_background() -> None:
    go_on = threading.Event()

    def make(_: str) -> JobReport:
        assert go_on.wait(60)
        return make_report()

    live = FreshValues(make)
    names = [str(number) for number in range(MADE_AT_ONCE + 2)]
    assert [True] * MADE_AT_ONCE + [False] * 2 == [live.begin(name) for name in names]
    assert [True] * MADE_AT_ONCE == [live.begin(name) for name in names[:MADE_AT_ONCE]]
    go_on.set()
    until(lambda: not live.begin(names[0]))
    until(lambda: live.begin(names[-1]))


def test_everybody_waits_for_the_first_report() -> None:
    made = []

    def make(shown_id: str) -> JobReport:
        made.append(shown_id)
        return make_report()

    live = FreshValues(make)
    with ThreadPoolExecutor(8) as pool:
        reports = list(pool.map(live.get, ["12"] * 8))
    assert (8, ["12"]) == (len([report for report in reports if report]), made)


@pytest.mark.parametrize("is_kept", [False, True])
def test_foreign_job_is_like_none(bench: Bench, is_kept: bool) -> None:
    bench.accounting.records.append(make_record(state="RUNNING", end_seconds=None))
    if is_kept:
        assert bench.desk.report(ADA, "4711") is not None
    assert bench.desk.report(BOB, "4711") is None
    assert bench.desk.report(BOB, "4712") is None


def test_foreign_job_is_not_measured(bench: Bench) -> None:
    bench.accounting.records.append(make_record(state="RUNNING", end_seconds=None))
    bench.desk.report(BOB, "4711")
    assert [] == bench.series.asked


def test_report_made_a_moment_ago_is_not_shown_to_the_owner_of_another_job(bench: Bench) -> None:
    bench.accounting.records.append(make_record(user="bob", account="b", state="RUNNING", end_seconds=None))
    bench.desk.report(ADA, "4711")
    bench.now += FRESH_SECONDS - 1
    assert bench.desk.report(BOB, "4711") is not None
    # Another cluster has given the same number to somebody else.
    newer = make_record(submit_seconds=START + 1, cluster="other", state="RUNNING", end_seconds=None)
    bench.accounting.records.append(newer)
    bench.now += 2
    assert bench.desk.report(ADA, "4711") is None
    bench.now += STALE_SECONDS
    report = bench.desk.report(ADA, "4711")
    assert report is not None
    assert "ada" == report.record.user


def test_job_of_many_runs_is_read_once(bench: Bench) -> None:
    runs = [make_record(submit_seconds=START + number, start_seconds=START + number) for number in range(20)]
    bench.archive.save([make_report(run) for run in runs])
    report = bench.desk.report(ADA, "4711")
    assert report is not None
    assert (START + 19, [4711]) == (report.record.submit_seconds, bench.archive.found)


def test_array_task_is_found_by_its_shown_number(bench: Bench) -> None:
    for task in (3, 4):
        bench.accounting.records.append(
            make_record(100 + task, array_job_id=90, array_task_id=task, state="RUNNING", end_seconds=None)
        )
    report = bench.desk.report(ADA, "90_4")
    assert report is not None
    assert 104 == report.record.job_id


def test_number_of_an_array_is_no_single_job(bench: Bench) -> None:
    for task, number in ((3, 103), (4, 90)):
        bench.accounting.records.append(make_record(number, array_job_id=90, array_task_id=task, state="RUNNING"))
    assert bench.desk.report(ADA, "90") is None
    assert bench.desk.report(ADA, "103") is not None


@pytest.mark.parametrize("odd", ["", "0", "12a", "12_", "12_x", "1" * 30, "12\n", "１２", "12_3_4", '12"} or x{y="'])
def test_odd_numbers_are_no_jobs(bench: Bench, odd: str) -> None:
    bench.accounting.error = AWAY
    assert bench.desk.report(EVERYTHING, odd) is None


def test_archive_that_is_away_leaves_what_runs(bench: Bench) -> None:
    bench.archive.error = ArchiveError("the archive is away")
    bench.accounting.records.append(make_record(state="RUNNING", end_seconds=None))
    report = bench.desk.report(ADA, "4711")
    assert report is not None
    assert "the archive is away" in report.missing
    assert ("the archive is away",) == bench.troubles.sentences()


def test_archive_that_is_away_is_not_a_job_that_is_absent(bench: Bench) -> None:
    bench.archive.error = ArchiveError("the archive is away")
    with pytest.raises(ArchiveError, match="is away"):
        bench.desk.report(ADA, "4711")


def test_accounting_that_is_away_leaves_what_is_archived(bench: Bench) -> None:
    bench.archive.save([make_report(make_record(state="RUNNING", end_seconds=None))])
    bench.accounting.error = AWAY
    report = bench.desk.report(ADA, "4711")
    assert report is not None
    assert "Accounting could not be asked" in report.missing[-1]


def test_desk_without_archive_says_that_accounting_is_away() -> None:
    desk = ReportDesk(None, FakeAccounting(error=AWAY), ReportMaker(None))
    with pytest.raises(ArchiveError, match="Accounting could not be asked"):
        desk.report(ADA, "4711")


def test_desk_without_accounting_knows_the_archive() -> None:
    archive = FakeArchive()
    archive.save([make_report()])
    desk = ReportDesk(archive, None, ReportMaker(None))  # type: ignore[arg-type]
    assert (True, None) == (desk.report(ADA, "4711") is not None, desk.report(ADA, "1"))


def test_troubles_end_when_the_server_answers_or_is_forgotten(bench: Bench) -> None:
    bench.troubles.note("archive", "it is away")
    bench.troubles.note("accounting", "so is this")
    bench.troubles.clear("archive")
    assert ("so is this",) == bench.troubles.sentences()
    bench.now += FORGET_SECONDS
    assert () == bench.troubles.sentences()
