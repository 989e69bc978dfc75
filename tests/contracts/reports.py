# SPDX-License-Identifier: Apache-2.0
"""What an archive of any database keeps of each report, and finds again."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from slurmscope.archive.interface import GroupBy, JobFilter
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.core.errors import ArchiveError
from slurmscope.jobs.rule import Severity, Subject
from slurmscope.jobs.summary import Coverage
from slurmscope.jobs.viewer import EVERYTHING
from tests.contracts.jobs import make_small_report
from tests.fakes.reports import (
    GIB,
    START,
    make_finding,
    make_gpu_report,
    make_record,
    make_report,
    make_unmeasured_report,
)


class ReportContract:
    """Run these with a fixture ``archive`` that is empty at first."""

    def test_report_comes_back_whole(self, archive: SqlArchive) -> None:
        report = make_gpu_report()

        archive.save([report])

        assert (report,) == archive.find(EVERYTHING, 4712)

    def test_report_without_measurements_comes_back_without_zeros(self, archive: SqlArchive) -> None:
        report = make_unmeasured_report(make_record(7, memory_bytes=None, cpus=None))

        archive.save([report])

        (row,) = archive.list_jobs(EVERYTHING, JobFilter()).rows
        assert (report,) == archive.find(EVERYTHING, 7)
        assert (None, None, None, None) == (row.cpu_ratio, row.memory_ratio, row.gpu_ratio, row.memory_bytes)
        assert row.cpus is None
        assert (None, None, None, ()) == (row.wasted_core_seconds, row.wasted_gpu_seconds, row.worst, row.rules)

    def test_incomplete_runs_are_listed_until_they_are_complete(self, archive: SqlArchive) -> None:
        ended = [replace(make_report(make_record(number)), is_incomplete=True) for number in (1, 2, 3)]
        older = replace(make_report(make_record(4, end_seconds=START + 60)), is_incomplete=True)
        running = replace(make_report(make_record(5, state="RUNNING", end_seconds=None)), is_incomplete=True)
        archive.save([*ended, older, running, make_report(make_record(6))])

        ends = {1: START + 7200, 2: START + 7200, 3: START + 7200, 4: START + 60}
        runs = archive.incomplete_runs(cluster="lab")
        assert {("lab", number, ended[0].record.submit_seconds): end for number, end in ends.items()} == runs
        assert ("lab", 4) == next(iter(runs))[:2], "the oldest is first"

        archive.save([make_report(make_record(2))])
        assert {1, 3, 4} == {job_id for _, job_id, _ in archive.incomplete_runs(cluster="lab")}
        archive.delete_jobs(START + 365 * 86400)
        assert {} == archive.incomplete_runs(cluster="lab")

    def test_clusters_and_their_incomplete_runs_are_told_apart(self, archive: SqlArchive) -> None:
        assert () == archive.clusters()

        beta = replace(make_report(make_record(1, cluster="beta")), is_incomplete=True)
        archive.save([replace(make_report(make_record(1)), is_incomplete=True), beta, make_report(make_record(2))])

        assert ("beta", "lab") == archive.clusters()
        record = beta.record
        runs = archive.incomplete_runs(cluster="beta")
        assert {("beta", 1, record.submit_seconds): record.end_seconds} == runs
        assert {} == archive.incomplete_runs(cluster="gamma")

    def test_row_holds_what_the_report_says(self, archive: SqlArchive) -> None:
        archive.save([make_gpu_report()])

        (row,) = archive.list_jobs(EVERYTHING, JobFilter()).rows

        # Two of four cores for two hours; a tenth of 8 GiB; two hours of a day; two GPUs at 1 %.
        assert (0.5, 0.01) == (row.cpu_ratio, row.gpu_ratio)
        assert pytest.approx(0.1) == row.memory_ratio
        assert pytest.approx(7200 / 86400) == row.time_ratio
        assert (28800.0, 14400.0) == (row.core_seconds, row.wasted_core_seconds)
        assert pytest.approx(2 * 7200 * 0.99) == row.wasted_gpu_seconds
        assert (8 * GIB, 1, 4, 2) == (row.memory_bytes, row.nodes, row.cpus, row.gpus)
        assert (Severity.CRITICAL, ("cpu_idle", "memory_over_requested")) == (row.worst, row.rules)
        assert ("4712", "bob", START - 600, START) == (row.shown_id, row.user, row.submit_seconds, row.start_seconds)

    def test_job_that_took_more_than_its_cores_does_not_hide_the_waste_of_others(self, archive: SqlArchive) -> None:
        report, idle = make_report(), make_report(make_record(1))
        busy = replace(report.summary.cpu, time=replace(report.summary.cpu.time, used=99_999_999.0))

        archive.save([replace(report, summary=replace(report.summary, cpu=busy)), idle])

        rows = archive.list_jobs(EVERYTHING, JobFilter()).rows
        (total,) = archive.total(EVERYTHING, JobFilter(), GroupBy.USER)
        # The idle job used half of its 28,800 core seconds.
        assert {4711: 0.0, 1: 14400.0} == {row.job_id: row.wasted_core_seconds for row in rows}
        assert (57600.0, 43200.0) == (total.measured_core_seconds, total.used_core_seconds)

    def test_what_half_of_the_nodes_used_is_not_the_use_of_the_job(self, archive: SqlArchive) -> None:
        report = make_report()
        half = Coverage(nodes=2, nodes_measured=1, run_ratio=1.0)
        cpu = replace(report.summary.cpu, time=replace(report.summary.cpu.time, coverage=half))

        archive.save([replace(report, summary=replace(report.summary, cpu=cpu, coverage=half))])

        (total,) = archive.total(EVERYTHING, JobFilter(), GroupBy.USER)
        assert (28800.0, 0.0, 0.0) == (total.core_seconds, total.measured_core_seconds, total.used_core_seconds)

    def test_later_report_of_a_run_replaces_the_earlier_one(self, archive: SqlArchive) -> None:
        running = make_report(make_record(state="RUNNING", end_seconds=None))
        ended = make_report(findings=(make_finding("too_short", Subject.TIME),))

        archive.save([running])
        was_unfinished = [job_id for _, job_id, _ in archive.unfinished_runs()]
        archive.save([ended])

        assert [4711] == was_unfinished
        assert frozenset() == archive.unfinished_runs()
        assert (ended,) == archive.find(EVERYTHING, 4711)
        assert () == archive.list_jobs(EVERYTHING, JobFilter(rule="cpu_idle")).rows
        assert [1] == [total.jobs for total in archive.total(EVERYTHING, JobFilter(), GroupBy.STATE)]

    def test_runs_of_a_requeued_job_are_kept_apart_newest_first(self, archive: SqlArchive) -> None:
        first = make_report(make_record(state="REQUEUED"))
        second = make_report(make_record(submit_seconds=START + 900, start_seconds=START + 1000, restarts=1))

        archive.save([first, second])

        assert (second, first) == archive.find(EVERYTHING, 4711)

    def test_clusters_are_listed_in_order(self, archive: SqlArchive) -> None:
        assert () == archive.clusters()
        archive.save([make_report(make_record(number, cluster=name)) for number, name in enumerate(("b", "a", "b"), 1)])
        assert ("a", "b") == archive.clusters()

    def test_job_of_one_of_two_clusters_is_found(self, archive: SqlArchive) -> None:
        ours, theirs = make_report(), make_report(make_record(cluster="other"))

        archive.save([ours, theirs])

        assert (theirs,) == archive.find(EVERYTHING, 4711, cluster="other")
        assert ["lab"] == [row.cluster for row in archive.find_shown(EVERYTHING, "4711", cluster="lab")]
        assert ["other"] == [row.cluster for row in archive.list_jobs(EVERYTHING, JobFilter(cluster="other")).rows]

    def test_one_bad_report_keeps_all_from_being_saved(self, archive: SqlArchive) -> None:
        bad = make_report(make_record(8))
        bad = replace(bad, summary=replace(bad.summary, run_seconds="long"))  # type: ignore[arg-type]

        with pytest.raises((ArchiveError, TypeError)):
            archive.save([make_report(make_record(7)), bad])

        assert () == archive.list_jobs(EVERYTHING, JobFilter()).rows

    def test_jobs_are_found_by_the_number_users_write(self, archive: SqlArchive) -> None:
        task = make_report(make_record(13, array_job_id=12, array_task_id=3))
        part = make_report(make_record(21, het_job_id=20, het_offset=1))
        archive.save([task, part, make_report(make_record(12))])

        found = [[row.job_id for row in archive.find_shown(EVERYTHING, shown)] for shown in ("12_3", "20+1", "12", "x")]

        assert [[13], [21], [12], []] == found
        assert [13] == [row.job_id for row in archive.list_jobs(EVERYTHING, JobFilter(array_job_id=12)).rows]

    def test_two_reporters_at_once_lose_nothing_and_count_nothing_twice(self, archive: SqlArchive) -> None:
        failures: list[Exception] = []

        def save(first: int) -> None:
            try:
                for start in range(first, first + 60, 20):
                    archive.save([make_small_report(number) for number in range(start, start + 20)])
            except ArchiveError as error:
                failures.append(error)

        threads = [threading.Thread(target=save, args=(first,)) for first in (0, 0, 30, 30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        # A conflict may end a save with an error, never with half of it; the reporter then saves again.
        if failures:
            save(0)
            save(30)
        assert list(range(90)) == sorted(
            row.job_id for row in archive.list_jobs(EVERYTHING, JobFilter(), limit=500).rows
        )
        assert [90] == [total.jobs for total in archive.total(EVERYTHING, JobFilter(), GroupBy.ACCOUNT)]

    def test_runs_that_ended_are_known_by_their_numbers(self, archive: SqlArchive) -> None:
        again = {"submit_seconds": START + 50, "start_seconds": START + 60}
        running = make_record(2, state="RUNNING", end_seconds=None)
        archive.save([make_report(record) for record in (make_record(1), make_record(1, **again), running)])
        expected = {("lab", 1, START - 600), ("lab", 1, START + 50)}
        assert expected == archive.ended_runs([*range(1, 400), 10**15])
        assert frozenset() == archive.ended_runs([])
