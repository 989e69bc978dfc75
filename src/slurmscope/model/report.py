# SPDX-License-Identifier: Apache-2.0
"""Hold the document that every rendering of a job report starts from."""

from __future__ import annotations

from dataclasses import dataclass

from slurmscope.model.finding import Finding, Severity, Subject, worst_severity
from slurmscope.model.job_record import JobRecord
from slurmscope.model.resubmission import Resubmission
from slurmscope.model.summary import JobSummary

REPORT_VERSION = 1
MAX_CHART_POINTS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLine:
    """Hold one line of a chart, with None where nothing was measured."""

    label: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Hold lines over a common time axis; ``reference`` is the allocation or the limit.

    ``unit`` is one of cores, bytes, bytes/s, ratio, count.
    """

    name: str
    title: str
    unit: str
    subject: Subject
    times: tuple[float, ...]
    lines: tuple[ChartLine, ...]
    reference: float | None = None
    reference_label: str = ""
    help: str = ""
    """One sentence that describes the chart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Hold the nodes or cores of a job over time, thinned: each value is a mean until the next time.

    ``full`` is the value of the strongest colour; None where only the highest value gives the scale.
    """

    name: str
    title: str
    unit: str
    times: tuple[float, ...]
    end_seconds: float
    rows: tuple[ChartLine, ...]
    rows_left_out: int = 0
    """Further rows, all nearer to the median row than these."""
    full: float | None = None
    help: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """Hold what a job did, the findings about it, and what is unknown."""

    summary: JobSummary
    made_seconds: int
    findings: tuple[Finding, ...] = ()
    charts: tuple[Chart, ...] = ()
    heat_maps: tuple[HeatMap, ...] = ()
    """Those that the charts do not hold: of jobs with more nodes or cores than a chart has lines."""
    missing: tuple[str, ...] = ()
    """Sentences: what was not measured or could not be read, and why."""
    is_incomplete: bool = False
    """Whether numbers are missing that the time series server may return later."""
    version: int = REPORT_VERSION
    resubmission: Resubmission | None = None
    """The header for the next run, made whenever a report is shown: it also depends on other runs."""

    @property
    def record(self) -> JobRecord:
        """Return the accounting record."""
        return self.summary.record

    @property
    def worst(self) -> Severity | None:
        """Return the severity of the worst finding."""
        return worst_severity(self.findings)

    @property
    def has_warning(self) -> bool:
        """Return whether a finding is critical or a warning."""
        return self.worst in {Severity.CRITICAL, Severity.WARNING}
