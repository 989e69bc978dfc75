# SPDX-License-Identifier: Apache-2.0
"""Make the report of a command: the same summary, rules and charts as for a job."""

from __future__ import annotations

from dataclasses import replace

from slurmscope.analysis.charts import make_charts
from slurmscope.analysis.traced_summary import detail_run, measure_run, summarise_run
from slurmscope.model.finding import Subject
from slurmscope.model.report import Chart, JobReport
from slurmscope.model.traced_run import RunReport, TracedRun
from slurmscope.rules.judging import judge

_ABOUT_JOBS = frozenset({Subject.TIME, Subject.NODES})
"""What a command does not choose: time limits, and where it runs."""
_HELP = {
    "cpu": "How many cores the command kept busy.",
    "cpu_split": "Cores busy in user mode (the program itself) and in system mode (the kernel).",
    "memory": "Resident memory of all processes; pages that they share count once for each.",
    "read": "What the command read, from any file system, pipe or socket.",
    "write": "What the command wrote, to any file system, pipe or socket.",
}


def make_run_report(run: TracedRun, *, made_seconds: int) -> RunReport:
    """Summarise a run, check it with all rules, and draw its curves."""
    measured = measure_run(run)
    summary = summarise_run(run, measured)
    report = JobReport(
        summary=summary,
        made_seconds=made_seconds,
        findings=tuple(finding for finding in judge(summary) if finding.subject not in _ABOUT_JOBS),
        charts=tuple(map(_as_measured, make_charts(summary, measured))),
        missing=(*run.problems, *run.losses),
    )
    return RunReport(report=report, run=detail_run(run))


def _as_measured(chart: Chart) -> Chart:
    """Describe what was measured here: one command on one machine, without a cgroup."""
    label = "usable cores" if chart.reference_label == "allocated cores" else chart.reference_label
    return replace(chart, help=_HELP.get(chart.name, chart.help), reference_label=label)
