# SPDX-License-Identifier: Apache-2.0
"""A look is written down once, however often an open page asks, and never passed over because a row was lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slurmscope.archive import access as audit_module
from slurmscope.archive.access import AuditLog
from slurmscope.archive.engine import Database
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.core.errors import ArchiveError
from slurmscope.jobs.viewer import Viewer, ViewerRole

SUE = Viewer(name="sue", role=ViewerRole.SUPPORT)
PAGE, LIVE, DATA = "/jobs/{shown_id}", "/jobs/{shown_id}/live", "/jobs/{shown_id}/charts.json"


class Bench:
    """Hold a log whose clock stands until a test moves it."""

    def __init__(self, path: Path) -> None:
        self.now = 1_700_000_000.0
        self.database = Database(ArchiveSettings(url=f"sqlite:///{path}", timeout=0.3))
        self.log = AuditLog(self.database, wall_clock=lambda: self.now)

    def rows(self) -> list[tuple[int, str, str]]:
        """Return seconds since the start, route and subject, oldest first."""
        rows = reversed(self.log.list_rows(limit=1000))
        return [(row.at_seconds - 1_700_000_000, row.route, row.subject) for row in rows]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "archive.db")
    with closing(made.database):
        yield made


def test_open_page_leaves_a_row_every_quarter_of_an_hour(bench: Bench) -> None:
    bench.log.audit(SUE, PAGE, "job 4711")
    for _ in range(60):
        bench.now += 30
        bench.log.audit(SUE, LIVE, "job 4711")
        bench.log.audit(SUE, DATA, "job 4711")

    # Half an hour: 121 questions.
    assert [(0, PAGE, "job 4711"), (900, LIVE, "job 4711"), (1800, LIVE, "job 4711")] == bench.rows()


def test_another_person_role_or_subject_is_another_look(bench: Bench) -> None:
    for viewer in (SUE, Viewer(name="eve", role=ViewerRole.SUPPORT), Viewer(name="sue", role=ViewerRole.ADMIN)):
        for subject in ("job 1", "job 2"):
            bench.log.audit(viewer, PAGE, subject)

    assert 6 == len(bench.rows())


def test_row_that_was_not_written_is_written_at_the_next_look(bench: Bench, tmp_path: Path) -> None:
    bench.log.list_rows()
    with closing(sqlite3.connect(tmp_path / "archive.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ArchiveError):
            bench.log.audit(SUE, PAGE, "job 4711")
        other.execute("ROLLBACK")

    bench.log.audit(SUE, LIVE, "job 4711")

    assert [(0, LIVE, "job 4711")] == bench.rows()


def test_clock_that_was_set_back_hides_no_look(bench: Bench) -> None:
    bench.log.audit(SUE, PAGE, "job 4711")
    bench.now -= 3600
    bench.log.audit(SUE, PAGE, "job 4711")

    assert [0, -3600] == [at_seconds for at_seconds, _, _ in bench.rows()]


def test_memory_of_looks_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "MAX_RECENT", 2)
    for subject in ("job 1", "job 2", "job 3", "job 3", "job 2", "job 1"):
        bench.log.audit(SUE, PAGE, subject)

    # The first was pushed out by the third: it is written once more, which is better than too little.
    assert ["job 1", "job 2", "job 3", "job 1"] == [subject for _, _, subject in bench.rows()]
