# SPDX-License-Identifier: Apache-2.0
"""Convert a report into its row of the job table, and a row into the model of a job list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slurmscope.archive import texts as lengths
from slurmscope.archive.job_columns import (
    ARCHIVED_COLUMNS,
    JobRow,
    edge_seconds,
    gpu_seconds,
    list_rules,
    split_rules,
    used_core_seconds,
    used_gpu_seconds,
)
from slurmscope.archive.texts import person_name, rule_name, short_text
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.runs import RunId

MAX_NODES = 4096
"""Nodes of one job by which it is found."""
LIST_NAMES = tuple(ARCHIVED_COLUMNS)
_LOADED = tuple((name, column.load) for name, column in ARCHIVED_COLUMNS.items() if column.load is not None)
ColumnValues = dict[str, Any]


def run_key(values: Mapping[str, Any]) -> RunId:
    """Return the name of the run in a row of the table."""
    return RunId(values["cluster"], values["job_id"], values["submit_seconds"])


def job_values(report: JobReport) -> ColumnValues:
    """Return the row of a report, every text and number fit for the table."""
    return {
        **{name: column.of_report(report) for name, column in ARCHIVED_COLUMNS.items()},
        "is_unfinished": report.record.start_seconds is not None and not report.record.has_ended,
        "used_core_seconds": used_core_seconds(report),
        "gpu_seconds": gpu_seconds(report),
        "used_gpu_seconds": used_gpu_seconds(report),
        **edge_seconds(report),
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
        for rule in list_rules(report)
    ]


def as_job_row(row: Sequence[Any]) -> JobRow:
    """Return a line of a list from the values of ``LIST_NAMES``."""
    values = dict(zip(LIST_NAMES, row, strict=True))
    for name, load in _LOADED:
        values[name] = load(values[name])
    return JobRow(**values)


def make_job_row(report: JobReport) -> JobRow:
    """Return the line of a list for a report that is not stored."""
    values = job_values(report)
    return as_job_row([values[name] for name in LIST_NAMES])


def rules_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the rules that found something in the job of this row."""
    return split_rules(values["rules"])
