# SPDX-License-Identifier: Apache-2.0
"""Record what the agents of nodes measure, to find jobs whose series are missing.

A time series server may omit series without reporting an error: all of them if it has lost all of its storages, those
of some nodes if it has lost some storages, and the newest samples if a remote write client still buffers them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Literal

from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import JobReport

MIN_RUN_SECONDS = 180.0
"""How long a job has run when its series must exist, with a usual scrape interval."""
MIN_CURVE_SECONDS = 600.0
"""How long a job has run when it must have memory and a curve too."""
MAX_LATE_SECONDS, MAX_LATE_RATIO = 600.0, 0.02
"""How long before the end the last point of a curve may be: this time, or this share of the run if that is longer."""
DELIVERED_SECONDS = 3 * 3600.0
"""How long after its end all samples of a job have arrived; remote write clients buffer some for an hour or two."""
NEAR_SECONDS = 3600.0
"""Jobs that ran at most so long before or after another one show what the server has of that time."""
MAX_AGE_SECONDS = 30 * 86400
"""A node on which no job was measured for so long has no agent any more."""
MAX_NODES = 100_000
LOOKED_UP_NODES = 2
"""Nodes of one job that are looked up in the archive."""

MeasuredKind = Literal["cpu", "memory", "curve"]
NodeMeasurement = tuple[str, MeasuredKind]
"""The name of a node, and what its agent measured there."""


class KnownAgents:
    """Record what was measured on which nodes. Not thread-safe."""

    def __init__(self) -> None:
        """Begin without any."""
        self._last_ends: dict[NodeMeasurement, float] = {}
        self._looked_up: set[str] = set()

    def learn(self, reports: Iterable[JobReport]) -> None:
        """Record what was measured of these jobs."""
        for report in reports:
            end = report.record.end_seconds or report.made_seconds
            for number in measured(report):
                if number in self._last_ends or len(self._last_ends) < 3 * MAX_NODES:
                    self._last_ends[number] = max(end, self._last_ends.get(number, 0.0))

    def are_on(self, record: JobRecord) -> bool:
        """Return whether a node of this job has an agent."""
        return any(self._is_known((node, "cpu"), record) for node in record.nodes)

    def is_on(self, node: str) -> bool:
        """Return whether jobs were measured on this node."""
        return (node, "cpu") in self._last_ends

    def next_unknown(self, report: JobReport) -> list[str]:
        """Return some nodes of a job that have no numbers, and of which nothing is known; each is returned once."""
        if report.summary.run_seconds < MIN_RUN_SECONDS:
            return []
        nodes = {node for node in _silent_nodes(report) if not self.is_on(node)} - self._looked_up
        found = sorted(nodes)[:LOOKED_UP_NODES]
        if len(self._looked_up) < MAX_NODES:
            self._looked_up.update(found)
        return found

    def unmeasured(self, reports: Iterable[JobReport]) -> list[JobReport]:
        """Return the jobs that lack series, although there should be some."""
        return [report for report in reports if self._lacking(report)]

    def still_unmeasured(self, reports: Sequence[JobReport], archived: Sequence[JobReport]) -> list[JobReport]:
        """Return the jobs that still lack series when they are measured again, given their archived reports.

        A job that was measured on some nodes left another one idle if jobs of the same time are measured there now. If
        its numbers are the same long after its end, there are no others of these nodes.
        """
        found = []
        for report, before in zip(reports, archived, strict=True):
            lacking = self._lacking(report)
            if lacking and is_measured(report):
                lacking -= {
                    (node, "cpu") for other in reports if _is_near(report, other) for node, _ in measured(other)
                }
            if _is_same(report, before):
                lacking = {(node, kind) for node, kind in lacking if kind == "cpu"}
            if lacking:
                found.append(report)
        return found

    def _lacking(self, report: JobReport) -> set[NodeMeasurement]:
        return {number for number in _missing(report) if self._is_known(number, report.record)}

    def _is_known(self, number: NodeMeasurement, record: JobRecord) -> bool:
        last_end = self._last_ends.get(number)
        return last_end is not None and (record.end_seconds or record.start_seconds or 0) - last_end < MAX_AGE_SECONDS


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
        # Mean cores are those until the last point.
        counted = node.cpu_seconds / node.mean_cores if node.mean_cores else node.run_ratio * run_seconds
        if node.run_ratio and run_seconds - counted <= max(MAX_LATE_SECONDS, MAX_LATE_RATIO * run_seconds):
            yield node.node, "curve"


def _is_near(report: JobReport, other: JobReport) -> bool:
    """Return whether two jobs ran at about the same time."""
    (start, end), (other_start, other_end) = _times(report), _times(other)
    return start - NEAR_SECONDS < other_end and other_start < end + NEAR_SECONDS


def _times(report: JobReport) -> tuple[float, float]:
    record = report.record
    return record.start_seconds or 0, record.end_seconds or report.made_seconds


def _is_same(report: JobReport, before: JobReport) -> bool:
    """Return whether a job has the same numbers as before, long after its end."""
    age_seconds = report.made_seconds - (report.record.end_seconds or report.made_seconds)
    return is_measured(report) and age_seconds >= DELIVERED_SECONDS and report.summary.nodes == before.summary.nodes


def _missing(report: JobReport) -> Iterator[NodeMeasurement]:
    """Yield what was not measured of a job, and would have been by agents on all of its nodes."""
    run_seconds, found = report.summary.run_seconds, measured(report)
    if run_seconds >= MIN_RUN_SECONDS:
        yield from ((node, "cpu") for node in _silent_nodes(report))
    if run_seconds >= MIN_CURVE_SECONDS:
        later: tuple[MeasuredKind, ...] = ("memory", "curve")
        yield from ((node, kind) for node, _ in found for kind in later if (node, kind) not in found)
