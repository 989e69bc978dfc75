# SPDX-License-Identifier: Apache-2.0
"""Who finds which jobs in an archive of any database, and in which lists and sums."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete

from slurmscope.archive import queries
from slurmscope.archive.interface import GroupBy, JobFilter, ListOrder, PagePosition, SortColumn
from slurmscope.archive.metric_ranges import JobMetric
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.archive.tables import METADATA, SCHEMA
from slurmscope.jobs.viewer import EVERYTHING, Viewer
from tests.contracts.jobs import check_totals, make_small_report
from tests.contracts.model import (
    Fact,
    ListArchive,
    facts,
    filters,
    viewers,
)
from tests.fakes.reports import (
    HOSTILE_NAME,
    START,
    make_record,
    make_report,
    make_unmeasured_report,
)

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


ORDERS = (SortColumn.SUBMIT, SortColumn.NAME, SortColumn.USER, SortColumn.RUN, SortColumn.CORES, SortColumn.CPU)


class VisibilityContract:
    """Run these with a fixture ``archive`` that is empty at first."""

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
            for by in (GroupBy.PARTITION, GroupBy.ACCOUNT, GroupBy.STATE):
                assert [2] == [total.jobs for total in archive.total(ada, wanted, by)]
                assert [1] == [total.jobs for total in archive.total(none, wanted, by)]
        assert ("lab",) == tuple(report.record.cluster for report in archive.find(ada, 5))
        assert () == archive.find_shown(ada, "5", cluster="other")

    def test_coordinator_of_many_accounts_sees_all_of_them(self, archive: SqlArchive) -> None:
        archive.save([make_report(make_record(number, user="bob", account=f"a{number}")) for number in range(40)])
        many = Viewer(name="ada", coordinates=frozenset(f"a{number}" for number in range(30)))

        page = archive.list_jobs(many, JobFilter(), limit=100)

        assert set(range(30)) == {row.job_id for row in page.rows}

    def test_page_is_never_longer_than_a_thousand(self, archive: SqlArchive) -> None:
        archive.save([make_small_report(number) for number in range(1, 1101)])

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
        requested=st.lists(st.tuples(viewers(), filters()), min_size=3, max_size=6),
        limit=st.integers(1, 5),
    )
    def test_lists_and_sums_are_those_of_a_plain_list(
        self, archive: SqlArchive, batches: list[list[Fact]], requested: list[tuple[Viewer, JobFilter]], limit: int
    ) -> None:
        empty(archive)
        model = ListArchive()
        for batch in batches:
            archive.save([fact.report() for fact in batch])
            model.save(batch)

        for viewer, wanted in [*requested, (EVERYTHING, JobFilter())]:
            assert sorted(model.keys(viewer, wanted)) == sorted(_walk(archive, viewer, wanted, limit))
            for by in GroupBy:
                check_totals(archive, model, viewer, wanted, by)
            for metric in (JobMetric.CPU, JobMetric.CORES, JobMetric.RUN):
                _check_histogram(archive, model, viewer, wanted, metric)

    @settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        batch=st.lists(facts(), max_size=30),
        requested=st.lists(st.tuples(viewers(), filters()), min_size=3, max_size=6),
        order=st.builds(ListOrder, st.sampled_from(ORDERS), st.booleans()),
        limit=st.integers(1, 5),
    )
    def test_sorted_lists_are_those_of_a_plain_list_there_and_back(
        self,
        archive: SqlArchive,
        batch: list[Fact],
        requested: list[tuple[Viewer, JobFilter]],
        order: ListOrder,
        limit: int,
    ) -> None:
        empty(archive)
        archive.save([fact.report() for fact in batch])
        model = ListArchive()
        model.save(batch)

        for viewer, wanted in [*requested, (EVERYTHING, JobFilter())]:
            expected = model.ordered(viewer, wanted, order)
            found = _walk_sorted(archive, viewer, wanted, limit, order)
            assert [place for place, _ in expected] == [place for place, _ in found]
            assert sorted(cluster for _, cluster in expected) == sorted(cluster for _, cluster in found)
            assert (len(model.keys(viewer, wanted)), False) == archive.count(viewer, wanted)
            if not found:
                continue
            back = archive.list_jobs(viewer, wanted, after=found[-1][0], limit=50, order=order.reversed)
            others = [place for place, _ in expected if place != found[-1][0]]
            assert others[::-1] == [order.place(row) for row in back.rows]

    def test_sorting_is_limited_to_the_newest_jobs_of_a_filter(
        self, archive: SqlArchive, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """All jobs are sorted by an index, and filtered ones one by one: in the order of time, so many of them."""
        monkeypatch.setattr(queries, "SORTED_JOBS", 2)
        records = [make_record(number, cpus=10 - number, submit_seconds=START + number) for number in range(1, 6)]
        archive.save([make_unmeasured_report(record) for record in records])
        order = ListOrder(SortColumn.CORES)

        assert [1, 2, 3, 4, 5] == [row.job_id for row in archive.list_jobs(EVERYTHING, JobFilter(), order=order).rows]
        filtered = archive.list_jobs(EVERYTHING, JobFilter(user="ada"), order=order)
        assert [4, 5] == [row.job_id for row in filtered.rows]

    def test_count_beyond_a_thousand_is_a_lower_bound(self, archive: SqlArchive) -> None:
        archive.save([make_small_report(number) for number in range(1, 1003)])

        assert (1002, False) == archive.count(EVERYTHING, JobFilter())
        assert (1002, False) == archive.count(EVERYTHING, JobFilter(name_part="r"))
        assert (1000, True) == archive.count(EVERYTHING, JobFilter(name_part="r", state="COMPLETED"))
        assert (0, False) == archive.count(Viewer(name="nobody"), JobFilter())

    @pytest.mark.parametrize("clusters", [8, 9, 20, 70])
    def test_pages_have_all_jobs_of_many_clusters_with_one_number_and_second(
        self, archive: SqlArchive, clusters: int
    ) -> None:
        tied = [make_record(500, cluster=f"c{number}", user=f"u{number % 2}") for number in range(clusters)]
        others = [make_record(number, cluster="c0", user="u0") for number in (499, 501, 502)]
        archive.save([make_unmeasured_report(record) for record in (*tied, *others)])
        expected = sorted((record.job_id, record.cluster) for record in (*tied, *others))
        coordinator = Viewer(name="u0", coordinates=frozenset({tied[0].account}))

        for viewer in (EVERYTHING, coordinator):
            for limit in (1, 2, 3, 4, clusters, clusters + 3):
                found = _walk(archive, viewer, JobFilter(), limit)
                assert expected == sorted((key.job_id, cluster) for key, cluster in found)


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


def _walk_sorted(
    archive: SqlArchive, viewer: Viewer, wanted: JobFilter, limit: int, order: ListOrder
) -> list[tuple[PagePosition, str]]:
    found: list[tuple[PagePosition, str]] = []
    after: PagePosition | None = None
    while True:
        page = archive.list_jobs(viewer, wanted, after=after, limit=limit, order=order)
        found += ((order.place(row), row.cluster) for row in page.rows)
        if (after := page.next_key) is None:
            return found


def _check_histogram(
    archive: SqlArchive, model: ListArchive, viewer: Viewer, wanted: JobFilter, metric: JobMetric
) -> None:
    found = archive.histogram(viewer, wanted, metric)
    matching = [fact for fact in model.facts if fact.matches(viewer, wanted)]
    numbers = [fact.numbers[metric] for fact in matching]
    assert min((fact.submit for fact in matching), default=None) == found.since_seconds
    assert len(metric.edges) + 1 == len(found.counts)
    assert [sum(each.contains(number) for number in numbers) for each in found.ranges] == list(found.counts)
    assert (numbers.count(None), False) == (found.unknown, found.is_cut)


def empty(archive: SqlArchive) -> None:
    """Take out everything, what runs included."""
    with archive.database.writing() as connection:
        for table in METADATA.sorted_tables:
            if table is not SCHEMA:
                connection.execute(delete(table))
