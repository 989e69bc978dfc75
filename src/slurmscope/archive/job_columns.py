# SPDX-License-Identifier: Apache-2.0
"""Declare the columns of the job list: each with its type in the table, and its value of a report and a pending job.

A new column needs one field of ``JobRow``, with a default, and its cell in a template.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from slurmscope.archive import texts
from slurmscope.archive.texts import RULE_SEPARATOR, rule_name, short_name, short_text
from slurmscope.jobs.energy import whole_energy
from slurmscope.jobs.findings import blocked_core_seconds, find_state_cause
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.rule import MIN_JUDGED_SECONDS, Severity, busy_ratio
from slurmscope.jobs.summary import EnergySummary

if TYPE_CHECKING:
    from slurmscope.jobs.pending.queue import PendingJob
from collections.abc import Sequence

from slurmscope.jobs.report import Chart

POINTS = 24
UNKNOWN = "-"
_HIGHEST = 9


def make_spark(report: JobReport) -> str:
    """Return how busy the GPUs were, or the cores of a job without: a digit from 0 to 9 for each part of the run."""
    # Curves of each GPU, or of older agents the mean of a node.
    names = {"gpu_busy", "gpu"} if report.record.gpus else {"cpu"}
    chart = next((chart for chart in report.charts if chart.name in names and chart.times), None)
    if chart is None or (chart.name == "cpu" and not chart.reference):
        return ""
    return "".join(map(_digit, _split(_mean_line(chart), chart.times)))


def _mean_line(chart: Chart) -> list[float | None]:
    """Return the mean over nodes at each time, as a share of what was allocated."""
    whole = chart.reference or 1.0
    columns = zip(*(line.values for line in chart.lines), strict=True)
    known = ([value for value in column if value is not None] for column in columns)
    return [sum(values) / len(values) / whole if values else None for values in known]


def _split(line: Sequence[float | None], times: Sequence[float]) -> list[float | None]:
    """Return the mean of each of so many equal parts of the time, None without a point.

    There are no more parts than points, so that the line of a young job has no gaps between them.
    """
    span, count = (times[-1] - times[0]) or 1.0, min(POINTS, len(times))
    parts: list[list[float]] = [[] for _ in range(count)]
    for time, value in zip(times, line, strict=True):
        if value is not None:
            parts[min(count - 1, int((time - times[0]) / span * count))].append(value)
    return [sum(part) / len(part) if part else None for part in parts]


def _digit(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else str(round(_HIGHEST * max(0.0, min(1.0, ratio))))


MAX_RULES = 100
LATEST_SECONDS = 253_402_300_799
"""The end of the year 9999: later days have no name."""
MOST_SECONDS = 1e13
"""Core time of one job: ten million cores for eleven days. Thousandths of hundreds of such jobs fit into 64 bits."""

_LARGEST = 2**63 - 1
_LARGEST_SMALL = 2**31 - 1
_COLUMN = "column"

OfReport = Callable[[JobReport], Any]
OfPending = Callable[["PendingJob"], Any]


class ColumnType(enum.Enum):
    """Types of columns; a ``NAME`` has a length, and only pending jobs have what is ``NOT_ARCHIVED``."""

    NAME = enum.auto()
    TEXT = enum.auto()
    WHOLE = enum.auto()
    SMALL = enum.auto()
    NUMBER = enum.auto()
    NOT_ARCHIVED = enum.auto()


def _unknown(_job: object) -> None:
    """Return the value of what only a started job has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobColumn:
    """Declare one column."""

    type: ColumnType
    length: int = 0
    is_nullable: bool = False
    of_report: OfReport = _unknown
    """Return the value that is written to the table."""
    of_pending: OfPending = _unknown
    load: Callable[[Any], Any] | None = None
    """Convert what was read from the table."""


def split_rules(text: str) -> tuple[str, ...]:
    """Return the rules in the text that the table has of them."""
    return tuple(text.split(RULE_SEPARATOR)) if text else ()


def list_rules(report: JobReport) -> tuple[str, ...]:
    """Return the names of the rules that found something, each once."""
    return tuple(dict.fromkeys(rule_name(finding.rule) for finding in report.findings if finding.rule))[:MAX_RULES]


def core_seconds(report: JobReport) -> float:
    """Return all core time that was allocated."""
    return _thousandths(report.record.allocated_seconds(report.summary.run_seconds)[0]) or 0.0


def used_core_seconds(report: JobReport) -> float | None:
    """Return the core time that was used, if the rules may judge by it as well.

    A job that is not bound to its cores may take more than it has. That does not make up for what others left unused.
    """
    ratio = _finite(busy_ratio(report.summary))
    return None if ratio is None else _thousandths(core_seconds(report) * min(1.0, ratio))


def gpu_seconds(report: JobReport) -> float:
    """Return all GPU time that was allocated."""
    return _thousandths(report.record.allocated_seconds(report.summary.run_seconds)[1]) or 0.0


def used_gpu_seconds(report: JobReport) -> float | None:
    """Return the GPU time that was used, if most of it was measured; a stuck GPU is busy, and not used."""
    gpu = report.summary.gpu
    if gpu.mean_utilization is None or not gpu.coverage.is_good:
        return None
    return _thousandths(max(0.0, gpu_seconds(report) * gpu.mean_utilization - gpu.stuck_seconds))


EDGE_SECONDS = ("startup_core_seconds", "tail_core_seconds", "startup_gpu_seconds", "tail_gpu_seconds")
"""Parts of the idle time: before the job began to work, and after it had worked for the last time."""


def edge_seconds(report: JobReport) -> dict[str, float | None]:
    """Return the idle time at both ends of the run, by the names of its columns; never more than all idle time.

    None for a job that was suspended: it is not known how much of the time at an end it was allowed to work.
    """
    cpu, record, run_seconds = report.summary.cpu, report.record, report.summary.run_seconds
    start, tail = cpu.idle_start_seconds, cpu.idle_tail_seconds
    if start is None or tail is None or record.suspended_seconds:
        return dict.fromkeys(EDGE_SECONDS)
    # A job that was resized had other numbers of cores and GPUs at its start.
    whole = record.allocated_seconds(run_seconds)
    before = record.allocated_seconds(min(start, run_seconds))
    until_tail = record.allocated_seconds(max(0.0, run_seconds - tail))
    idle = (
        _waste(core_seconds(report), used_core_seconds(report)),
        _waste(gpu_seconds(report), used_gpu_seconds(report)),
    )
    of_cores, of_gpus = (_split_edges(idle[kind], before[kind], whole[kind] - until_tail[kind]) for kind in (0, 1))
    return dict(zip(EDGE_SECONDS, (*of_cores, *of_gpus), strict=True))


def _split_edges(idle: float | None, at_start: float, at_end: float) -> tuple[float | None, float | None]:
    if idle is None:
        return None, None
    tail = min(idle, at_end)
    return _thousandths(min(idle - tail, at_start)), _thousandths(tail)


def _waste(allocated: float, used: float | None) -> float | None:
    return None if used is None else max(0.0, allocated - used)


def _memory_bytes(report: JobReport) -> float | None:
    allocated = report.record.memory_bytes
    return report.summary.memory.requested_bytes if allocated is None else allocated


def _tasks(report: JobReport) -> int | None:
    return max((step.tasks for step in report.record.steps if step.tasks is not None), default=None)


def _thousandths(seconds: float | None) -> float | None:
    """Round to what the sums by day are kept in, so that these come out equal."""
    return None if seconds is None or not math.isfinite(seconds) else round(float(min(seconds, MOST_SECONDS)), 3)


def _finite(number: float | None) -> float | None:
    return None if number is None or not math.isfinite(number) else float(number)


def _between(lowest: int, number: int | None, highest: int) -> int | None:
    return None if number is None else max(lowest, min(number, highest))


def _column(type: ColumnType, of_report: OfReport, of_pending: OfPending = _unknown, **options: Any) -> Any:
    """Declare a field of ``JobRow``; ``default`` is its own, the others are those of the column."""
    default = {"default": options.pop("default")} if "default" in options else {}
    column = JobColumn(type=type, of_report=of_report, of_pending=of_pending, **options)
    return field(metadata=MappingProxyType({_COLUMN: column}), **default)


def _name(of_report: OfReport, of_pending: OfPending, *, length: int = texts.NAME_LENGTH) -> Any:
    """Declare a name, which stays different from every other one when it is cut."""
    return _column(ColumnType.NAME, lambda report: short_name(of_report(report), length), of_pending, length=length)


def _title(of_report: OfReport, of_pending: OfPending, *, length: int) -> Any:
    """Declare a text that may be cut."""
    return _column(ColumnType.NAME, lambda report: short_text(of_report(report), length), of_pending, length=length)


def _whole(of_report: OfReport, of_pending: OfPending = _unknown, *, is_nullable: bool = True, **options: Any) -> Any:
    def within(report: JobReport) -> int | None:
        return _between(-_LARGEST, of_report(report), _LARGEST)

    return _column(ColumnType.WHOLE, within, of_pending, is_nullable=is_nullable, **options)


def _time(of_report: OfReport, of_pending: OfPending = _unknown, *, is_nullable: bool = True) -> Any:
    def within(report: JobReport) -> int | None:
        return _between(0, of_report(report), LATEST_SECONDS)

    return _column(ColumnType.WHOLE, within, of_pending, is_nullable=is_nullable)


def _small(of_report: OfReport) -> Any:
    """Declare an exit code or a signal."""

    def within(report: JobReport) -> int | None:
        return _between(-_LARGEST_SMALL, of_report(report), _LARGEST_SMALL)

    return _column(ColumnType.SMALL, within, is_nullable=True, default=None)


def _number(of_report: OfReport, of_pending: OfPending = _unknown, **options: Any) -> Any:
    """Declare a number that may not be measured."""
    return _column(
        ColumnType.NUMBER, lambda report: _finite(of_report(report)), of_pending, is_nullable=True, **options
    )


def _energy(read: Callable[[EnergySummary], float | None]) -> Any:
    """Declare an amount of measured energy, as it is added up."""
    return _number(lambda report: _thousandths(read(whole_energy(report.summary))), default=None)


def _used_time(of_report: OfReport) -> Any:
    """Declare a time that every job has; a pending one has used none."""
    return _column(ColumnType.NUMBER, lambda report: _thousandths(of_report(report)) or 0.0, lambda _job: 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """One line of a job list; ratios are 0 to 1, None when not measured."""

    cluster: str = _name(lambda report: report.record.cluster, _unknown, length=texts.CLUSTER_LENGTH)
    """That of a pending job is the cluster of its queue."""
    job_id: int = _whole(lambda report: report.record.job_id, lambda job: job.job_id, is_nullable=False)
    shown_id: str = _title(lambda report: report.record.shown_id, lambda job: job.shown_id, length=texts.SHOWN_LENGTH)
    array_job_id: int | None = _whole(lambda report: report.record.array_job_id, lambda job: job.array_job_id)
    name: str = _title(lambda report: report.record.name, lambda job: job.name, length=texts.TITLE_LENGTH)
    user: str = _name(lambda report: report.record.user, lambda job: job.user)
    account: str = _name(lambda report: report.record.account, lambda job: job.account)
    partition: str = _name(lambda report: report.record.partition, lambda job: ",".join(job.partitions))
    state: str = _title(lambda report: report.record.state, lambda job: job.state, length=texts.STATE_LENGTH)
    submit_seconds: int = _time(
        lambda report: report.record.submit_seconds, lambda job: job.submit_seconds, is_nullable=False
    )
    start_seconds: int | None = _time(lambda report: report.record.start_seconds)
    end_seconds: int | None = _time(lambda report: report.record.end_seconds)
    run_seconds: float = _used_time(lambda report: report.summary.run_seconds)
    nodes: int = _whole(lambda report: report.record.node_count, lambda job: job.nodes, is_nullable=False)
    cpus: int | None = _whole(
        lambda report: report.record.cpus or 0,
        lambda job: job.cpus,
        is_nullable=False,
        load=lambda cpus: cpus or None,  # of a record that is not complete yet
    )
    gpus: int = _whole(lambda report: report.record.gpus, lambda job: job.gpus, is_nullable=False)
    memory_bytes: float | None = _number(_memory_bytes, lambda job: job.memory_bytes)
    cpu_ratio: float | None = _number(lambda report: busy_ratio(report.summary))
    memory_ratio: float | None = _number(lambda report: report.summary.memory.ratio)
    gpu_ratio: float | None = _number(lambda report: report.summary.gpu.mean_utilization)
    time_ratio: float | None = _number(lambda report: report.summary.time.ratio)
    core_seconds: float = _used_time(core_seconds)
    """Cores times run time."""
    wasted_core_seconds: float | None = _number(lambda report: _waste(core_seconds(report), used_core_seconds(report)))
    wasted_gpu_seconds: float | None = _number(lambda report: _waste(gpu_seconds(report), used_gpu_seconds(report)))
    worst: Severity | None = _column(
        ColumnType.NAME,
        lambda report: None if report.worst is None else report.worst.value,
        length=texts.STATE_LENGTH,
        is_nullable=True,
        load=lambda worst: None if worst is None else Severity(worst),
    )
    rules: tuple[str, ...] = _column(
        ColumnType.TEXT, lambda report: RULE_SEPARATOR.join(list_rules(report)), lambda _job: (), load=split_rules
    )
    eligible_seconds: int | None = _whole(
        lambda report: report.record.eligible_seconds, lambda job: job.eligible_seconds, default=None
    )
    wait_seconds: float | None = _number(lambda report: report.record.wait_seconds, default=None)
    """From the time the job was eligible to start, else from its submission, to its start."""
    time_limit_seconds: int | None = _whole(
        lambda report: report.record.time_limit_seconds, lambda job: job.time_limit_seconds, default=None
    )
    """None is unknown or unlimited."""
    exit_code: int | None = _small(lambda report: report.record.exit_code)
    exit_signal: int | None = _small(lambda report: report.record.exit_signal)
    derived_exit_code: int | None = _small(lambda report: report.record.derived_exit[0])
    """Highest exit code of the steps, as Slurm's DerivedExitCode."""
    derived_exit_signal: int | None = _small(lambda report: report.record.derived_exit[1])
    het_job_id: int | None = _whole(lambda report: report.record.het_job_id, lambda job: job.het_job_id, default=None)
    het_offset: int | None = _whole(lambda report: report.record.het_offset, lambda job: job.het_offset, default=None)
    tasks: int | None = _whole(_tasks, default=None)
    blocked_core_seconds: float | None = _column(
        ColumnType.NUMBER,
        lambda report: _thousandths(blocked_core_seconds(report.summary)),
        is_nullable=True,
        default=None,
    )
    spark: str = _column(ColumnType.NAME, make_spark, lambda _job: "", length=32, default="")
    """Share of the GPUs, else of the cores, that was busy in each 24th of the run, in ninths; "-" is not measured."""
    least_gpu_ratio: float | None = _number(lambda report: report.summary.gpu.least_utilization, default=None)
    """That of the least used GPU."""
    energy_joules: float | None = _energy(lambda energy: energy.total_joules)
    """Energy of a job whose run was measured nearly whole, as carbon and cost by the numbers of the site."""
    carbon_grams: float | None = _energy(lambda energy: energy.carbon_grams)
    energy_cost: float | None = _energy(lambda energy: energy.cost)
    reason: str = _column(ColumnType.NOT_ARCHIVED, _unknown, lambda job: job.reason, default="")
    """Why a pending job waits, in Slurm's word; empty for all others."""
    array_tasks: int = _column(ColumnType.NOT_ARCHIVED, _unknown, lambda job: job.task_count, default=1)
    """How many jobs this line stands for: the pending tasks of an array are one line."""

    @property
    def is_pending(self) -> bool:
        """Return whether this is a line of pending jobs, which are not archived."""
        return bool(self.reason)

    @property
    def lost_core_seconds(self) -> float | None:
        """Return the lost part of the allocated core time; None when it is not known."""
        return self.wasted_core_seconds if find_state_cause(self.state) is None else self.core_seconds

    @property
    def lost_gpu_seconds(self) -> float | None:
        """Return the lost GPU time, from all causes; None when it is not known."""
        is_lost = find_state_cause(self.state) is not None
        return self.gpus * self.run_seconds if is_lost and self.gpus else self.wasted_gpu_seconds

    @property
    def is_too_short(self) -> bool:
        """Return whether the job has no findings because it ran too short to be judged by most rules."""
        return self.worst is None and self.start_seconds is not None and self.run_seconds < MIN_JUDGED_SECONDS


JOB_COLUMNS: Mapping[str, JobColumn] = MappingProxyType({each.name: each.metadata[_COLUMN] for each in fields(JobRow)})
ARCHIVED_COLUMNS: Mapping[str, JobColumn] = MappingProxyType(
    {name: column for name, column in JOB_COLUMNS.items() if column.type is not ColumnType.NOT_ARCHIVED}
)
"""Columns that the table of jobs has."""


def make_pending_row(job: PendingJob, cluster: str) -> JobRow:
    """Return the line of a pending job; what only a started job has is not measured."""
    values = {name: column.of_pending(job) for name, column in JOB_COLUMNS.items()}
    return JobRow(**{**values, "cluster": cluster})
