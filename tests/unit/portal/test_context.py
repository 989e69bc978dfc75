# SPDX-License-Identifier: Apache-2.0
"""Staff access to data of other users is audited before anything is shown."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi import FastAPI

from slurmscope.archive.access import AuditLog
from slurmscope.archive.engine import Database
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.core.errors import ArchiveError
from slurmscope.jobs.viewer import Viewer
from slurmscope.portal.app import make_app
from tests.fakes.browser import PortalClient
from tests.fakes.portal_backend import FakeAuditLog, FakeBackend
from tests.fakes.reports import make_record, make_report
from tests.fakes.sign_in import FakeClock

ROUTE = "/jobs/{shown_id}"


@pytest.mark.parametrize("viewer", ["sue", "root"])
def test_staff_access_to_jobs_of_others_is_audited(backend: FakeBackend, viewer: str) -> None:
    PortalClient(backend.make_app(), viewer).get("/jobs/4711")

    assert [(viewer, ROUTE, "job 4711")] == backend.audited


@pytest.mark.parametrize(("viewer", "job"), [("ada", 4711), ("cora", 4711), ("eve", 4711), ("sue", 7), ("root", 99)])
def test_other_access_is_not_audited(backend: FakeBackend, viewer: str, job: int) -> None:
    backend.archive.save([make_report(make_record(7, user="sue"))])

    PortalClient(backend.make_app(), viewer).get(f"/jobs/{job}")

    assert [] == backend.audited


def test_access_that_cannot_be_audited_is_denied(backend: FakeBackend) -> None:
    class ReadOnlyLog(FakeAuditLog):
        def audit(self, viewer: Viewer, route: str, subject: str) -> None:
            raise ArchiveError("the archive is read-only")

    answer = PortalClient(_make_audited_app(backend, ReadOnlyLog([])), "sue").get("/jobs/4711")

    assert 503 == answer.status_code
    assert "4711" not in answer.text


def test_audit_log_keeps_who_when_and_what(backend: FakeBackend, tmp_path: Path) -> None:
    with closing(Database(ArchiveSettings(url=f"sqlite:///{tmp_path / 'archive.db'}"))) as database:
        log = AuditLog(database, wall_clock=FakeClock(1000.0))
        app = _make_audited_app(backend, log)
        for viewer in ("sue", "ada"):
            PortalClient(app, viewer).get("/jobs/4711")

        rows = [(row.at_seconds, row.viewer, row.role, row.route, row.subject) for row in log.list_rows()]

    assert [(1000, "sue", "support", ROUTE, "job 4711")] == rows


def _make_audited_app(backend: FakeBackend, log: AuditLog) -> FastAPI:
    return make_app(replace(backend.connect(), audit_log=log))
