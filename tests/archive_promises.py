# SPDX-License-Identifier: Apache-2.0
"""Hold an archive to its promises, whatever database is below it: each class of tests gives its own ``archive``."""

from __future__ import annotations

import threading
from dataclasses import astuple, replace
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, inspect, text, update

from slurmscope.errors import ArchiveError
from slurmscope.model.advice import AdviceGroup, Savings
from slurmscope.model.archive import GroupBy, JobFilter, PagePosition
from slurmscope.model.finding import Finding, Severity, Subject
from slurmscope.model.metric_ranges import Metric
from slurmscope.model.report import JobReport
from slurmscope.model.staff import NotedKind, NotedThing
from slurmscope.model.summary import Coverage
from slurmscope.model.viewer import EVERYTHING, Viewer, ViewerRole
from slurmscope.store.archive.advice_reader import SqlAdviceReader
from slurmscope.store.archive.archive import SqlArchive
from slurmscope.store.archive.checkpoints import Checkpoints
from slurmscope.store.archive.database.partitions import read_weeks
from slurmscope.store.archive.opening import open_archive
from slurmscope.store.archive.people.audit import AuditLog
from slurmscope.store.archive.people.staff import SqlSavedViews, SqlStaffNotes
from slurmscope.store.archive.people.tokens import TokenStore
from slurmscope.store.archive.report_coding import THINNED
from slurmscope.store.archive.tables.columns import METADATA
from slurmscope.store.archive.tables.schema import CURVES, SCHEMA
from tests.archive_model import (
    ACCOUNTS,
    CLUSTERS,
    DAY,
    NEW_YEAR,
    PARTITIONS,
    RULES,
    STATES,
    USERS,
    Fact,
    ListArchive,
    facts,
    filters,
    viewers,
)
from tests.fakes.archive_version_1 import write_version_1
from tests.fakes.archive_version_2 import write_version_2
from tests.fakes.reports import (
    GIB,
    HOSTILE_NAME,
    START,
    make_finding,
    make_gpu_report,
    make_record,
    make_report,
    make_unmeasured_report,
)

END_OF_TIME = 2**40
EVERY_NAME = pytest.mark.parametrize(
    "name",
    [
        HOSTILE_NAME,
        "nul \0 inside",
        "byte \udcff of another encoding",
        "four bytes 🚀",
        "ü" * 10_000,
        "ends with blanks  ",
        "' OR 1=1; --",
        "\\",
        "%s %(x)s :x ?",
        "",
    ],
)


class ArchivePromises:
    """Test an archive that is empty at first."""

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

        runs = archive.incomplete_runs(START + 3600)
        assert [report.record for report in ended] == [run.record for run in runs]
        assert runs[1:2] == archive.incomplete_runs(START + 3600, after=runs[0].number, limit=1)

        archive.save([make_report(make_record(2))])
        assert [1, 3] == [run.record.job_id for run in archive.incomplete_runs(START + 3600)]
        archive.delete_jobs(START + 365 * 86400)
        assert () == archive.incomplete_runs(0)

    def test_clusters_and_their_incomplete_runs_are_told_apart(self, archive: SqlArchive) -> None:
        assert () == archive.clusters()

        beta = replace(make_report(make_record(1, cluster="beta")), is_incomplete=True)
        archive.save([replace(make_report(make_record(1)), is_incomplete=True), beta, make_report(make_record(2))])

        assert ("beta", "lab") == archive.clusters()
        assert [beta.record] == [run.record for run in archive.incomplete_runs(0, cluster="beta")]
        assert [] == list(archive.incomplete_runs(0, cluster="gamma"))

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
        assert (Severity.CRITICAL, ("cpu_idle", "memory_over_asked")) == (row.worst, row.rules)
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

    @EVERY_NAME
    def test_hostile_name_of_a_job_is_kept_and_found(self, archive: SqlArchive, name: str) -> None:
        archive.save([make_report(make_record(name=name)), make_report(make_record(1, name="another"))])

        rows = archive.list_jobs(EVERYTHING, JobFilter(name=name[:100])).rows

        assert 4711 in [row.job_id for row in rows]
        (row,) = (row for row in rows if row.job_id == 4711)
        assert name[:500].replace("\0", "\ufffd").replace("\udcff", "\ufffd") == row.name[:500]
        assert len(row.name) <= 512
        assert name.replace("\udcff", "\ufffd") == archive.find(EVERYTHING, 4711)[0].record.name.replace("\udcff", "")

    @EVERY_NAME
    def test_hostile_name_of_a_user_sees_that_users_jobs_only(self, archive: SqlArchive, name: str) -> None:
        archive.save([make_report(make_record(1, user=name)), make_report(make_record(2, user=f"{name}x"))])

        mine = archive.list_jobs(Viewer(name=name), JobFilter()).rows

        assert [1] == [row.job_id for row in mine]
        assert [2] == [row.job_id for row in archive.list_jobs(Viewer(name=f"{name}x"), JobFilter()).rows]
        assert () == archive.list_jobs(Viewer(name=name[:-1] + "y"), JobFilter()).rows

    def test_names_that_differ_in_case_or_blanks_are_different(self, archive: SqlArchive) -> None:
        names = ["ada", "Ada", "ada ", "áda"]
        archive.save([make_report(make_record(number, user=name)) for number, name in enumerate(names)])

        seen = [[row.user for row in archive.list_jobs(Viewer(name=name), JobFilter()).rows] for name in names]

        assert [[name] for name in names] == seen

    def test_foreign_job_is_as_absent_as_one_that_never_was(self, archive: SqlArchive) -> None:
        archive.save([make_report(make_record(user="bob", account="chemistry"))])
        ada = Viewer(name="ada", coordinates=frozenset({"physics"}))

        assert () == archive.find(ada, 4711) == archive.find(ada, 4712)
        assert () == archive.find_shown(ada, "4711")
        assert () == archive.list_jobs(ada, JobFilter(user="bob")).rows
        assert () == archive.list_jobs(ada, JobFilter(rule="cpu_idle")).rows
        assert () == archive.total(ada, JobFilter(account="chemistry"), GroupBy.RULE)

    def test_coordinator_sees_own_jobs_in_a_coordinated_account_once(self, archive: SqlArchive) -> None:
        archive.save([make_report(), make_report(make_record(5, user="bob")), make_report(make_record(6, account="x"))])
        ada = Viewer(name="ada", coordinates=frozenset({"physics"}))

        for wanted in (JobFilter(), JobFilter(rule="cpu_idle")):
            assert [4711, 6, 5] == [row.job_id for row in archive.list_jobs(ada, wanted).rows]
            assert [3] == [total.jobs for total in archive.total(ada, wanted, GroupBy.PARTITION)]

    def test_coordinator_of_one_cluster_sees_accounts_of_that_one_only(self, archive: SqlArchive) -> None:
        others = [make_report(make_record(5, cluster=name, user="bob", nodes=("n1",))) for name in ("lab", "other")]
        archive.save([*others, make_report(make_record(6, cluster="other"))])
        ada = Viewer(name="ada", coordinates=frozenset({"physics"}), coordinated_clusters=frozenset({"lab"}))
        none = replace(ada, coordinated_clusters=frozenset())

        for wanted in (JobFilter(), JobFilter(rule="cpu_idle"), JobFilter(node="n1"), JobFilter(account="physics")):
            rows = archive.list_jobs(ada, wanted).rows
            assert {("lab", 5), ("other", 6)} == {(row.cluster, row.job_id) for row in rows}
            assert [6] == [row.job_id for row in archive.list_jobs(none, wanted).rows]
            assert [2] == [total.jobs for total in archive.total(ada, wanted, GroupBy.PARTITION)]
        assert ("lab",) == tuple(report.record.cluster for report in archive.find(ada, 5))
        assert () == archive.find_shown(ada, "5", cluster="other")

    def test_coordinator_of_many_accounts_sees_all_of_them(self, archive: SqlArchive) -> None:
        archive.save([make_report(make_record(number, user="bob", account=f"a{number}")) for number in range(40)])
        many = Viewer(name="ada", coordinates=frozenset(f"a{number}" for number in range(30)))

        page = archive.list_jobs(many, JobFilter(), limit=100)

        assert set(range(30)) == {row.job_id for row in page.rows}

    def test_page_is_never_longer_than_a_thousand(self, archive: SqlArchive) -> None:
        archive.save([_small(number) for number in range(1, 1101)])

        page = archive.list_jobs(EVERYTHING, JobFilter(), limit=10**9)
        rest = archive.list_jobs(EVERYTHING, JobFilter(), after=page.next_key, limit=10**9)

        assert list(range(1100, 0, -1)) == [row.job_id for row in (*page.rows, *rest.rows)]
        assert (1000, None) == (len(page.rows), rest.next_key)

    def test_numbers_out_of_range_find_nothing(self, archive: SqlArchive) -> None:
        archive.save([make_report()])
        huge = 10**30

        assert () == archive.find(EVERYTHING, huge) == archive.find(EVERYTHING, -huge)
        assert () == archive.list_jobs(EVERYTHING, JobFilter(array_job_id=huge, since_seconds=-huge)).rows
        assert () == archive.list_jobs(EVERYTHING, JobFilter(), after=PagePosition(-huge, -huge)).rows
        assert 1 == len(archive.list_jobs(EVERYTHING, JobFilter(), after=PagePosition(huge, huge)).rows)
        for by in GroupBy:
            assert () == archive.total(EVERYTHING, JobFilter(since_seconds=huge), by)
            assert () == archive.total(EVERYTHING, JobFilter(until_seconds=-huge, since_seconds=-huge), by)
            assert () != archive.total(EVERYTHING, JobFilter(since_seconds=-huge, until_seconds=huge), by)

    @settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        batches=st.lists(st.lists(facts(), max_size=12), max_size=4),
        asked=st.lists(st.tuples(viewers(), filters()), min_size=3, max_size=6),
        limit=st.integers(1, 5),
    )
    def test_lists_and_sums_are_those_of_a_plain_list(
        self, archive: SqlArchive, batches: list[list[Fact]], asked: list[tuple[Viewer, JobFilter]], limit: int
    ) -> None:
        empty(archive)
        model = ListArchive()
        for batch in batches:
            archive.save([fact.report() for fact in batch])
            model.save(batch)

        for viewer, wanted in [*asked, (EVERYTHING, JobFilter())]:
            assert sorted(model.keys(viewer, wanted)) == sorted(_walk(archive, viewer, wanted, limit))
            for by in GroupBy:
                _check_sums(archive, model, viewer, wanted, by)
            for metric in (Metric.CPU, Metric.CORES, Metric.RUN):
                _check_histogram(archive, model, viewer, wanted, metric)

    def test_archive_of_version_1_is_migrated(self, archive: SqlArchive) -> None:
        oom = make_report(make_record(5, submit_seconds=START, state="OUT_OF_MEMORY"))
        with archive.database.writing() as connection:
            METADATA.drop_all(connection)
            write_version_1(connection, [make_report(), oom])

        later = open_archive(archive.database.settings)
        try:
            rows = later.list_jobs(EVERYTHING, JobFilter()).rows
            (before,) = later.total(EVERYTHING, JobFilter(), GroupBy.USER)
            # Unknown, not 0; the one that is saved again is known.
            assert [(None,) * 4] * 2 == [
                (row.wait_seconds, row.time_limit_seconds, row.exit_code, row.blocked_core_seconds) for row in rows
            ]
            assert () == later.waiting_times(0)
            later.save([make_report()])
            (again, _) = sorted(later.list_jobs(EVERYTHING, JobFilter()).rows, key=lambda row: -row.job_id)
            assert (600.0, 86400, 0) == (again.wait_seconds, again.time_limit_seconds, again.exit_code)
            assert (before,) == later.total(EVERYTHING, JobFilter(), GroupBy.USER)
            assert [1] == [waited.jobs for waited in later.waiting_times(0)]
            assert [4711] == [row.job_id for row in later.list_jobs(EVERYTHING, JobFilter(node="n1")).rows]
            assert 2 == later.delete_jobs(END_OF_TIME)
            assert ((), ()) == (later.total(EVERYTHING, JobFilter(), GroupBy.RULE), later.waiting_times(0))
        finally:
            later.close()

    def test_archive_of_version_2_is_migrated_with_its_sums(self, archive: SqlArchive) -> None:
        model = ListArchive()
        model.save(_fact(number) for number in range(60))
        with archive.database.writing() as connection:
            METADATA.drop_all(connection)
            write_version_2(connection, [fact.report() for fact in model.facts])
        for is_repeated in (False, True):
            migrated = open_archive(archive.database.settings)
            try:
                for cluster, by in product(("", "lab"), GroupBy):
                    _check_sums(migrated, model, EVERYTHING, JobFilter(cluster=cluster), by)
                with migrated.database.writing() as connection:
                    names = {index["name"] for index in inspect(connection).get_indexes("slurmscope_jobs")}
                    assert "slurmscope_jobs_cluster" in names
                    assert {} == read_weeks(connection, CURVES)
                    if not is_repeated:
                        # As a migration that was stopped leaves it on MariaDB, which commits after each new index.
                        connection.execute(update(SCHEMA).values(version=2))
                        connection.execute(text("DROP INDEX slurmscope_jobs_cluster" + _on_jobs(migrated)))
                migrated.save([_fact(number).report() for number in range(50, 70)])
                model.save(_fact(number) for number in range(50, 70))
            finally:
                migrated.close()

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

    def test_notes_and_tags_are_for_staff(self, archive: SqlArchive) -> None:
        notes = SqlStaffNotes(archive.database, wall_clock=lambda: float(START))
        sue, ada = Viewer(name="sue", role=ViewerRole.SUPPORT), Viewer(name="ada")
        job, other, user = (
            NotedThing(NotedKind.JOB, "lab", "12_3"), NotedThing(NotedKind.JOB, "other", "12_3"),
            NotedThing(NotedKind.USER, "", "ada"),
        )  # fmt: skip
        notes.add_note(sue, job, HOSTILE_NAME)
        notes.add_note(sue, job, "second 🚀")
        notes.add_note(sue, user, "x" * 10_000)
        for thing, tag in ((job, "slow"), (job, "io"), (user, "slow"), (job, "slow")):
            notes.set_tag(sue, thing, tag, is_set=True)
        notes.set_tag(sue, job, "io", is_set=False)

        first, second = notes.list_notes(sue, job)
        assert ("sue", START, HOSTILE_NAME, "second 🚀") == (first.author, first.at_seconds, first.text, second.text)
        assert ((), ("slow",)) == (notes.list_tags(sue, other), notes.list_tags(sue, job))
        assert {("slow", job), ("slow", user)} == set(notes.list_tagged(sue)) == set(notes.list_tagged(sue, "slow"))
        notes.delete_note(sue, other, first.note_id)
        notes.delete_note(sue, job, second.note_id)
        assert (first,) == notes.list_notes(sue, job)
        assert 2000 == len(notes.list_notes(sue, user)[0].text)
        assert ((), (), ()) == (notes.list_notes(ada, user), notes.list_tags(ada, user), notes.list_tagged(ada))
        with pytest.raises(ArchiveError, match="only staff"):
            notes.add_note(ada, job, "x")
        with pytest.raises(ArchiveError, match="only staff"):
            notes.set_tag(ada, job, "x", is_set=True)

    def test_views_are_own_or_shared_by_staff(self, archive: SqlArchive) -> None:
        views = SqlSavedViews(archive.database)
        sue, root = Viewer(name="sue", role=ViewerRole.SUPPORT), Viewer(name="root", role=ViewerRole.ADMIN)
        ada = Viewer(name="ada")
        views.save_view(sue, "failed", "?state=FAILED", is_shared=True)
        views.save_view(sue, "failed", "?state=OUT_OF_MEMORY", is_shared=True)
        views.save_view(sue, "private", "", is_shared=False)
        views.save_view(ada, "mine", "?user=ada", is_shared=False)

        assert [("failed", "?state=OUT_OF_MEMORY")] == [(view.name, view.query) for view in views.list_views(root)]
        assert ["failed", "private"] == [view.name for view in views.list_views(sue)]
        (mine,) = views.list_views(ada)
        views.delete_view(sue, mine.view_id)
        assert (mine,) == views.list_views(ada)
        views.delete_view(ada, mine.view_id)
        assert () == views.list_views(ada)
        with pytest.raises(ArchiveError, match="only staff"):
            views.save_view(ada, "mine", "", is_shared=True)
        with pytest.raises(ArchiveError, match="too long"):
            views.save_view(ada, "mine", "?" + "x" * 3000, is_shared=False)
        for number in range(50):
            views.save_view(ada, f"view {number}", "", is_shared=False)
        with pytest.raises(ArchiveError, match="50 saved views"):
            views.save_view(ada, "one more", "", is_shared=False)

    def test_earlier_runs_are_of_the_same_user_and_name(self, archive: SqlArchive) -> None:
        changes: list[dict[str, object]] = [
            {},
            {"name": "relax2"},
            {"user": "bob"},
            {"cluster": "other"},
            {"state": "RUNNING", "end_seconds": None},
            {},
        ]
        archive.save(
            [
                make_report(make_record(number, submit_seconds=START + number, **changed))
                for number, changed in enumerate(changes, 1)
            ]
        )
        (newest,) = archive.find_shown(EVERYTHING, "6")

        assert [1] == [row.job_id for row in archive.earlier_runs(EVERYTHING, newest)]
        assert () == archive.earlier_runs(Viewer(name="bob"), newest)

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
            fact = replace(_fact(number), state=states[number % 3])
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
            _check_sums(archive, model, EVERYTHING, JobFilter(), by)
            _check_sums(archive, model, Viewer(name="eve"), JobFilter(), by)
        assert sum(total.jobs for total in archive.total(EVERYTHING, JobFilter(), GroupBy.USER)) == sum(
            waited.jobs for waited in archive.waiting_times(0)
        )

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
        archive.save([_small(day + 1, NEW_YEAR + day * DAY) for day in range(5)])

        totals = archive.total(EVERYTHING, JobFilter(), GroupBy.DAY, limit=3)

        assert ["2026-01-03", "2026-01-04", "2026-01-05"] == [total.key for total in totals]

    def test_two_reporters_at_once_lose_nothing_and_count_nothing_twice(self, archive: SqlArchive) -> None:
        failures: list[Exception] = []

        def save(first: int) -> None:
            try:
                for start in range(first, first + 60, 20):
                    archive.save([_small(number) for number in range(start, start + 20)])
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

    def test_checkpoints_mails_and_wishes_are_remembered(self, archive: SqlArchive) -> None:
        kept = Checkpoints(archive.database)

        assert (None, None, False) == (kept.read_checkpoint("a"), kept.last_mail("s", "ada"), kept.is_opted_out("ada"))
        kept.write_checkpoint("a", "1")
        kept.write_checkpoint("a", "2\0")
        kept.record_mail("s", "ada", 100)
        kept.record_mail("s", "ada", 200)
        kept.set_opt_out("ada", True)
        kept.set_opt_out("ada", True)
        kept.set_opt_out("bob", True)
        kept.set_opt_out("bob", False)

        assert "2\ufffd" == kept.read_checkpoint("a")
        assert (200, None, None) == (kept.last_mail("s", "ada"), kept.last_mail("s", "bob"), kept.last_mail("t", "ada"))
        assert (True, False) == (kept.is_opted_out("ada"), kept.is_opted_out("bob"))
        kept.delete_mails(201)
        assert None is kept.last_mail("s", "ada")

    def test_token_is_known_until_it_expires_or_is_revoked(self, archive: SqlArchive) -> None:
        now = [1000.0]
        tokens = TokenStore(archive.database, wall_clock=lambda: now[0])
        forever = tokens.create("ada", purpose="script")
        brief = tokens.create("root", ViewerRole.ADMIN, expires_seconds=2000)

        assert Viewer(name="ada") == tokens.find(forever)
        assert Viewer(name="root", role=ViewerRole.ADMIN) == tokens.find(brief)
        now[0] = 2000.0
        assert (None, None) == (tokens.find(brief), tokens.find("slsc_guess"))
        tokens.find(forever)
        (info,) = tokens.list_tokens("ada")
        assert (1000, 2000, "script") == (info.created_seconds, info.last_used_seconds, info.purpose)
        assert (True, False) == (tokens.revoke(info.token_id), tokens.revoke(info.token_id))
        assert None is tokens.find(forever)
        assert ["root"] == [left.name for left in tokens.list_tokens()]

    def test_audit_rows_come_latest_first(self, archive: SqlArchive) -> None:
        now = [10.0]
        log = AuditLog(archive.database, wall_clock=lambda: now[0])
        staff = Viewer(name="eve", role=ViewerRole.SUPPORT)
        for at_seconds in (10, 11, 12):
            now[0] = float(at_seconds)
            log.audit(staff, "/jobs/{id}", f"job {at_seconds}\0")

        first, second = log.list_rows(limit=2)
        (third,) = log.list_rows(before_id=second.audit_id)

        assert [12, 11, 10] == [row.at_seconds for row in (first, second, third)]
        assert ("eve", "support", "/jobs/{id}", "job 12\ufffd") == (
            first.viewer,
            first.role,
            first.route,
            first.subject,
        )

    def test_looks_are_listed_by_person_and_time_and_taken_out_when_old(self, archive: SqlArchive) -> None:
        now = [0.0]
        log = AuditLog(archive.database, wall_clock=lambda: now[0])
        for at_seconds, name in ((100, "sue"), (200, "eve"), (300, "sue")):
            now[0] = float(at_seconds)
            log.audit(Viewer(name=name, role=ViewerRole.SUPPORT), "/jobs/{id}", f"job {at_seconds}")

        asked = [
            log.list_rows(viewer="sue"),
            log.list_rows(since_seconds=200),
            log.list_rows(viewer="sue", since_seconds=200),
            log.list_rows(viewer="su"),
        ]

        assert [[300, 100], [300, 200], [300], []] == [[row.at_seconds for row in rows] for rows in asked]
        assert 1 == archive.delete_audit_entries(200)
        assert [300, 200] == [row.at_seconds for row in log.list_rows()]


def empty(archive: SqlArchive) -> None:
    """Take out everything, what runs included."""
    with archive.database.writing() as connection:
        for table in METADATA.sorted_tables:
            if table is not SCHEMA:
                connection.execute(delete(table))


def _run(job_id: int, day: int, cpus: int, findings: tuple[Finding, ...] = (), **changed: object) -> JobReport:
    """Make a run of two hours on this day."""
    start = START + day * DAY
    times = {"submit_seconds": start, "start_seconds": start, "end_seconds": start + 7200}
    return make_report(make_record(job_id, cpus=cpus, **times, **changed), findings=findings)


def _is_thinned(archive: SqlArchive, job_id: int) -> bool:
    (report,) = archive.find(EVERYTHING, job_id)
    return THINNED in report.missing


def _small(job_id: int, submit_seconds: int = START) -> JobReport:
    return make_unmeasured_report(make_record(job_id, submit_seconds=submit_seconds))


def _walk(archive: SqlArchive, viewer: Viewer, wanted: JobFilter, limit: int) -> list[tuple[PagePosition, str]]:
    """Read all pages, and check that they go down from one to the next."""
    found: list[tuple[PagePosition, str]] = []
    after: PagePosition | None = None
    while True:
        page = archive.list_jobs(viewer, wanted, after=after, limit=limit)
        keys = [PagePosition(row.submit_seconds, row.job_id) for row in page.rows]
        assert keys == sorted(keys, reverse=True)
        assert after is None or not keys or keys[0] < after
        found += zip(keys, (row.cluster for row in page.rows), strict=True)
        if page.next_key is None:
            return found
        assert keys[-1] == page.next_key
        after = page.next_key


def _check_histogram(
    archive: SqlArchive, model: ListArchive, viewer: Viewer, wanted: JobFilter, metric: Metric
) -> None:
    found = archive.histogram(viewer, wanted, metric)
    numbers = [fact.numbers[metric] for fact in model.facts if fact.matches(viewer, wanted)]
    assert len(metric.edges) + 1 == len(found.counts)
    assert [sum(each.contains(number) for number in numbers) for each in found.ranges] == list(found.counts)
    assert (numbers.count(None), False) == (found.unknown, found.is_cut)


def _check_sums(archive: SqlArchive, model: ListArchive, viewer: Viewer, wanted: JobFilter, by: GroupBy) -> None:
    totals = archive.total(viewer, wanted, by)
    expected = model.sums(viewer, wanted, by)
    actual = {total.key: list(astuple(total)[1:]) for total in totals}
    assert expected.keys() == actual.keys()
    for key, numbers in expected.items():
        assert pytest.approx(numbers) == actual[key]
    waste = [total.measured_core_seconds - total.used_core_seconds for total in totals]
    in_order = sorted(expected) if by is GroupBy.DAY else None
    assert in_order == [total.key for total in totals] if in_order is not None else waste == sorted(waste, reverse=True)


def _fact(number: int) -> Fact:
    """Return one of jobs of two months that differ in all their names."""
    return Fact(
        cluster=CLUSTERS[number % 2], job_id=number, submit=NEW_YEAR + number * DAY, name="relax",
        user=USERS[number % 4], account=ACCOUNTS[number % 2], partition=PARTITIONS[number // 2 % 2],
        state=STATES[number % 4], array_job_id=None, cpus=4, gpus=number % 3, run_seconds=100.0 + number,
        used_cores=None if number % 5 == 0 else 1.5, gpu_utilization=0.25, node="n1",
        findings=tuple((rule, Severity.WARNING) for rule in RULES[: number % 3]), memory_share=0.5,
    )  # fmt: skip


def _ended(fact: Fact) -> JobReport:
    """Return the report of a job that ended a moment after it began."""
    report = fact.report()
    record = replace(report.record, end_seconds=fact.submit + 60)
    return replace(report, summary=replace(report.summary, record=record))


def _on_jobs(archive: SqlArchive) -> str:
    """Return what MariaDB wants to know where an index is dropped."""
    return " ON slurmscope_jobs" if archive.database.dialect == "mariadb" else ""
