# SPDX-License-Identifier: Apache-2.0
"""Serve a portal from a real archive, with viewers named by a header."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fastapi import FastAPI

from slurmscope.archive.advice import SqlAdviceReader
from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.archive.staff import SqlSavedViews, SqlStaffNotes
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.viewer import Viewer
from slurmscope.portal.app import make_app
from slurmscope.portal.sign_in.csrf import Csrf
from slurmscope.reports.sources import open_archive
from tests.fakes.portal_backend import SECRET, FakeBackend, find_archived, make_backend
from tests.fakes.reports import START


@dataclass
class ArchiveBackend:
    """Serve from an archive."""

    archive: SqlArchive
    fake: FakeBackend
    """Everything that is not archived."""
    audit: Callable[[Viewer, str, str], None] | None = None
    seconds: float = START + 3 * 86400.0

    @property
    def opt_outs(self) -> Checkpoints:
        return Checkpoints(self.archive.database)

    def make_app(self) -> FastAPI:
        """Build the portal's application."""
        backend, database = self.fake.connect(), self.archive.database
        csrf = Csrf(lambda: SECRET, is_by_token=self.fake.identifier.is_by_token, clock=lambda: self.seconds)
        return make_app(
            replace(
                backend,
                archive=self.archive,
                sign_in=replace(backend.sign_in, csrf=csrf, audit=self.audit or backend.sign_in.audit),
                jobs=replace(
                    backend.jobs,
                    find_report=partial(find_archived, self.archive),
                    clusters=self.archive.clusters,
                    advice=SqlAdviceReader(database),
                ),
                people=replace(
                    backend.people,
                    opt_outs=self.opt_outs,
                    notes=SqlStaffNotes(database, wall_clock=lambda: self.seconds),
                    views=SqlSavedViews(database),
                ),
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
