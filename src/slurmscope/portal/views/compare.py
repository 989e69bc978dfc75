# SPDX-License-Identifier: Apache-2.0
"""Compare the numbers of several jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from slurmscope.figures import format_bytes, format_count, format_ratio, format_seconds
from slurmscope.model.report import JobReport
from slurmscope.reports.formatting import format_time


class ComparedRow(NamedTuple):
    """Hold one row of the comparison, with one text per job."""

    label: str
    texts: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Return whether the jobs differ in this row."""
        return len(set(self.texts)) > 1


def compare_reports(reports: Sequence[JobReport]) -> tuple[ComparedRow, ...]:
    """Make the rows of a comparison."""
    return tuple(ComparedRow(label, tuple(read(report) for report in reports)) for label, read in _ROWS)


_ROWS: tuple[tuple[str, Callable[[JobReport], str]], ...] = (
    ("Name", lambda report: report.record.name),
    ("User", lambda report: report.record.user),
    ("Account", lambda report: report.record.account),
    ("Partition", lambda report: report.record.partition),
    ("State", lambda report: report.record.state),
    ("Submitted", lambda report: format_time(report.record.submit_seconds)),
    ("Run time", lambda report: format_seconds(report.summary.run_seconds)),
    ("Nodes", lambda report: format_count(report.record.node_count)),
    ("Cores", lambda report: format_count(report.record.cpus) if report.record.cpus else "unknown"),
    ("GPUs", lambda report: format_count(report.record.gpus)),
    ("Requested memory", lambda report: format_bytes(report.summary.memory.asked_bytes)),
    ("Memory used", lambda report: format_bytes(report.summary.memory.best_peak_bytes)),
    ("Busy cores, mean", lambda report: format_count(report.summary.cpu.mean_cores)),
    ("CPU use", lambda report: format_ratio(report.summary.cpu.time.ratio)),
    ("Memory use", lambda report: format_ratio(report.summary.memory.ratio)),
    ("GPU use", lambda report: format_ratio(report.summary.gpu.mean_utilization) if report.record.gpus else "no GPUs"),
    ("Time use", lambda report: format_ratio(report.summary.time.ratio)),
    ("Read", lambda report: format_bytes(report.summary.io.read_bytes)),
    ("Written", lambda report: format_bytes(report.summary.io.write_bytes)),
    ("Findings", lambda report: ", ".join(finding.title for finding in report.findings) or "none"),
)
