# SPDX-License-Identifier: Apache-2.0
"""Be the desk behind a portal whose jobs are in a real archive, and whose people say who they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from slurmscope.model.archive import Archive
from slurmscope.model.report import JobReport
from slurmscope.model.viewer import Viewer
from slurmscope.portal.cluster_now import ClusterNow
from slurmscope.portal.portal_settings import PortalSettings
from slurmscope.store.archive_settings import ArchiveSettings
from slurmscope.store.opening import open_archive
from tests.fakes.portal_desk import CLUSTER, FakeIdentifier
from tests.fakes.reports import START


@dataclass
class ArchiveDesk:
    """Answer from an archive."""

    archive: Archive
    settings: PortalSettings = field(default_factory=lambda: PortalSettings(title="Test cluster"))
    identifier: FakeIdentifier = field(default_factory=FakeIdentifier)
    cluster: ClusterNow = CLUSTER
    missing: tuple[str, ...] = ()

    def report(self, viewer: Viewer, shown_id: str) -> JobReport | None:
        rows = self.archive.find_shown(viewer, shown_id)
        return self.archive.find(viewer, rows[0].job_id)[0] if rows else None

    def now(self) -> ClusterNow:
        return self.cluster

    def problems(self) -> tuple[str, ...]:
        return self.missing

    def find_uid(self, name: str) -> int | None:
        return {"ada": 1001, "bob": 1002}.get(name)

    def audit(self, viewer: Viewer, route: str, subject: str) -> None:
        """Nobody reads it here."""

    def clock(self) -> float:
        return START + 3 * 86400.0


@contextmanager
def open_archive_desk(folder: Path, reports: Sequence[JobReport]) -> Iterator[ArchiveDesk]:
    """Keep reports in an SQLite file for as long as the desk is open."""
    archive = open_archive(ArchiveSettings(url=f"sqlite:///{folder}/archive.db"))
    try:
        archive.save(reports)
        yield ArchiveDesk(archive=archive)
    finally:
        archive.close()
