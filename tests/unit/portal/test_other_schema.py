# SPDX-License-Identifier: Apache-2.0
"""A running portal notices that its archive has the tables of another release; it neither ends nor writes."""

from __future__ import annotations

import sqlite3
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

from slurmscope.archive.tables import SCHEMA_VERSION
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


def test_portal_neither_ends_nor_writes_while_the_tables_are_those_of_another_release(tmp_path: Path) -> None:
    flags = ("--archive.url", f"{tmp_path}/archive.db", "--portal.listen-address", "127.0.0.1:0")
    with running("portal", *flags, "--slurm.bin-path", str(tmp_path), wait_for="msg=listening") as portal:
        assert 200 == get(portal, "jobs")[0]
        set_version(tmp_path / "archive.db", 99)
        until(lambda: get(portal, "jobs")[0] == 503)

        _, page = get(portal, "jobs")
        health, _ = get(portal, "healthz")

        assert f"schema 99, and this release supports only schema {SCHEMA_VERSION}" in page
        assert 200 == health
        set_version(tmp_path / "archive.db", SCHEMA_VERSION)
        until(lambda: get(portal, "jobs")[0] == 200)
        assert 0 == portal.end()
