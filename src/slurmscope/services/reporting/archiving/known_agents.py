# SPDX-License-Identifier: Apache-2.0
"""Know which nodes have an agent, to find jobs there whose series are missing.

An engine that has lost all of its storages may answer like one that never had any series.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slurmscope.model.job_record import JobRecord
from slurmscope.model.report import JobReport

MIN_RUN_SECONDS = 180.0
"""How long a job has run when its series must exist, with a usual scrape interval."""
MAX_NODES = 100_000


class KnownAgents:
    """Remember the nodes on which jobs were measured. Not thread-safe."""

    def __init__(self) -> None:
        """Begin without any."""
        self._nodes: set[str] = set()

    def learn(self, reports: Iterable[JobReport]) -> None:
        """Remember the measured nodes of these jobs."""
        for report in reports:
            self._add(_measured_nodes(report))

    def learn_archived(self, reports: Iterable[JobReport]) -> None:
        """Remember the same of archived jobs; those marked as incomplete were on nodes with agents too."""
        self.learn(reports)
        for report in reports:
            if report.is_incomplete:
                self._add(report.record.nodes)

    def are_on(self, record: JobRecord) -> bool:
        """Return whether a node of this job has an agent."""
        return not self._nodes.isdisjoint(record.nodes)

    def unmeasured(self, reports: Iterable[JobReport]) -> list[JobReport]:
        """Return the jobs of which no series was found, although there should be some."""
        return [
            report
            for report in reports
            if report.summary.run_seconds >= MIN_RUN_SECONDS and self.are_on(report.record) and not is_measured(report)
        ]

    def _add(self, nodes: Iterable[str]) -> None:
        if len(self._nodes) < MAX_NODES:
            self._nodes.update(nodes)


def is_measured(report: JobReport) -> bool:
    """Return whether series of this job were found."""
    return bool(_measured_nodes(report))


def _measured_nodes(report: JobReport) -> Sequence[str]:
    return [node.node for node in report.summary.nodes if node.cpu_seconds is not None]
