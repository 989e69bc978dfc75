# SPDX-License-Identifier: Apache-2.0
"""A running portal notices that a later release has migrated its archive; it neither ends nor writes."""

from __future__ import annotations

import sqlite3
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from slurmscope.archive.columns import METADATA
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.archive.tables import SCHEMA_VERSION
from slurmscope.reports.sources import open_archive
from tests.fakes.archive_version_2 import write_version_2
from tests.fakes.reports import make_record, make_report
from tests.processes import PATIENCE_SECONDS, Exporter, running, until


def get(portal: Exporter, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(portal.addresses[0] + path, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def set_version(file: Path, version: int) -> None:
    with closing(sqlite3.connect(file, isolation_level=None, timeout=PATIENCE_SECONDS)) as connection:
        connection.execute(f"UPDATE slurmscope_schema SET version = {version}")


def test_portal_of_an_earlier_release_stands_still_until_it_is_updated(tmp_path: Path) -> None:
    flags = ("--archive.url", f"{tmp_path}/archive.db", "--portal.listen-address", "127.0.0.1:0")
    with running("portal", *flags, "--slurm.bin-path", str(tmp_path), wait_for="msg=listening") as portal:
        assert 200 == get(portal, "jobs")[0]
        set_version(tmp_path / "archive.db", 99)
        until(lambda: get(portal, "jobs")[0] == 503)

        _, page = get(portal, "jobs")
        health, _ = get(portal, "healthz")

        assert f"schema 99 of a later release, and this one supports {SCHEMA_VERSION}: update slurmscope" in page
        assert 200 == health
        set_version(tmp_path / "archive.db", SCHEMA_VERSION)
        until(lambda: get(portal, "jobs")[0] == 200)
        assert 0 == portal.end()


def test_two_portals_of_this_release_share_the_archive_of_the_previous_one(tmp_path: Path) -> None:
    settings = ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db")
    with closing(open_archive(settings)) as archive, archive.database.writing() as connection:
        METADATA.drop_all(connection)
        write_version_2(connection, [make_report(make_record(4711)), make_report(make_record(5))])
    flags = ("--archive.url", f"{tmp_path}/archive.db", "--portal.listen-address", "127.0.0.1:0")
    quiet = ("--slurm.bin-path", str(tmp_path), "--no-reporter")
    with (
        running("portal", *flags, *quiet, wait_for="msg=listening") as one,
        running("portal", *flags, *quiet, wait_for="msg=listening") as two,
        ThreadPoolExecutor(2) as pool,
    ):
        # The first page of each opens the archive.
        pages = list(pool.map(lambda portal: get(portal, "jobs?since=2020-01-01"), (one, two)))

    assert [200, 200] == [status for status, _ in pages]
    assert all(">4711<" in page and ">5<" in page for _, page in pages)
    with closing(sqlite3.connect(tmp_path / "archive.db")) as connection:
        assert [(1, SCHEMA_VERSION)] == connection.execute("SELECT id, version FROM slurmscope_schema").fetchall()
