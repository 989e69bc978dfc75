# SPDX-License-Identifier: Apache-2.0
"""Say what the portal needs from those who run it."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Protocol

from slurmscope.model.archive import Archive
from slurmscope.model.report import Chart, JobReport
from slurmscope.model.viewer import Viewer
from slurmscope.portal.scope import Scope
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.sign_in.csrf import Csrf
from slurmscope.portal.views.cluster_now import ClusterNow


class Identifies(Protocol):
    """Tell who asks; whoever is not known is turned away with ``NotSignedIn`` or ``Refused``."""

    def identify(self, scope: MutableMapping[str, Any]) -> Viewer:
        """Return the person behind a request."""
        ...

    def is_by_token(self, scope: Scope) -> bool:
        """Tell whether it is an API token that identifies this request."""
        ...


class DigestOptOuts(Protocol):
    """Remember who wants no weekly letters. What goes wrong is an ``ArchiveError``."""

    def is_opted_out(self, user: str) -> bool:
        """Tell whether somebody wants none."""
        ...

    def set_opt_out(self, user: str, is_opted_out: bool) -> None:  # noqa: FBT001 - a fact, not a switch
        """Remember whether somebody wants none."""
        ...


class PortalBackend(Protocol):
    """Answer the portal's questions, from any thread.

    What is kept in the archive, letters and audited looks included, may raise ``ArchiveError``; nothing else may fail.
    """

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

    @property
    def letters(self) -> DigestOptOuts:
        """Return who knows whom to send no letters."""
        ...

    @property
    def csrf(self) -> Csrf:
        """Return who knows the forms of our own pages."""
        ...

    def report(self, viewer: Viewer, shown_id: str) -> JobReport | None:
        """Return the newest run of a job, from the archive or live; None when absent, or not for this viewer."""
        ...

    def now(self) -> ClusterNow:
        """Return the last known state of the cluster, without waiting for Slurm."""
        ...

    def cluster_charts(self) -> tuple[Chart, ...]:
        """Return charts of the cluster's last day; none where that is not recorded here."""
        ...

    def problems(self) -> tuple[str, ...]:
        """Return a sentence for each server that is missing now."""
        ...

    def find_uid(self, name: str) -> int | None:
        """Return the number of a user; None when the system knows nobody of that name."""
        ...

    def audit(self, viewer: Viewer, route: str, subject: str) -> None:
        """Note that staff looked at what belongs to somebody else, or changed it."""
        ...

    def clock(self) -> float:
        """Return the seconds since 1970."""
        ...
