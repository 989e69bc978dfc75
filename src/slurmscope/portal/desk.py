# SPDX-License-Identifier: Apache-2.0
"""Say what the portal needs from those who run it."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Protocol

from slurmscope.model.archive import Archive
from slurmscope.model.report import JobReport
from slurmscope.model.viewer import Viewer
from slurmscope.portal.cluster_now import ClusterNow
from slurmscope.portal.portal_settings import PortalSettings


class Identifies(Protocol):
    """Tell who asks; whoever is not known is turned away with ``NotSignedIn`` or ``Refused``."""

    def identify(self, scope: MutableMapping[str, Any]) -> Viewer:
        """Return the person behind a request."""
        ...


class PortalDesk(Protocol):
    """Answer the portal's questions, from any thread. The archive may raise ``ArchiveError``, nothing else may fail."""

    @property
    def settings(self) -> PortalSettings:
        """Return what the site has set."""
        ...

    @property
    def identifier(self) -> Identifies:
        """Return who knows people."""
        ...

    @property
    def archive(self) -> Archive:
        """Return the jobs of the past."""
        ...

    def report(self, viewer: Viewer, shown_id: str) -> JobReport | None:
        """Return the newest run of a job, from the archive or live; None when absent, or not for this viewer."""
        ...

    def now(self) -> ClusterNow:
        """Return the last known state of the cluster, without waiting for Slurm."""
        ...

    def problems(self) -> tuple[str, ...]:
        """Return a sentence for each server that is missing now."""
        ...

    def find_uid(self, name: str) -> int | None:
        """Return the number of a user; None when the system knows nobody of that name."""
        ...

    def audit(self, viewer: Viewer, route: str, subject: str) -> None:
        """Note that staff looked at what belongs to somebody else."""
        ...

    def clock(self) -> float:
        """Return the seconds since 1970."""
        ...
