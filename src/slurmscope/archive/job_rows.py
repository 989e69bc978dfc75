# SPDX-License-Identifier: Apache-2.0
"""Convert a report into its row of the job table, and a row into the model of a job list."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from slurmscope.archive import texts as lengths
from slurmscope.archive.interface import JobRow
from slurmscope.archive.texts import short_name, short_text
from slurmscope.jobs.findings import blocked_core_seconds
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.rule import Severity, busy_ratio
from slurmscope.jobs.summary import GpuSummary, JobSummary

MAX_RULES = 100
MAX_NODES = 4096
"""Nodes of one job by which it is found."""
LATEST_SECONDS = 253_402_300_799
"""The end of the year 9999: later days have no name."""
MOST_SECONDS = 1e13
"""Core time of one job: ten million cores for eleven days. Thousandths of hundreds of such jobs fit into 64 bits."""

_LARGEST = 2**63 - 1
_LARGEST_SMALL = 2**31 - 1
# Pending jobs are not archived.
LIST_NAMES = tuple(name for name in JobRow.__dataclass_fields__ if name not in {"reason", "array_tasks"})
RULE_SEPARATOR = ","

ColumnValues = dict[str, Any]


class RunKey(NamedTuple):
    """Name one run of a job. Slurm's own database knows it by these: a requeued job gets a new time of submission."""

    cluster: str
    job_id: int
    submit_seconds: int


def run_key(values: Mapping[str, Any]) -> RunKey:
    """Return the name of the run in a row of the table."""
    return RunKey(values["cluster"], values["job_id"], values["submit_seconds"])


def job_values(report: JobReport) -> ColumnValues:
    """Return the row of a report, every text and number fit for the table."""
    record, summary = report.record, report.summary
    return {
        "cluster": cluster_name(record.cluster),
        "job_id": _whole(record.job_id),
        "submit_seconds": _time(record.submit_seconds),
        "shown_id": short_text(record.shown_id, lengths.SHOWN_LENGTH),
        "array_job_id": None if record.array_job_id is None else _whole(record.array_job_id),
        "name": short_text(record.name, lengths.TITLE_LENGTH),
        "user": person_name(record.user),
        "account": person_name(record.account),
        "partition": person_name(record.partition),
        "state": state_name(record.state),
        "start_seconds": None if record.start_seconds is None else _time(record.start_seconds),
        "end_seconds": None if record.end_seconds is None else _time(record.end_seconds),
        "is_unfinished": record.start_seconds is not None and not record.has_ended,
        "nodes": _whole(record.node_count),
        "cpus": _whole(record.cpus or 0),
        "gpus": _whole(record.gpus),
        "run_seconds": _thousandths(summary.run_seconds) or 0.0,
        "memory_bytes": _finite(summary.memory.asked_bytes if record.memory_bytes is None else record.memory_bytes),
        "cpu_ratio": _finite(busy_ratio(summary)),
        "memory_ratio": _finite(summary.memory.ratio),
        "gpu_ratio": _finite(summary.gpu.mean_utilization),
        "time_ratio": _finite(summary.time.ratio),
        **_core_values(summary),
        **_request_values(record),
        "blocked_core_seconds": _thousandths(blocked_core_seconds(summary)),
        **_gpu_values(summary.gpu, record.gpus * summary.run_seconds),
        "worst": None if report.worst is None else report.worst.value,
        "rules": RULE_SEPARATOR.join(_rules(report)),
    }


def _request_values(record: JobRecord) -> ColumnValues:
    derived = max(record.steps, key=lambda step: step.exit_code or 0, default=None)
    return {
        "eligible_seconds": _whole_or_none(record.eligible_seconds),
        "wait_seconds": _finite(record.wait_seconds),
        "time_limit_seconds": _whole_or_none(record.time_limit_seconds),
        "exit_code": _small(record.exit_code),
        "exit_signal": _small(record.exit_signal),
        "derived_exit_code": _small(derived.exit_code if derived else None),
        "derived_exit_signal": _small(derived.exit_signal if derived else None),
        "het_job_id": _whole_or_none(record.het_job_id),
        "het_offset": _whole_or_none(record.het_offset),
        "tasks": _whole_or_none(max((step.tasks for step in record.steps if step.tasks is not None), default=None)),
    }


def node_values(report: JobReport, values: Mapping[str, Any], run_id: int) -> list[ColumnValues]:
    """Return one row for each node, of a bounded number."""
    shared = {name: values[name] for name in ("user", "account", "submit_seconds", "job_id")}
    nodes = dict.fromkeys(person_name(node) for node in report.record.nodes[:MAX_NODES] if node)
    return [{"run_id": run_id, "node": node, **shared} for node in nodes]


def finding_values(report: JobReport, values: Mapping[str, Any], run_id: int) -> list[ColumnValues]:
    """Return one row for each rule that found something; of two findings of one rule the worse counts."""
    found = sorted(report.findings, key=lambda finding: -finding.severity.rank)
    severities = {rule_name(finding.rule): finding.severity.value for finding in found}
    suggestions = {rule_name(finding.rule): finding.suggestion for finding in found}
    shared = {name: values[name] for name in ("user", "account", "submit_seconds", "job_id")}
    return [
        {
            "run_id": run_id,
            "rule": rule,
            "severity": severities[rule],
            "suggestion": short_text(suggestions[rule], lengths.TITLE_LENGTH),
            **shared,
        }
        for rule in _rules(report)
    ]


def as_job_row(row: Sequence[Any]) -> JobRow:
    """Return a line of a list from the values of ``LIST_NAMES``."""
    values = dict(zip(LIST_NAMES, row, strict=True))
    values["rules"] = rules_of(values)
    values["cpus"] = values["cpus"] or None  # of a record that is not complete yet
    if values["worst"] is not None:
        values["worst"] = Severity(values["worst"])
    return JobRow(**values)


def make_job_row(report: JobReport) -> JobRow:
    """Return the line of a list for a report that is not stored."""
    values = job_values(report)
    return as_job_row([values[name] for name in LIST_NAMES])


def rules_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the rules that found something in the job of this row."""
    return tuple(values["rules"].split(RULE_SEPARATOR)) if values["rules"] else ()


def cluster_name(text: str) -> str:
    """Return the name of a cluster as the table has it."""
    return short_name(text, lengths.CLUSTER_LENGTH)


def person_name(text: str) -> str:
    """Return the name of a user, an account or a partition as the table has it."""
    return short_name(text, lengths.NAME_LENGTH)


def state_name(text: str) -> str:
    """Return the state of a job as the table has it."""
    return short_text(text, lengths.STATE_LENGTH)


def rule_name(text: str) -> str:
    """Return the name of a rule as the table has it."""
    return short_name(text.replace(RULE_SEPARATOR, " "), lengths.RULE_LENGTH)


def _rules(report: JobReport) -> Sequence[str]:
    return tuple(dict.fromkeys(rule_name(finding.rule) for finding in report.findings if finding.rule))[:MAX_RULES]


def _core_values(summary: JobSummary) -> ColumnValues:
    """Compare core time: all that was held, and what was used of it where the rules may judge by that as well.

    A job that is not bound to its cores may take more than it has. That does not make up for what others left unused.
    """
    core_seconds = _thousandths((summary.record.cpus or 0) * summary.run_seconds) or 0.0
    ratio = _finite(busy_ratio(summary))
    used_seconds = None if ratio is None else _thousandths(core_seconds * min(1.0, ratio))
    return {
        "core_seconds": core_seconds,
        "used_core_seconds": used_seconds,
        "wasted_core_seconds": _waste(core_seconds, used_seconds),
    }


def _gpu_values(gpu: GpuSummary, gpu_seconds: float) -> ColumnValues:
    gpu_seconds = _thousandths(gpu_seconds) or 0.0
    is_known = gpu.mean_utilization is not None and gpu.coverage.is_good
    used_seconds = _thousandths(gpu_seconds * (gpu.mean_utilization or 0.0)) if is_known else None
    return {
        "gpu_seconds": gpu_seconds,
        "used_gpu_seconds": used_seconds,
        "wasted_gpu_seconds": _waste(gpu_seconds, used_seconds),
    }


def _waste(allocated: float, used: float | None) -> float | None:
    return None if used is None else max(0.0, allocated - used)


def _thousandths(seconds: float | None) -> float | None:
    """Round to what the sums by day are kept in, so that these come out equal."""
    return None if seconds is None or not math.isfinite(seconds) else round(float(min(seconds, MOST_SECONDS)), 3)


def _time(seconds: int) -> int:
    return min(max(0, seconds), LATEST_SECONDS)


def _finite(number: float | None) -> float | None:
    return None if number is None or not math.isfinite(number) else float(number)


def _whole_or_none(number: int | None) -> int | None:
    return None if number is None else _whole(number)


def _small(number: int | None) -> int | None:
    return None if number is None else max(-_LARGEST_SMALL, min(number, _LARGEST_SMALL))


def _whole(number: int) -> int:
    return max(-_LARGEST, min(number, _LARGEST))
