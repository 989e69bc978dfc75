# SPDX-License-Identifier: Apache-2.0
"""Serve a portal from a real archive, with viewers named by a header."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fastapi import FastAPI

from slurmscope.archive.access import AuditLog
from slurmscope.archive.advice import SqlAdviceReader
from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.archive.staff import SqlSavedViews, SqlStaffNotes
from slurmscope.jobs.report import JobReport
from slurmscope.portal.app import make_app
from slurmscope.portal.sign_in.csrf import Csrf
from slurmscope.reports.find import ReportFinder
from slurmscope.reports.make import ReportMaker
from slurmscope.reports.sources import open_archive
from tests.fakes.portal_backend import SECRET, FakeBackend, FakeClusters, make_backend, read_suspects
from tests.fakes.reports import START


@dataclass
class ArchiveBackend:
    """Serve from an archive."""

    archive: SqlArchive
    fake: FakeBackend
    """Everything that is not archived."""
    audit_log: AuditLog | None = None
    seconds: float = START + 3 * 86400.0

    @property
    def opt_outs(self) -> Checkpoints:
        return Checkpoints(self.archive.database)

    def make_app(self) -> FastAPI:
        """Build the portal's application."""
        services, database = self.fake.connect(), self.archive.database
        finder = ReportFinder(self.archive, None, ReportMaker(None), clusters=self.archive.clusters)
        return make_app(
            replace(
                services,
                archive=self.archive,
                archived_clusters=FakeClusters(self.archive),
                suspects=read_suspects(self.archive, lambda: self.seconds),
                finder=finder,
                advice=SqlAdviceReader(database),
                csrf=Csrf(lambda: SECRET, is_by_token=self.fake.identifier.is_by_token, clock=lambda: self.seconds),
                audit_log=self.audit_log or services.audit_log,
                opt_outs=self.opt_outs,
                notes=SqlStaffNotes(database, wall_clock=lambda: self.seconds),
                views=SqlSavedViews(database),
                clock=lambda: self.seconds,
            )
        )


@contextmanager
def open_archive_backend(folder: Path, reports: Sequence[JobReport]) -> Iterator[ArchiveBackend]:
    """Keep reports in an SQLite file while the backend is open."""
    archive = open_archive(ArchiveSettings(url=f"sqlite:///{folder}/archive.db"))
    try:
        archive.save(reports)
        yield ArchiveBackend(archive=archive, fake=make_backend(()))
    finally:
        archive.close()
