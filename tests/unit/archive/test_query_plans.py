# SPDX-License-Identifier: Apache-2.0
"""Lists and sums of an archive in a file are read from an index or from sums, never from all jobs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Select, event, insert, text
from sqlalchemy.dialects import sqlite

from slurmscope.archive import list_pages, queries
from slurmscope.archive import sql_archive as archive_module
from slurmscope.archive import totals as histograms
from slurmscope.archive.daily_sums import TOTALS
from slurmscope.archive.interface import (
    NEWEST_FIRST,
    GroupBy,
    JobCount,
    JobFilter,
    ListOrder,
    PagePosition,
    SortColumn,
)
from slurmscope.archive.metric_ranges import JobMetric
from slurmscope.archive.queries import pages
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.archive.totals import total_statements
from slurmscope.jobs.rule import Severity
from slurmscope.jobs.viewer import EVERYTHING, Viewer
from tests.fakes.reports import START, make_finding, make_record, make_report, make_unmeasured_report

OLDEST = NEWEST_FIRST.reversed


def test_old_curves_are_found_without_reading_all_jobs(archive: SqlArchive) -> None:
    asked: list[str] = []
    archive.save([make_report()])
    with archive.database.reading() as connection:
        raw = connection.connection.dbapi_connection
        raw.set_trace_callback(asked.append)  # type: ignore[union-attr]
    archive.delete_curves(START)
    raw.set_trace_callback(None)  # type: ignore[union-attr]

    (question,) = (text for text in asked if text.startswith("SELECT slurmscope_curves"))
    with archive.database.reading() as connection:
        plan = [row[3] for row in connection.execute(text(f"EXPLAIN QUERY PLAN {question}"))]
    assert "slurmscope_curves_submit" in plan[0]
    assert "SEARCH slurmscope_jobs USING INTEGER PRIMARY KEY (rowid=?)" == plan[-1]


@pytest.mark.parametrize(
    "wanted",
    [
        JobFilter(),
        JobFilter(user="ada"),
        JobFilter(account="physics"),
        JobFilter(partition="batch"),
        JobFilter(state="FAILED"),
        JobFilter(worst=Severity.CRITICAL),
        JobFilter(rule="cpu_idle"),
        JobFilter(rule="cpu_idle", user="ada"),
        JobFilter(rule="cpu_idle", account="physics"),
        JobFilter(user="ada", state="FAILED"),
        JobFilter(account="physics", state="FAILED"),
        JobFilter(array_job_id=5),
        JobFilter(since_seconds=5, until_seconds=100),
        JobFilter(cluster="lab"),
        JobFilter(cluster="lab", user="ada"),
        JobFilter(cluster="lab", partition="batch"),
        JobFilter(cluster="lab", state="FAILED"),
    ],
)
@pytest.mark.parametrize(
    "viewer",
    [
        EVERYTHING,
        Viewer(name="ada", coordinates=frozenset({"physics", "x"})),
        Viewer(name="ada", coordinates=frozenset({"physics", "x"}), coordinated_clusters=frozenset({"lab"})),
    ],
    ids=["staff", "coordinator", "coordinator of a cluster"],
)
def test_page_is_read_from_an_index_in_order(archive: SqlArchive, viewer: Viewer, wanted: JobFilter) -> None:
    archive.save([make_report()])
    for statement in pages(viewer, wanted, PagePosition(50, 5), 50):
        plan = explain(archive, statement)

        assert any("USING INDEX" in line or "USING COVERING INDEX" in line for line in plan)
        assert not any("TEMP B-TREE" in line or line.startswith("SCAN") for line in plan), plan


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (JobFilter(cluster="lab"), "slurmscope_jobs_cluster "),
        (JobFilter(cluster="lab", user="ada"), "slurmscope_jobs_cluster_user "),
        (JobFilter(cluster="lab", partition="batch"), "slurmscope_jobs_cluster_partition "),
        (JobFilter(cluster="lab", state="FAILED"), "slurmscope_jobs_cluster_state "),
    ],
)
def test_jobs_of_one_cluster_are_found_by_an_index_of_its_own(
    archive: SqlArchive, wanted: JobFilter, index: str
) -> None:
    archive.save([make_report()])

    (statement,) = pages(EVERYTHING, wanted, None, 50)

    assert index in explain(archive, statement)[0]


def test_rule_is_searched_among_the_jobs_of_a_small_cluster(archive: SqlArchive) -> None:
    records = [make_record(number, cluster="small" if number % 10 == 0 else "lab") for number in range(1, 41)]
    archive.save([make_report(record) for record in records])
    archive.save([make_unmeasured_report(make_record(99, cluster="small"))])
    read: list[str] = []
    event.listen(archive.database._engine, "before_cursor_execute", lambda *given: read.append(given[2]))

    def find(cluster: str, rule: str = "cpu_idle") -> tuple[list[int], bool]:
        read.clear()
        rows = archive.list_jobs(EVERYTHING, JobFilter(rule=rule, cluster=cluster)).rows
        return [row.job_id for row in rows], "slurmscope_findings" in read[-1]

    assert ([40, 30, 20, 10], False) == find("small")
    assert ([], False) == find("empty")
    # Of a rule that found less than a cluster has jobs, the findings are searched.
    assert ([], True) == find("lab", "cpu%idle")
    assert [number for number in range(40, 0, -1) if number % 10] == find("lab")[0]
    # A sign of patterns is a letter.
    assert ([], True) == find("small", "cpu.idle")


@pytest.mark.parametrize(("many", "newest"), [(0, (15,)), (0, (15, 30)), (0, (1000,)), (59, (5, 1000)), (60, (1000,))])
@pytest.mark.parametrize("viewer", [EVERYTHING, Viewer(name="bob", coordinates=frozenset({"physics"}))])
def test_common_name_is_found_among_the_newest_jobs(
    archive: SqlArchive, monkeypatch: pytest.MonkeyPatch, many: int, newest: tuple[int, ...], viewer: Viewer
) -> None:
    monkeypatch.setattr(list_pages, "NEWEST_JOBS", newest)
    monkeypatch.setattr(list_pages, "MANY_JOBS", many)
    monkeypatch.setattr(list_pages, "MANY_INDEXED", many)
    names = ("relax", "relaxed", "solve")
    people = ({"user": "ada", "account": "physics"}, {"user": "bob", "account": "chemistry"})
    records = [
        make_record(number, name=names[number % 3], submit_seconds=START - 600 + number // 2, **people[number % 2])
        for number in range(90)
    ]
    archive.save([make_unmeasured_report(record) for record in records])

    read: list[str] = []
    event.listen(archive.database._engine, "before_cursor_execute", lambda *given: read.append(given[2]))
    found: list[int] = []
    page = archive.list_jobs(viewer, JobFilter(name="relax"), limit=4)
    # Of 60 jobs with this name, page after page is found among the newest if 60 are many.
    assert (many < 60) == any("FROM (SELECT" in " ".join(statement.split()) for statement in read)
    while True:
        found += [row.job_id for row in page.rows]
        if page.next_key is None:
            break
        page = archive.list_jobs(viewer, JobFilter(name="relax"), limit=4, after=page.next_key)

    assert [number for number in range(89, -1, -1) if number % 3 < 2] == found
    (statement,) = queries.newest_named(EVERYTHING, JobFilter(name="relax"), None, 50, newest_jobs=1000)
    assert "slurmscope_jobs_submit" in str(explain(archive, statement))


@pytest.mark.parametrize(
    ("viewer", "index"),
    [(EVERYTHING, "slurmscope_jobs_name "), (Viewer(name="ada"), "slurmscope_jobs_user_name ")],
)
@pytest.mark.parametrize("many", [0, 1000])
def test_pages_of_a_name_are_found_by_an_index_alone(
    archive: SqlArchive, monkeypatch: pytest.MonkeyPatch, viewer: Viewer, index: str, many: int
) -> None:
    monkeypatch.setattr(list_pages, "NEWEST_JOBS", (2,))
    monkeypatch.setattr(list_pages, "MANY_JOBS", 0)
    monkeypatch.setattr(list_pages, "MANY_INDEXED", many)
    jobs = [make_record(number, name="relax", user="ada", submit_seconds=START - number) for number in range(1, 10)]
    archive.save([make_unmeasured_report(job) for job in jobs])
    read: list[tuple[str, Any]] = []
    event.listen(archive.database._engine, "before_cursor_execute", lambda *given: read.append(given[2:4]))

    first = archive.list_jobs(viewer, JobFilter(name="relax"), limit=4)
    second = archive.list_jobs(viewer, JobFilter(name="relax"), limit=4, after=first.next_key)

    assert [1, 2, 3, 4, 5, 6, 7, 8] == [row.job_id for page in (first, second) for row in page.rows]
    assert (2 if many == 0 else 0) == sum("FROM (SELECT" in " ".join(statement.split()) for statement, _ in read)
    sorting = [given for given in read if given[0].startswith("SELECT slurmscope_jobs.run_id") and "ORDER" in given[0]]
    assert 2 == len(sorting)
    with archive.database.reading() as connection:
        plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", given).all() for text, given in sorting]
    assert all(f"USING COVERING INDEX {index}" in plan[0][3] for plan in plans)


@pytest.mark.parametrize("part", ["nothing", "%", "_"])
def test_part_of_a_name_is_searched_in_an_index_of_the_names_of_a_user(archive: SqlArchive, part: str) -> None:
    archive.save([make_report()])
    viewer, searched = Viewer(name="ada"), "slurmscope_jobs_user_name (user=? AND name>?)"
    read: list[tuple[str, Any]] = []
    event.listen(archive.database._engine, "before_cursor_execute", lambda *given: read.append(given[2:4]))

    assert () == archive.list_jobs(viewer, JobFilter(name_part=part)).rows
    assert 0 == archive.count(viewer, JobFilter(name_part=part)).jobs

    searching = [given for given in read if given[0].startswith("SELECT slurmscope_jobs.run_id")]
    assert 2 == len(searching)
    with archive.database.reading() as connection:
        plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", given).all() for text, given in searching]
    assert [f"SEARCH slurmscope_jobs USING COVERING INDEX {searched}"] * 2 == [plan[0][3] for plan in plans]


_NAMES = ("relax", "Relaxed", "scan", "scan_2", "50%", "a/b")


@pytest.mark.parametrize("part", ["lax", "SCAN", "_", "%", "/", "nothing", "s"])
@pytest.mark.parametrize("limits", [{}, {"FEW_NAMES": {"sqlite": 1}}, {"FEW_JOBS": 0}])
def test_distinct_names_find_the_jobs_that_a_search_of_all_finds(
    archive: SqlArchive, monkeypatch: pytest.MonkeyPatch, part: str, limits: dict[str, Any]
) -> None:
    names = [_NAMES[number % len(_NAMES)] for number in range(60)]
    jobs = [make_record(number, name=name, submit_seconds=START + number) for number, name in enumerate(names)]
    archive.save([make_unmeasured_report(job) for job in jobs])
    for name, limit in limits.items():
        monkeypatch.setattr(list_pages, name, limit)
    wanted = JobFilter(name_part=part)

    first = archive.list_jobs(EVERYTHING, wanted, limit=7)
    second = archive.list_jobs(EVERYTHING, wanted, limit=60, after=first.next_key) if first.next_key else None

    expected = [number for number in range(59, -1, -1) if part.lower() in names[number].lower()]
    assert expected == [row.job_id for page in (first, second) if page for row in page.rows]
    assert expected[::-1] == [row.job_id for row in archive.list_jobs(EVERYTHING, wanted, limit=60, order=OLDEST).rows]
    assert (len(expected), False) == archive.count(EVERYTHING, wanted)
    assert len(expected) == len(archive.list_jobs(EVERYTHING, replace(wanted, partition="batch"), limit=60).rows)


@pytest.mark.parametrize("wanted", [JobFilter(), JobFilter(partition="batch"), JobFilter(rule="cpu_idle")])
@pytest.mark.parametrize("column", [SortColumn.SUBMIT, SortColumn.CORES])
def test_jobs_with_part_of_a_name_are_found_by_their_names(
    archive: SqlArchive, wanted: JobFilter, column: SortColumn
) -> None:
    jobs = [make_record(number, name=f"run{number % 20}") for number in range(200)]
    archive.save([make_report(job) for job in jobs])
    archive.database.refresh_statistics()
    read: list[tuple[str, Any]] = []
    event.listen(archive.database._engine, "before_cursor_execute", lambda *given: read.append(given[2:4]))

    found = archive.list_jobs(EVERYTHING, replace(wanted, name_part="N19"), order=ListOrder(column)).rows
    assert {number for number in range(200) if number % 20 == 19} == {row.job_id for row in found}
    assert len(found) == archive.count(EVERYTHING, replace(wanted, name_part="N19")).jobs

    searching = [given for given in read if "slurmscope_jobs.name IN" in given[0]]
    # Without further conditions the jobs are counted by the names alone.
    assert (1 if wanted == JobFilter() else 2) == len(searching)
    with archive.database.reading() as connection:
        plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", given).all() for text, given in searching]
    steps = [[step[3] for step in plan] for plan in plans]
    assert all(any("INDEX slurmscope_jobs_name (name=?)" in step for step in plan) for plan in steps)


def test_many_names_are_no_more_parameters_than_sqlite_takes(archive: SqlArchive) -> None:
    # As SQLite before 3.32, with fewer names.
    event.listen(
        archive.database._engine, "connect", lambda made, _: made.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 700)
    )
    archive.save([make_unmeasured_report(make_record(number, name=f"run{number}")) for number in range(710)])

    wanted = JobFilter(name_part="run", partition="batch")

    assert 710 == len(archive.list_jobs(EVERYTHING, wanted, limit=800).rows)
    assert (710, False) == archive.count(EVERYTHING, wanted)
    assert 11 == archive.count(EVERYTHING, replace(wanted, name_part="run15")).jobs


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (JobFilter(user="ada"), "slurmscope_jobs_user_state (user=? AND state=?)"),
        (JobFilter(account="physics"), "slurmscope_jobs_account_state (account=? AND state=?)"),
        (JobFilter(worst=Severity.CRITICAL), "slurmscope_jobs_state (state=?)"),
    ],
    ids=["user", "account", "severity"],
)
def test_few_running_jobs_are_not_searched_among_all_jobs(archive: SqlArchive, wanted: JobFilter, index: str) -> None:
    # Of one user, or of two states only, SQLite would expect that as many rows are read from an index as there are.
    others = [("bob", "chemistry"), ("eve", "biology"), ("ada", "physics"), ("joe", "history")]
    jobs = [
        make_record(
            number,
            submit_seconds=START + number,
            state=("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED")[number // 4 % 4],
            user=others[number % 4][0],
            account=others[number % 4][1],
        )
        for number in range(300)
    ]
    running = [replace(job, state="RUNNING", end_seconds=None) for job in jobs[42:242:100]]
    reports = [make_unmeasured_report(job) for job in (*jobs, *running)]
    archive.save([replace(report, findings=(make_finding(),)) for report in reports])
    archive.database.refresh_statistics()
    wanted = replace(wanted, is_running=True)
    (statement,) = pages(EVERYTHING, wanted, None, 15)
    plan = explain(archive, statement)
    assert index in str(plan)
    assert wanted.worst is None or "SEARCH slurmscope_jobs USING INTEGER PRIMARY KEY (rowid=?)" == plan[0]
    assert [142, 42] == [row.job_id for row in archive.list_jobs(EVERYTHING, wanted).rows]


def test_name_that_no_job_has_is_searched_among_names_only(archive: SqlArchive) -> None:
    archive.save([make_report()])
    read: list[str] = []
    event.listen(archive.database._engine, "before_cursor_execute", lambda *given: read.append(given[2]))

    assert () == archive.list_jobs(EVERYTHING, JobFilter(name_part="nothing", state="FAILED")).rows
    assert JobCount(0) == archive.count(EVERYTHING, JobFilter(name_part="nothing"))
    assert [] == [statement for statement in read if "slurmscope_jobs" in statement]


@pytest.mark.parametrize(
    ("viewer", "wanted", "index"),
    [
        (EVERYTHING, JobFilter(name="relax", partition="gpu"), "slurmscope_jobs_name "),
        (EVERYTHING, JobFilter(name="relax", user="ada"), "slurmscope_jobs_user_name "),
        (Viewer(name="ada"), JobFilter(name="relax"), "slurmscope_jobs_user_name "),
        (Viewer(name="ada", coordinates=frozenset({"physics"})), JobFilter(name="relax"), "slurmscope_jobs_name "),
    ],
)
def test_jobs_of_a_name_are_counted_by_an_index_alone(
    archive: SqlArchive, viewer: Viewer, wanted: JobFilter, index: str
) -> None:
    archive.save([make_report()])
    read: list[tuple[str, Any]] = []
    event.listen(archive.database._engine, "before_cursor_execute", lambda *given: read.append(given[2:4]))

    archive.list_jobs(viewer, wanted)

    counting = next(given for given in read if "OFFSET" in given[0])
    with archive.database.reading() as connection:
        (plan,) = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {counting[0]}", counting[1]).all()
    assert f"USING COVERING INDEX {index}" in plan[3]


@pytest.mark.parametrize(
    ("viewer", "wanted"),
    [
        (EVERYTHING, JobFilter()),
        (EVERYTHING, JobFilter(cluster="lab", state="COMPLETED")),
        (Viewer(name="ada", coordinates=frozenset({"physics", "x"})), JobFilter()),
    ],
    ids=["staff", "staff, filtered", "coordinator"],
)
def test_jobs_with_given_ids_are_found_by_the_indexes_of_ids(
    archive: SqlArchive, viewer: Viewer, wanted: JobFilter
) -> None:
    archive.save([make_unmeasured_report(make_record(number)) for number in range(1, 601)])
    archive.database.refresh_statistics()
    indexes = (
        "slurmscope_jobs_shown (shown_id=?)",
        "slurmscope_jobs_array (array_job_id=?)",
        "slurmscope_jobs_het (het_job_id=?)",
    )
    expected = {f"SEARCH slurmscope_jobs USING COVERING INDEX {index}" for index in indexes}

    for count in (1, 60, 250):
        some = replace(wanted, shown_ids=tuple(str(number) for number in range(count)))
        lists = (*pages(viewer, some, None, 50), *pages(viewer, some, PagePosition(START, 5), 50))
        for statement in (*lists, histograms._newest(viewer, some, JobMetric.CPU)):
            plan = explain(archive, statement)

            read = [line for line in plan if line.startswith(("SCAN", "SEARCH"))]
            assert "SEARCH slurmscope_jobs USING INTEGER PRIMARY KEY (rowid=?)" == read[0], plan
            assert expected == set(read[1:]), plan


def test_jobs_and_arrays_of_many_ids_are_listed_once_and_in_order(archive: SqlArchive) -> None:
    tasks = [make_record(1000 + task, array_job_id=1000, array_task_id=task) for task in range(3)]
    # The number of one array is also the ID of a job of another cluster.
    others = [make_record(number, cluster="other" if number == 1000 else "lab") for number in (*range(1, 260), 1000)]
    archive.save([make_unmeasured_report(record) for record in (*tasks, *others)])
    archive.save([make_unmeasured_report(make_record(5000, user="bob", account="chemistry"))])
    wanted = JobFilter(shown_ids=("5000", "1000", "1000_1", *map(str, range(240, 0, -1))))

    def read(viewer: Viewer) -> list[tuple[str, int]]:
        found, after = [], None
        while True:
            page = archive.list_jobs(viewer, wanted, after=after, limit=100)
            found += [(row.cluster, row.job_id) for row in page.rows]
            if (after := page.next_key) is None:
                return found

    arrays = {("lab", 1002), ("lab", 1001), ("lab", 1000), ("other", 1000)}
    single = [("lab", number) for number in range(240, 0, -1)]
    everything = read(EVERYTHING)
    assert [("lab", 5000)] == everything[:1]
    assert arrays == set(everything[1:5])
    assert single == everything[5:]
    assert everything[1:] == read(Viewer(name=tasks[0].user))
    assert everything[:1] == read(Viewer(name="eve", coordinates=frozenset({"chemistry"})))
    counted = archive.histogram(Viewer(name=tasks[0].user), wanted, JobMetric.CORES)
    assert 4 + 240 == sum(counted.counts) + counted.unknown


@pytest.mark.parametrize("by", list(GroupBy))
@pytest.mark.parametrize("cluster", ["", "lab"])
def test_year_of_all_users_is_added_up_from_sums_by_one_name(archive: SqlArchive, cluster: str, by: GroupBy) -> None:
    archive.save([make_report()])
    year = JobFilter(since_seconds=20_000 * 86_400, until_seconds=20_365 * 86_400, cluster=cluster)

    for statement in total_statements(EVERYTHING, year, by):
        key = "slurmscope_totals USING PRIMARY KEY (dimension=? AND span=? AND day>? AND day<?)"
        assert key in explain(archive, statement)[0]


@pytest.mark.parametrize(
    ("viewer", "wanted"),
    [
        (EVERYTHING, JobFilter(user="u5")),
        (EVERYTHING, JobFilter(account="a5")),
        (Viewer(name="u5"), JobFilter()),
        (Viewer(name="u5"), JobFilter(user="u5")),
        (Viewer(name="bob", coordinates=frozenset({"a5"})), JobFilter(account="a5")),
        (
            Viewer(name="bob", coordinates=frozenset({"a5"}), coordinated_clusters=frozenset({"lab"})),
            JobFilter(account="a5", cluster="lab"),
        ),
        (
            Viewer(name="bob", coordinates=frozenset({"a5"}), coordinated_clusters=frozenset({"lab"})),
            JobFilter(account="a5"),
        ),
    ],
)
def test_days_of_one_name_are_read_from_its_sums(archive: SqlArchive, viewer: Viewer, wanted: JobFilter) -> None:
    sums = {column.name: 0 for column in TOTALS.c} | {"cluster": "lab", "span": 1}
    names = [("user", f"u{number}") for number in range(30)] + [("account", f"a{number}") for number in range(30)]
    rows = [
        sums | {"dimension": dimension, "name": name, "day": day}
        for dimension, name in names
        for day in range(20_000, 20_365)
    ]
    with archive.database.writing() as connection:
        connection.execute(insert(TOTALS), rows)
    archive.database.refresh_statistics()
    year = replace(wanted, since_seconds=20_000 * 86_400, until_seconds=20_365 * 86_400)

    of_all, *of_viewer = total_statements(viewer, year, GroupBy.DAY)
    key = "slurmscope_totals USING INDEX slurmscope_totals_name (name=? AND dimension=? AND span=? AND day>?"
    assert key in explain(archive, of_all)[0]
    # A coordinator also sees own jobs of the account in other clusters.
    for statement in of_viewer:
        assert 'slurmscope_daily_sums."user" = ' in str(statement)
    # An index by dimension and name has the order of the groups, and would be read without regard to the days.
    for statement in total_statements(EVERYTHING, replace(year, user="", account=""), GroupBy.USER):
        assert "day>?" in explain(archive, statement)[0]


@pytest.mark.parametrize(
    ("viewer", "wanted"),
    [
        (Viewer(name="bob"), JobFilter(account="physics")),
        (Viewer(name="bob"), JobFilter(user="ada")),
        (Viewer(name="bob", coordinates=frozenset({"physics"})), JobFilter()),
        (
            Viewer(name="bob", coordinates=frozenset({"physics"}), coordinated_clusters=frozenset({"lab"})),
            JobFilter(account="physics", cluster="other"),
        ),
        (EVERYTHING, JobFilter(user="ada", account="physics")),
    ],
)
def test_sums_over_all_users_are_not_read_for_others(archive: SqlArchive, viewer: Viewer, wanted: JobFilter) -> None:
    archive.save([make_report(), make_report(make_record(5, cluster="other"))])
    year = replace(wanted, since_seconds=20_000 * 86_400, until_seconds=20_365 * 86_400)

    for statement in total_statements(viewer, year, GroupBy.DAY):
        assert "slurmscope_totals" not in str(statement)


def explain(archive: SqlArchive, statement: Select[Any]) -> list[str]:
    compiled = statement.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True})
    with archive.database.reading() as connection:
        return [row[3] for row in connection.execute(text(f"EXPLAIN QUERY PLAN {compiled}"))]


def test_statistics_are_taken_of_large_tables_only(
    archive: SqlArchive, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_module, "SAVES_BETWEEN_LOOKS", 2)
    monkeypatch.setattr(archive_module, "MANY_ROWS", 3)
    had_statistics = []
    for number in range(1, 5):
        archive.save([make_report(make_record(number))])
        with closing(sqlite3.connect(path)) as other:
            tables = other.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'sqlite_stat1'").fetchone()
            had_statistics.append(tables[0])

    assert [0, 0, 0, 1] == had_statistics
