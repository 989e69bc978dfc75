# SPDX-License-Identifier: Apache-2.0
"""Record what the agents of nodes measure, to find jobs whose series are missing.

A time series server may omit series without reporting an error: all of them if it has lost all of its storages, those
of some nodes if it has lost some storages, and the newest samples if a remote write client still buffers them.
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
"""How much of the run a curve may lack: this time, or this share of the run if that is longer."""
MAX_NODES = 100_000

MeasuredKind = Literal["cpu", "memory", "curve"]
NodeMeasurement = tuple[str, MeasuredKind]
"""The name of a node, and what its agent measured there."""


class KnownAgents:
    """Record what was measured on which nodes. Not thread-safe."""

    def __init__(self) -> None:
        """Begin without any."""
        self._known: set[NodeMeasurement] = set()
        self._nodes: set[str] = set()
        self._looked_up: set[str] = set()

    def learn(self, reports: Iterable[JobReport]) -> None:
        """Record what was measured of these jobs."""
        for report in reports:
            self._add(measured(report))

    def learn_archived(self, reports: Iterable[JobReport]) -> None:
        """Record the same of archived jobs; those marked as incomplete were on nodes with agents too."""
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
        """Return the jobs that still lack series when they are measured again; nodes that they left idle do not count.

        A job that was measured on some nodes left another one idle if other jobs are measured there meanwhile.
        """
        found = {number for report in reports for number in measured(report) if number[1] == "cpu"}
        return [report for report in reports if self._lacks_some(report, self._known - found)]

    def _lacks_some(self, report: JobReport, known: Set[NodeMeasurement]) -> bool:
        if is_measured(report):
            return not known.isdisjoint(_missing(report))
        return report.summary.run_seconds >= MIN_RUN_SECONDS and self.are_on(report.record)

    def _add(self, numbers: Iterable[NodeMeasurement]) -> None:
        for number in numbers:
            if len(self._nodes) < MAX_NODES:
                self._known.add(number)
                self._nodes.add(number[0])


def is_measured(report: JobReport) -> bool:
    """Return whether series of this job were found."""
    return bool(measured(report))


def measured(report: JobReport) -> frozenset[NodeMeasurement]:
    """Return what was measured on each node; a node without CPU time was not measured."""
    return frozenset(_numbers(report))


def _silent_nodes(report: JobReport) -> Set[str]:
    return {*report.record.nodes} - {node for node, _ in _numbers(report)}


def _numbers(report: JobReport) -> Iterator[NodeMeasurement]:
    run_seconds = report.summary.run_seconds
    for node in report.summary.nodes:
        if node.cpu_seconds is None:
            continue
        yield node.node, "cpu"
        if node.working_peak_bytes is not None:
            yield node.node, "memory"
        if (1 - node.run_ratio) * run_seconds < max(MAX_GAP_SECONDS, MAX_GAP_RATIO * run_seconds):
            yield node.node, "curve"


def _missing(report: JobReport) -> Iterator[NodeMeasurement]:
    """Yield what was not measured of a job, and would have been by agents on all of its nodes."""
    run_seconds, found = report.summary.run_seconds, measured(report)
    if run_seconds >= MIN_RUN_SECONDS:
        yield from ((node, "cpu") for node in _silent_nodes(report))
    if run_seconds >= MIN_CURVE_SECONDS:
        later: tuple[MeasuredKind, ...] = ("memory", "curve")
        yield from ((node, kind) for node, _ in found for kind in later if (node, kind) not in found)
