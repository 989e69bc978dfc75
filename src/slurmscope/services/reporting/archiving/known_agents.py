# SPDX-License-Identifier: Apache-2.0
"""Know what the agents of nodes measure, to find jobs there whose series are missing.

An engine that has lost all of its storages may answer like one that never had any series, one that has lost some of
them like one that has no series of some nodes, and one that still waits for samples, such as those that a remote write
client buffers, like one that has no later ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Literal

from slurmscope.model.job_record import JobRecord
from slurmscope.model.report import JobReport

MIN_RUN_SECONDS = 180.0
"""How long a job has run when its series must exist, with a usual scrape interval."""
MIN_CURVE_SECONDS = 600.0
"""How long a job has run when it must have memory and a curve too."""
MAX_GAP_SECONDS, MAX_GAP_RATIO = 600.0, 0.02
"""How much of the run a curve may lack: so long, or this share if that is longer."""
MAX_NODES = 100_000

Kind = Literal["cpu", "memory", "curve"]
NodeNumber = tuple[str, Kind]
"""A node, and a kind of numbers that its agent measures."""


class KnownAgents:
    """Remember what was measured on which nodes. Not thread-safe."""

    def __init__(self) -> None:
        """Begin without any."""
        self._known: set[NodeNumber] = set()
        self._nodes: set[str] = set()
        self._looked_up: set[str] = set()

    def learn(self, reports: Iterable[JobReport]) -> None:
        """Remember what was measured of these jobs."""
        for report in reports:
            self._add(measured(report))

    def learn_archived(self, reports: Iterable[JobReport]) -> None:
        """Remember the same of archived jobs; those marked as incomplete were on nodes with agents too."""
        self.learn(reports)
        for report in reports:
            if report.is_incomplete:
                self._add((node, "cpu") for node in report.record.nodes)

    def are_on(self, record: JobRecord) -> bool:
        """Return whether a node of this job has an agent."""
        return not self._nodes.isdisjoint(record.nodes)

    def next_unknown(self, reports: Iterable[JobReport], limit: int) -> list[str]:
        """Return nodes without numbers in these reports of which nothing is known; each is returned once."""
        nodes = {node for report in reports for node in _silent_nodes(report)} - self._nodes - self._looked_up
        found = sorted(nodes)[:limit]
        if len(self._looked_up) < MAX_NODES:
            self._looked_up.update(found)
        return found

    def unmeasured(self, reports: Iterable[JobReport]) -> list[JobReport]:
        """Return the jobs that lack series, although there should be some."""
        return [report for report in reports if self._lacks_some(report, self._known)]

    def still_unmeasured(self, reports: Sequence[JobReport]) -> list[JobReport]:
        """Return the same for jobs that are measured again, but for nodes that they left idle.

        A job that was measured on some nodes left another one idle if other jobs are measured there meanwhile.
        """
        found = {number for report in reports for number in measured(report) if number[1] == "cpu"}
        return [report for report in reports if self._lacks_some(report, self._known - found)]

    def _lacks_some(self, report: JobReport, known: Set[NodeNumber]) -> bool:
        if is_measured(report):
            return not known.isdisjoint(_missing(report))
        return report.summary.run_seconds >= MIN_RUN_SECONDS and self.are_on(report.record)

    def _add(self, numbers: Iterable[NodeNumber]) -> None:
        for number in numbers:
            if len(self._nodes) < MAX_NODES:
                self._known.add(number)
                self._nodes.add(number[0])


def is_measured(report: JobReport) -> bool:
    """Return whether series of this job were found."""
    return bool(measured(report))


def measured(report: JobReport) -> frozenset[NodeNumber]:
    """Return on which nodes what was measured; a node without CPU time was not."""
    return frozenset(_numbers(report))


def _silent_nodes(report: JobReport) -> Set[str]:
    return {*report.record.nodes} - {node for node, _ in _numbers(report)}


def _numbers(report: JobReport) -> Iterator[NodeNumber]:
    run_seconds = report.summary.run_seconds
    for node in report.summary.nodes:
        if node.cpu_seconds is None:
            continue
        yield node.node, "cpu"
        if node.working_peak_bytes is not None:
            yield node.node, "memory"
        if (1 - node.run_ratio) * run_seconds < max(MAX_GAP_SECONDS, MAX_GAP_RATIO * run_seconds):
            yield node.node, "curve"


def _missing(report: JobReport) -> Iterator[NodeNumber]:
    """Yield what was not measured of a job, and would have been by agents on all of its nodes."""
    run_seconds, found = report.summary.run_seconds, measured(report)
    if run_seconds >= MIN_RUN_SECONDS:
        yield from ((node, "cpu") for node in _silent_nodes(report))
    if run_seconds >= MIN_CURVE_SECONDS:
        later: tuple[Kind, ...] = ("memory", "curve")
        yield from ((node, kind) for node, _ in found for kind in later if (node, kind) not in found)
