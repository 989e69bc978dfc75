# SPDX-License-Identifier: Apache-2.0
"""Hold the document that every rendering of a job report starts from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.rule import Finding, Severity, Subject, worst_severity
from slurmscope.jobs.summary import JobSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRun:
    """What is known of another run of the same user, name and size; memory is per node, None is unknown."""

    state: str
    start_seconds: int
    run_seconds: float
    limit_seconds: float | None = None
    requested_bytes: float | None = None
    peak_bytes: float | None = None
    mean_cores: float | None = None
    mean_gpus: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionChange:
    """One option of sbatch; ``submitted`` is empty where the job did not request it."""

    option: str
    """The long name, without dashes."""
    submitted: str
    suggested: str
    reason: str

    @property
    def line(self) -> str:
        """Return the line for the job script."""
        return f"#SBATCH --{self.option}={self.suggested}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FreedResources:
    """What a run like this one would have left to others; None where the request does not get smaller."""

    core_seconds: float | None = None
    gpu_seconds: float | None = None
    memory_byte_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedWait:
    """Compare how long jobs of the submitted and of the suggested size waited, by their medians."""

    submitted_seconds: float
    suggested_seconds: float
    jobs: int
    """Jobs behind the figure with fewer of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedSize:
    """What a job requests in all; None is unknown, and as a time limit unlimited."""

    nodes: int
    cpus: int
    gpus: int
    memory_bytes: float | None
    limit_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resubmission:
    """One header merged from all findings and from other runs of the same name."""

    changes: tuple[OptionChange, ...]
    other_runs: int
    """Runs of the same user, name and size that were considered."""
    submitted: RequestedSize
    suggested: RequestedSize
    freed: FreedResources = field(default_factory=FreedResources)
    wait: ExpectedWait | None = None
    """None where too few jobs of either size are known."""
    note: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the lines for the job script."""
        return tuple(change.line for change in self.changes)

    @property
    def diff(self) -> tuple[str, ...]:
        removed = (f"-#SBATCH --{change.option}={change.submitted}" for change in self.changes if change.submitted)
        return (*removed, *(f"+{line}" for line in self.lines))


REPORT_VERSION = 1
MAX_CHART_POINTS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLine:
    """One line of a chart, with None where nothing was measured."""

    label: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Lines over a common time axis; ``reference`` is the allocation or the limit.

    ``unit`` is one of cores, bytes, bytes/s, ratio, watts, count.
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
    """The nodes or cores of a job over time, thinned: each value is a mean until the next time.

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
class EarlierRun:
    """A run of a requeued job before the one that is reported."""

    state: str
    start_seconds: int
    run_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSection:
    """Hold the table that an extension of the site added to a report."""

    id: str
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSection:
    """Declare a table of an extension; ``make`` returns its rows for a job, none where it has nothing to show.

    ``make`` is pure and quick, as the check of a rule is. Each row has as many texts as ``head``.
    """

    id: str
    title: str
    head: tuple[str, ...]
    make: Callable[[JobSummary], Iterable[Sequence[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """What a job did, the findings about it, and what is unknown."""

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

    earlier_runs: tuple[EarlierRun, ...] | None = None
    """The newest first; None where they were not looked up."""

    site_sections: tuple[SiteSection, ...] = ()
    """Tables of the site's extensions, as they were when the report was made."""

    @property
    def record(self) -> JobRecord:
        return self.summary.record

    def with_reason(self, reason: str) -> JobReport:
        """Return the report of a pending job with its current reason: accounting has that of an earlier moment."""
        return replace(self, summary=replace(self.summary, record=replace(self.record, reason=reason)))

    @property
    def subjects(self) -> Mapping[Subject, Severity]:
        """Return the worst severity of the findings about each subject."""
        every = [each for finding in self.findings for each in finding.with_consequences]
        return {each.subject: each.severity for each in sorted(every, key=lambda each: -each.severity.rank)}

    @property
    def worst(self) -> Severity | None:
        return worst_severity(self.findings)

    @property
    def has_warning(self) -> bool:
        return self.worst in {Severity.CRITICAL, Severity.WARNING}
