# SPDX-License-Identifier: Apache-2.0
"""Define a rule and what it finds: data with named thresholds, and one pure function that compares a job with them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from slurmscope.core.units import parse_bytes
from slurmscope.jobs.submit_line import is_srun, submit_options
from slurmscope.jobs.summary import JobSummary, MemorySummary

MIN_JUDGED_SECONDS = 300.0
"""Run time from which on most rules check a job: shorter ones mostly start up and wind down."""
MIN_WORKING_CORES = 0.2
"""A job, or a node of it, that kept fewer cores busy did no work worth comparing."""


class Severity(enum.StrEnum):
    """How severe a finding is, worst first."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """Return 0 for the worst."""
        return tuple(Severity).index(self)


class Subject(enum.StrEnum):
    """What a finding is about; it is shown at the charts of that subject."""

    CPU = "cpu"
    MEMORY = "memory"
    GPU = "gpu"
    TIME = "time"
    FILES = "files"
    THREADS = "threads"
    NODES = "nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem of a job, with advice."""

    rule: str
    severity: Severity
    subject: Subject
    title: str
    """A few words: "Most cores were idle"."""
    explanation: str
    """One or two sentences with the job's own numbers."""
    advice: str
    suggestion: str = ""
    """A line for the job script that fixes it, such as ``#SBATCH --mem=4G``."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """The compared values and thresholds by name, units in the names."""
    consequences: tuple[Finding, ...] = ()
    """Findings that this one explains: without advice, and not counted."""

    @property
    def with_consequences(self) -> tuple[Finding, ...]:
        return (self, *self.consequences)


def worst_severity(findings: Iterable[Finding]) -> Severity | None:
    """Return the severity of the worst finding; None without findings."""
    return min((finding.severity for finding in findings), key=lambda severity: severity.rank, default=None)


Thresholds = Mapping[str, float]
"""Thresholds of one rule, by name."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """Declare one number that a site may set; ``unit`` is one of ratio, seconds, bytes, count, per second."""

    name: str
    unit: str
    default: float
    help: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """What a rule found in a job: sentences with the job's numbers, and a line for its script that fixes it."""

    explanation: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    suggestion: str = ""
    severity: Severity | None = None
    """Severity of this match, where it differs from that of the rule."""
    advice: str = ""
    """Advice for this match, where that of the rule does not apply."""
    without: JobSummary | None = None
    """The job without this problem, to find out what the rule explains in this job; None: all that it lists."""


MIN_RUN = Threshold("min_run_seconds", "seconds", MIN_JUDGED_SECONDS, "Ignore jobs that ran for less, in most rules.")
"""The threshold that rules share."""

RuleCheck = Callable[[JobSummary, Thresholds], Match | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Check jobs for one problem; ``check`` returns None without a finding, or when what it needs was not measured.

    ``needs`` describes what must be measured. ``explains`` lists rules whose finding may follow from this one: it does
    unless that rule also finds something in ``Match.without``. ``replaces`` lists rules whose finding is dropped beside
    this one, because this one includes it.
    """

    id: str
    title: str
    subject: Subject
    severity: Severity
    needs: str
    advice: str
    check: RuleCheck
    min_run_seconds: float | None = None
    """Shorter jobs are not checked; None is as ``MIN_RUN`` is set."""
    thresholds: tuple[Threshold, ...] = ()
    explains: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()

    def find(self, summary: JobSummary, values: Thresholds) -> Match | None:
        """Check a job, unless it was too short."""
        is_short = self.min_run_seconds != 0 and summary.run_seconds < values[MIN_RUN.name]
        return None if is_short else self.check(summary, values)


SETTLED_STATES = frozenset({"COMPLETED", "TIMEOUT", "CANCELLED"})
"""States after which usage is representative; a failed job may not have reached its main part."""

_SIGKILL = 9


def busy_ratio(summary: JobSummary) -> float | None:
    """Return used over allocated CPU time; None unless every node was measured, or the job completed.

    Without measurements Slurm's own figure is good enough for a completed job only: for a killed one it misses
    processes.
    """
    if summary.coverage.is_good:
        return summary.cpu.time.ratio
    is_accounted = summary.cpu.time.coverage is None and summary.record.state == "COMPLETED"
    return summary.cpu.time.ratio if is_accounted else None


def mean_cores(summary: JobSummary) -> float | None:
    """Return how many cores were busy on average; None where :func:`busy_ratio` is."""
    ratio = busy_ratio(summary)
    return None if ratio is None or not summary.record.cpus else ratio * summary.record.cpus


def peak_cores(summary: JobSummary) -> float | None:
    """Return the most cores busy at once; None unless measured."""
    return summary.cpu.peak_cores if summary.coverage.is_good else None


def memory_peak_bytes(memory: MemorySummary) -> float | None:
    """Return the peak of the needed memory; None unless every node was measured, or Slurm's figure covers the job.

    Samples may miss a peak that Slurm saw. Even that of a single task is memory that the job needed.
    """
    if memory.coverage.is_good and memory.working_peak_bytes is not None:
        return max(memory.working_peak_bytes, memory.slurm_peak_bytes or 0.0)
    return memory.slurm_peak_bytes if memory.slurm_peak_is_whole else None


def is_memory_measured(memory: MemorySummary) -> bool:
    """Return whether the peak is good enough to request less: samples miss peaks, the kernel's own peak does not."""
    return memory.coverage.is_good and memory.working_peak_bytes is not None and memory.is_bounded


def requested_node_bytes(summary: JobSummary) -> float | None:
    """Return the memory that was requested on each node; None where it is unknown."""
    requested, count = summary.memory.requested_bytes, summary.record.node_count
    return requested / count if requested and count else None


def needed_node_bytes(summary: JobSummary) -> float:
    """Return the memory that this run is known to have needed on a node; a lower bound where little was measured."""
    memory, count = summary.memory, max(1, summary.record.node_count)
    peaks = [node.working_peak_bytes for node in summary.nodes if node.working_peak_bytes is not None]
    return max([(memory.working_peak_bytes or 0.0) / count, memory.slurm_peak_bytes or 0.0, *peaks])


STEP_LIMIT_ADVICE = (
    "Give that step more memory with --mem of its srun, or leave that option out: --mem of the job was enough."
)


def hit_step_limit(summary: JobSummary) -> bool:
    """Return whether a process was OOM-killed at the limit of its step (``srun --mem``), far below that of the job.

    The kernel's peak of the job was read after the kill: a kill at the job's own limit would have reached it.
    """
    limits = [
        (node.working_peak_bytes, node.limit_bytes or requested_node_bytes(summary) or 0.0)
        for node in summary.nodes
        if node.working_peak_bytes is not None
    ]
    has_peak = summary.memory.charged_peak_bytes is not None
    is_whole = has_peak and bool(limits) and len(limits) >= summary.record.node_count
    return is_whole and bool(summary.memory.oom_kills) and all(peak < 0.9 * limit for peak, limit in limits)


def was_oom_killed(summary: JobSummary) -> bool:
    """Return whether the kernel or Slurm OOM-killed a process."""
    is_known = summary.record.state == "OUT_OF_MEMORY" or bool(summary.memory.oom_kills)
    return is_known or exceeded_bytes(summary) is not None


def exceeded_bytes(summary: JobSummary) -> float | None:
    """Return the memory per node with which a killed job exceeded its request; None unless it did.

    With ``OverMemoryKill``, or without the memory controller, Slurm itself kills such a job, and reports a failure.
    """
    record, memory = summary.record, summary.memory
    if record.state not in {"FAILED", "CANCELLED"} or record.exit_signal != _SIGKILL or not memory.requested_bytes:
        return None
    nodes = max(1, record.node_count)
    peak = max((memory.working_peak_bytes or 0.0) / nodes, memory.slurm_peak_bytes or 0.0)
    return peak if peak > memory.requested_bytes / nodes else None


def has_gpus(summary: JobSummary) -> bool:
    """Return whether the job requested GPUs: such a job is not checked by its cores."""
    record = summary.record
    return (record.gpus if record.requested_gpus is None else record.requested_gpus) > 0


def was_suspended(summary: JobSummary) -> bool:
    """Return whether the job was suspended: its use over time then does not depend on the job alone."""
    return summary.record.suspended_seconds > 0


def requested_cores(summary: JobSummary) -> int:
    """Return how many cores were requested; 0 if unknown. Whole nodes count all of their cores."""
    record, cpus = summary.record, summary.record.cpus or 0
    if not record.requested_cpus or "exclusive" in record.options:
        return cpus
    return min(record.requested_cpus, cpus)


def step_cores(summary: JobSummary) -> int:
    """Return the most cores that a step requested itself with ``srun --cpus-per-task``; 0 where none did."""
    return max((_number(request, "cpus-per-task") * tasks for request, tasks in step_requests(summary)), default=0)


def step_nodes(summary: JobSummary) -> int:
    """Return the most nodes that a step requested itself with ``srun --nodes``; 0 where none did."""
    return max((_number(request, "nodes") for request, _ in step_requests(summary)), default=0)


def step_node_bytes(summary: JobSummary) -> int:
    """Return the most memory per node that a step requested itself with ``srun --mem``; 0 where none did.

    Memory per core is that of all its cores: they may run on one node.
    """
    return max((_memory_bytes(request, tasks) for request, tasks in step_requests(summary)), default=0)


def step_requests(summary: JobSummary) -> list[tuple[Mapping[str, str], int]]:
    """Return what steps requested inside their job, with their tasks: the next job must be large enough for it."""
    record = summary.record
    # The step of a job that srun submitted has the options of the job.
    if is_srun(record.submit_line):
        return []
    return [(submit_options(f"srun {step.request}"), step.tasks or 1) for step in record.steps if step.request]


def _memory_bytes(request: Mapping[str, str], tasks: int) -> int:
    try:
        if "mem" in request:
            return parse_bytes(request["mem"], default_unit="M")
        each = parse_bytes(request.get("mem-per-cpu", "0"), default_unit="M")
    except ValueError:
        return 0
    return each * tasks * max(1, _number(request, "cpus-per-task"))


def _number(request: Mapping[str, str], option: str) -> int:
    """Return the value of an option, the lower one of a range; 0 where it is not a number."""
    text = request.get(option, "").partition("-")[0]
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def step_tasks(summary: JobSummary) -> int | None:
    """Return the most tasks of any numbered step; None without one: tasks of the batch script are not counted."""
    return max((step.tasks or 1 for step in summary.record.steps if step.name[:1].isdecimal()), default=None)
