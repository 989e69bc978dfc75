# SPDX-License-Identifier: Apache-2.0
"""An archive in a file is closed to strangers, quick, and says in one sentence what is wrong."""

from __future__ import annotations

import random
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pymysql  # type: ignore[import-untyped]
import pytest
from sqlalchemy import Select, event, insert, text
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError

from slurmscope.errors import ArchiveError, ArchiveTooLarge, ConfigError, MissingExtraError, SlurmscopeError
from slurmscope.model.archive import GroupBy, JobFilter, PagePosition
from slurmscope.model.finding import Severity
from slurmscope.model.viewer import EVERYTHING, Viewer
from slurmscope.store.archive import archive as archive_module
from slurmscope.store.archive import queries
from slurmscope.store.archive.archive import SqlArchive
from slurmscope.store.archive.database import migrations
from slurmscope.store.archive.database.drivers import read_password, require_package
from slurmscope.store.archive.database.engine import ArchiveConflict
from slurmscope.store.archive.database.migrations import Step
from slurmscope.store.archive.opening import open_archive
from slurmscope.store.archive.people.tokens import TokenStore
from slurmscope.store.archive.queries import pages
from slurmscope.store.archive.retention import day_retention
from slurmscope.store.archive.settings import ArchiveSettings, parse_archive_url
from slurmscope.store.archive.sums.totals import total_statements
from slurmscope.store.archive.tables import schema
from slurmscope.store.archive.tables.sum_tables import TOTALS
from tests.fakes.reports import START, make_record, make_report, make_unmeasured_report


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.db"


@pytest.fixture
def archive(path: Path) -> Iterator[SqlArchive]:
    archive = open_at(path)
    yield archive
    archive.close()


def open_at(path: Path, timeout: float = 60.0) -> SqlArchive:
    return open_archive(ArchiveSettings(url=parse_archive_url(str(path)), timeout=timeout))


def refusal(archive: SqlArchive) -> str:
    """Return why a question is not answered."""
    with pytest.raises(ArchiveError) as told:
        archive.find(EVERYTHING, 1)
    archive.close()
    assert "\n" not in str(told.value)
    return str(told.value)


def test_only_the_owner_can_read_the_files(archive: SqlArchive, path: Path) -> None:
    archive.save([make_report()])

    assert {0o600} == {file.stat().st_mode & 0o777 for file in path.parent.glob(f"{path.name}*")}


def test_archive_is_there_after_a_restart(archive: SqlArchive, path: Path) -> None:
    archive.save([make_report()])
    archive.close()

    again = open_at(path)

    assert (make_report(),) == again.find(EVERYTHING, 4711)
    again.close()


def test_missing_directory_is_reported(tmp_path: Path) -> None:
    assert f"cannot open the archive {tmp_path}/no/a.db: its folder does not exist; create it" == refusal(
        open_at(tmp_path / "no" / "a.db")
    )


def test_file_of_another_kind_is_reported(path: Path) -> None:
    path.write_bytes(b"something else entirely" * 100)

    assert "not a database" in refusal(open_at(path))


def test_directory_in_place_of_the_file_is_reported(tmp_path: Path) -> None:
    assert "Is a directory" in refusal(open_at(tmp_path))


def test_archive_of_a_later_release_is_skipped(archive: SqlArchive, path: Path) -> None:
    archive.save([make_report()])
    with archive.database.writing() as connection:
        connection.execute(text("UPDATE slurmscope_schema SET version = 99"))

    assert "the archive has the schema 99 of a later release, and this one supports 3: update slurmscope" == refusal(
        open_at(path)
    )


def test_older_archive_is_brought_up_to_date_step_by_step(
    archive: SqlArchive, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.save([make_report()])
    steps: list[int] = []

    def step(number: int) -> Step:
        return Step(f"step {number}", schema.JOBS, lambda _: steps.append(number))

    monkeypatch.setattr(schema, "SCHEMA_VERSION", 5)
    monkeypatch.setattr(migrations, "MIGRATIONS", {3: [step(3)], 4: [step(4)]})

    for _ in range(2):
        again = open_at(path)
        assert (make_report(),) == again.find(EVERYTHING, 4711)
        again.close()

    assert [3, 4] == steps


def test_writer_that_never_ends_costs_an_error_and_readers_go_on(archive: SqlArchive, path: Path) -> None:
    archive.save([make_report()])
    hurried = open_at(path, timeout=0.2)
    hurried.find(EVERYTHING, 4711)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(ArchiveError, match="locked"):
            hurried.save([make_report(make_record(5))])
        assert (make_report(),) == hurried.find(EVERYTHING, 4711)
        other.execute("ROLLBACK")
    hurried.save([make_report(make_record(5))])
    hurried.close()


def test_row_that_is_too_large_is_distinguished_from_a_lock(archive: SqlArchive, path: Path) -> None:
    report = make_report()
    noise = random.Random(1)
    # Some 9 bytes for each of 20,000 numbers that do not repeat: far more than fits, in any coding.
    line = replace(report.charts[0].lines[0], values=tuple(noise.random() for _ in range(20_000)))
    large = replace(report, charts=(replace(report.charts[0], lines=(line,)),))
    archive.save([report])
    with archive.database.reading() as connection:
        connection.connection.dbapi_connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 50_000)  # type: ignore[union-attr]

    with pytest.raises(ArchiveTooLarge, match="too big"):
        archive.save([large])
    archive.save([replace(large, charts=())])
    hurried = open_at(path, timeout=0.2)
    hurried.find(EVERYTHING, 1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ArchiveError) as told:
            hurried.save([large])
        other.execute("ROLLBACK")
    hurried.close()
    assert ArchiveError is type(told.value)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (pymysql.err.OperationalError(1153, "Got a packet bigger than 'max_allowed_packet' bytes"), ArchiveTooLarge),
        (pymysql.err.DataError(1406, "Data too long for column"), ArchiveTooLarge),
        (psycopg.errors.ProgramLimitExceeded("row is too big"), ArchiveTooLarge),
        (pymysql.err.OperationalError(1205, "Lock wait timeout exceeded"), ArchiveConflict),
        (pymysql.err.OperationalError(2006, "MySQL server has gone away"), ArchiveError),
        (psycopg.errors.QueryCanceled("canceling statement due to statement timeout"), ArchiveError),
        (psycopg.errors.DiskFull("no space left"), ArchiveError),
    ],
)
def test_reason_of_a_server_is_known_by_its_number(
    archive: SqlArchive, reason: Exception, expected: type[ArchiveError]
) -> None:
    with pytest.raises(ArchiveError) as told, archive.database.reading():
        raise DBAPIError("INSERT", {"body": b"x" * 10_000_000}, reason)

    assert expected is type(told.value)
    # The message of the server, without its number or the name of a class.
    assert str(reason.args[-1]) in str(told.value)
    assert type(reason).__name__ not in str(told.value)


def test_first_of_two_errors_counts_and_none_that_was_reported_before(archive: SqlArchive) -> None:
    too_large = DBAPIError("INSERT", {}, pymysql.err.OperationalError(1153, "a packet is too big"))
    gone = DBAPIError("ROLLBACK", None, pymysql.err.OperationalError(2006, "the server has gone away"))

    def save() -> None:
        with archive.database.reading():
            try:
                raise too_large
            finally:
                raise gone

    with pytest.raises(ArchiveTooLarge, match="too big"):
        save()
    try:
        save()
    except ArchiveTooLarge:
        with pytest.raises(ArchiveError, match="locked") as told, archive.database.reading():
            raise DBAPIError("INSERT", {}, sqlite3.OperationalError("database is locked")) from None
    assert ArchiveError is type(told.value)


def test_large_archive_is_emptied_little_by_little(archive: SqlArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "DELETE_ROWS", 2)
    monkeypatch.setattr(archive_module, "DELETE_BATCHES", 3)
    archive.save([make_unmeasured_report(make_record(number)) for number in range(1, 11)])
    later = START + 30 * 86400

    assert [6, 4, 0] == [archive.delete_curves(later) for _ in range(3)]
    monkeypatch.setitem(day_retention.MAX_DAY_JOBS, "sqlite", 9)
    assert [6, 4, 0] == [archive.delete_jobs(later) for _ in range(3)]
    assert () == archive.total(EVERYTHING, JobFilter(), GroupBy.DAY)


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


def test_query_without_end_is_broken_off(path: Path) -> None:
    hurried = open_at(path, timeout=0.2)
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"

    with pytest.raises(ArchiveError, match="interrupted"), hurried.database.reading() as connection:
        connection.execute(text(endless))

    assert () == hurried.find(EVERYTHING, 1)
    hurried.close()


def test_more_people_than_connections_wait_or_are_reported(path: Path) -> None:
    hurried = open_at(path, timeout=0.2)
    hurried.find(EVERYTHING, 1)
    is_over = threading.Event()
    taken = threading.Barrier(25)

    def hold() -> None:
        with hurried.database.reading():
            taken.wait(60)
            is_over.wait(60)

    threads = [threading.Thread(target=hold) for _ in range(24)]
    for thread in threads:
        thread.start()
    taken.wait(60)

    with pytest.raises(ArchiveError, match="busy"):
        hurried.find(EVERYTHING, 1)
    is_over.set()
    for thread in threads:
        thread.join()
    assert () == hurried.find(EVERYTHING, 1)
    hurried.close()


def test_token_still_works_when_its_use_cannot_be_noted(archive: SqlArchive, path: Path) -> None:
    token = TokenStore(archive.database).create("ada")
    hurried = open_at(path, timeout=0.2)
    hurried.find(EVERYTHING, 1)

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert Viewer(name="ada") == TokenStore(hurried.database).find(token)
        other.execute("ROLLBACK")
    hurried.close()


def test_token_itself_is_nowhere_in_the_file(archive: SqlArchive, path: Path) -> None:
    token = TokenStore(archive.database).create("ada")
    archive.close()

    assert len(token) > 43
    assert token.removeprefix("slsc_").encode() not in path.read_bytes()


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
    "viewer", [EVERYTHING, Viewer(name="ada", coordinates=frozenset({"physics", "x"}))], ids=["staff", "coordinator"]
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


@pytest.mark.parametrize("newest", [15, 30, 1000])
@pytest.mark.parametrize("viewer", [EVERYTHING, Viewer(name="bob", coordinates=frozenset({"physics"}))])
def test_common_name_is_found_among_the_newest_jobs(
    archive: SqlArchive, monkeypatch: pytest.MonkeyPatch, newest: int, viewer: Viewer
) -> None:
    monkeypatch.setattr(queries, "NEWEST_JOBS", newest)
    names = ("relax", "relaxed", "solve")
    people = ({"user": "ada", "account": "physics"}, {"user": "bob", "account": "chemistry"})
    records = [
        make_record(number, name=names[number % 3], submit_seconds=START - 600 + number // 2, **people[number % 2])
        for number in range(90)
    ]
    archive.save([make_unmeasured_report(record) for record in records])

    found: list[int] = []
    page = archive.list_jobs(viewer, JobFilter(name="relax"), limit=4)
    while True:
        found += [row.job_id for row in page.rows]
        if page.next_key is None:
            break
        page = archive.list_jobs(viewer, JobFilter(name="relax"), limit=4, after=page.next_key)

    assert [number for number in range(89, -1, -1) if number % 3 < 2] == found
    (statement,) = queries.newest_named(EVERYTHING, JobFilter(name="relax"), None, 50)
    assert "slurmscope_jobs_submit" in str(explain(archive, statement))


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

    for statement in total_statements(viewer, year, GroupBy.DAY):
        key = "slurmscope_totals USING INDEX slurmscope_totals_name (dimension=? AND name=? AND span=? AND day>?"
        assert key in explain(archive, statement)[0]


@pytest.mark.parametrize(
    ("viewer", "wanted"),
    [
        (Viewer(name="bob"), JobFilter(account="physics")),
        (Viewer(name="bob"), JobFilter(user="ada")),
        (Viewer(name="bob", coordinates=frozenset({"physics"})), JobFilter()),
        (
            Viewer(name="bob", coordinates=frozenset({"physics"}), coordinated_clusters=frozenset({"lab"})),
            JobFilter(account="physics"),
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


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/var/lib/a.db", "sqlite:////var/lib/a.db"),
        ("sqlite:////a", "sqlite:////a"),
        ("mariadb://slurmscope@db:3306/archive", "mariadb://slurmscope@db:3306/archive"),
        ("postgresql://u@/d?host=/run/pg", "postgresql://u@/d?host=/run/pg"),
        # Of several hosts, the one that accepts writes.
        ("postgresql://u@a:1,b:2/d", "postgresql://u@/d?host=a:1&host=b:2&target_session_attrs=read-write"),
        (
            "postgresql://u@a,b/d?sslmode=require&target_session_attrs=any",
            "postgresql://u@/d?host=a&host=b&sslmode=require&target_session_attrs=any",
        ),
        (
            "postgresql://u@/d?host=/a&host=/b&sslmode=disable",
            "postgresql://u@/d?host=/a&host=/b&sslmode=disable&target_session_attrs=read-write",
        ),
    ],
)
def test_address_is_read(given: str, expected: str) -> None:
    assert expected == parse_archive_url(given)


@pytest.mark.parametrize(
    "given",
    [
        "", "a.db", "sqlite://a.db", "sqlite:///a.db", "sqlite:////a.db?mode=memory", "oracle://u@h/d", "mariadb://u@h",
        "mariadb://u:secret@h/d", "postgresql://u@h/d?password=secret", "mariadb://u@h:x/d", "postgresql://u@h/d#secret",
        "mariadb://u@h/d?init_command=secret", 5, "mariadb://u@a:1,b:2/d", "postgresql://u:secret@a:1,b:2/d",
        "postgresql://u@[::1]:1,b:2/d",
    ],
)  # fmt: skip
def test_wrong_address_is_rejected_without_its_secrets(given: object) -> None:
    with pytest.raises(ValueError) as told:
        parse_archive_url(given)

    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file"), (b"", "empty"), (b"x" * 5000, "longer"), (b"\xff\xfe", "UTF-8")]
)
def test_unusable_password_file_is_reported(tmp_path: Path, content: bytes | None, reason: str) -> None:
    if content is not None:
        (tmp_path / "password").write_bytes(content)

    with pytest.raises(ArchiveError, match=reason):
        read_password(tmp_path / "password")


def test_password_is_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes(b" a b \r\nsomething else\n")

    assert " a b " == read_password(tmp_path / "password")


def test_unknown_kind_of_database_is_a_mistake_of_the_configuration() -> None:
    with pytest.raises(ConfigError) as told:
        open_archive(ArchiveSettings(url="oracle://u@h/d"))

    assert isinstance(told.value, SlurmscopeError)


def test_server_that_is_not_there_is_one_sentence() -> None:
    for url in ("mariadb://u@127.0.0.1:1/d", "postgresql://u@127.0.0.1:1/d"):
        assert refusal(open_archive(ArchiveSettings(url=url, timeout=2.0))).startswith(f"the archive {url} could not")


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


def test_missing_package_is_reported_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("slurmscope.store.archive.archive", "sqlalchemy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)

    with pytest.raises(MissingExtraError, match=r"slurmscope\[reports\]"):
        open_archive(ArchiveSettings())


def test_missing_driver_is_reported_with_the_extra_that_brings_it() -> None:
    with pytest.raises(MissingExtraError, match=r"slurmscope\[mariadb\]"):
        require_package("no_such_driver", "an archive in MariaDB", "mariadb")
