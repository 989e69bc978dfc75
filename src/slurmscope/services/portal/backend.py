# SPDX-License-Identifier: Apache-2.0
"""Stand behind the portal: answer its questions from the archive, from accounting, and from the controller."""

from __future__ import annotations

import pwd
import time
from collections.abc import Callable, Iterable

from slurmscope.model.archive import Archive
from slurmscope.model.jobs import Jobs
from slurmscope.model.nodes import Nodes
from slurmscope.model.report import Chart, JobReport
from slurmscope.model.viewer import Viewer
from slurmscope.portal.backend import DigestOptOuts, Identifies
from slurmscope.portal.pages.audit_trail import AuditTrail
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.sign_in.csrf import Csrf
from slurmscope.portal.views.cluster_now import ClusterNow, sum_up_cluster
from slurmscope.services.exporter.readings import SharedReading, Snapshot
from slurmscope.services.portal.metrics import PortalReport
from slurmscope.services.reporting.reports import ReportFinder

Problems = Callable[[], Iterable[str]]

PATIENCE_SECONDS = 2.0
"""How long a page waits for Slurm when nothing is known of now."""


class LivePortalBackend:
    """Be the desk of a running portal; any thread may ask."""

    def __init__(  # noqa: PLR0913 - everything a page may need
        self,
        *,
        settings: PortalSettings,
        identifier: Identifies,
        archive: Archive,
        letters: DigestOptOuts,
        csrf: Csrf,
        desk: ReportFinder,
        audit_trail: AuditTrail,
        readings: tuple[SharedReading, SharedReading],
        metrics: PortalReport,
        problems: Iterable[Problems] = (),
        charts: Callable[[], tuple[Chart, ...]] = tuple,
    ) -> None:
        """Take the parts; ``readings`` are those of jobs and of nodes, ``charts`` draws the cluster's last day."""
        self.settings = settings
        self.identifier = identifier
        self.archive = archive
        self.letters = letters
        self.csrf = csrf
        self.metrics = metrics
        self._desk = desk
        self._audit_trail = audit_trail
        self._jobs, self._nodes = readings
        self._problems = tuple(problems)
        self._charts = charts

    def report(self, viewer: Viewer, shown_id: str) -> JobReport | None:
        """Return the newest run of a job; None when absent, or not for this viewer."""
        return self._desk.report(viewer, shown_id)

    def now(self) -> ClusterNow:
        """Return the last known state of the cluster; a new one is asked for, and waited for if that is too old."""
        self._jobs.request()
        self._nodes.request()
        until = time.monotonic() + PATIENCE_SECONDS
        jobs, nodes = (_newest(reading, until) for reading in (self._jobs, self._nodes))
        ages = [age for reading in (self._jobs, self._nodes) if (age := reading.age_seconds()) is not None]
        return sum_up_cluster(
            jobs.value if isinstance(jobs.value, Jobs) else None,
            nodes.value if isinstance(nodes.value, Nodes) else None,
            age_seconds=max(ages, default=None),
            problems=tuple(_slurm_problems(self._jobs, self._nodes)),
        )

    def cluster_charts(self) -> tuple[Chart, ...]:
        """Return charts of the cluster's last day; none where that is not recorded here."""
        return self._charts()

    def problems(self) -> tuple[str, ...]:
        """Return a sentence for each server that is missing now."""
        told = [sentence for problems in self._problems for sentence in problems()]
        return tuple(dict.fromkeys((*told, *_slurm_problems(self._jobs, self._nodes))))

    def find_uid(self, name: str) -> int | None:
        """Return the number of a user of this system."""
        try:
            return pwd.getpwnam(name).pw_uid
        except (KeyError, ValueError):
            return None

    def audit(self, viewer: Viewer, route: str, subject: str) -> None:
        """Keep that staff looked at what belongs to somebody else, or changed it."""
        self._audit_trail.audit(viewer, route, subject)

    def clock(self) -> float:
        """Return the seconds since 1970."""
        return time.time()


def _newest(reading: SharedReading, until: float) -> Snapshot:
    snapshot = reading.wait(0.0)
    return snapshot if snapshot.has_value else reading.wait(until)


def _slurm_problems(*readings: SharedReading) -> Iterable[str]:
    for reading in readings:
        if reading.last_error is not None:
            reading.request()  # so that its return is noticed, whatever page is open
            yield f"Slurm does not tell about its {reading.name}: {reading.last_error}"
