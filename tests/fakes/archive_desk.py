# SPDX-License-Identifier: Apache-2.0
"""Be the desk behind a portal whose jobs are in a real archive, and whose people say who they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from slurmscope.model.report import Chart, JobReport
from slurmscope.model.viewer import Viewer
from slurmscope.portal.pages.audit_trail import AuditTrail
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.sign_in.csrf import Csrf
from slurmscope.portal.views.cluster_now import ClusterNow
from slurmscope.store.archive.archive import SqlArchive
from slurmscope.store.archive.checkpoints import Checkpoints
from slurmscope.store.archive.opening import open_archive
from slurmscope.store.archive.settings import ArchiveSettings
from tests.fakes.portal_desk import CLUSTER, JOBS_CHART, SECRET, FakeIdentifier
from tests.fakes.reports import START


@dataclass
class ArchiveDesk:
    """Answer from an archive."""

    archive: SqlArchive
    settings: PortalSettings = field(default_factory=lambda: PortalSettings(title="Test cluster"))
    identifier: FakeIdentifier = field(default_factory=FakeIdentifier)
    cluster: ClusterNow = CLUSTER
    charts: tuple[Chart, ...] = (JOBS_CHART,)
    missing: tuple[str, ...] = ()
    audit_trail: AuditTrail | None = None
    seconds: float = START + 3 * 86400.0

    @property
    def letters(self) -> Checkpoints:
        return Checkpoints(self.archive.database)

    @property
    def csrf(self) -> Csrf:
        return Csrf(SECRET, is_by_token=self.identifier.is_by_token, clock=self.clock)

    def report(self, viewer: Viewer, shown_id: str) -> JobReport | None:
        rows = self.archive.find_shown(viewer, shown_id)
        return self.archive.find(viewer, rows[0].job_id)[0] if rows else None

    def now(self) -> ClusterNow:
        return self.cluster

    def cluster_charts(self) -> tuple[Chart, ...]:
        return self.charts

    def problems(self) -> tuple[str, ...]:
        return self.missing

    def find_uid(self, name: str) -> int | None:
        return {"ada": 1001, "bob": 1002}.get(name)

    def audit(self, viewer: Viewer, route: str, subject: str) -> None:
        if self.audit_trail is not None:
            self.audit_trail.audit(viewer, route, subject)

    def clock(self) -> float:
        return self.seconds


@contextmanager
def open_archive_desk(folder: Path, reports: Sequence[JobReport]) -> Iterator[ArchiveDesk]:
    """Keep reports in an SQLite file for as long as the desk is open."""
    archive = open_archive(ArchiveSettings(url=f"sqlite:///{folder}/archive.db"))
    try:
        archive.save(reports)
        yield ArchiveDesk(archive=archive)
    finally:
        archive.close()
