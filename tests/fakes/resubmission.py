# SPDX-License-Identifier: Apache-2.0
"""Other runs of a job, and the header that follows from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from slurmscope.jobs.findings import judge
from slurmscope.jobs.report import JobReport, OtherRun, RequestedSize, Resubmission
from slurmscope.jobs.resubmission import suggest_resubmission
from slurmscope.jobs.rule import Finding
from slurmscope.jobs.summary import JobSummary
from tests.fakes.job_summaries import GIB, HOUR
from tests.fakes.reports import make_finding

RUN = OtherRun(
    state="COMPLETED",
    start_seconds=1,
    run_seconds=2 * HOUR,
    limit_seconds=3 * HOUR,
    requested_bytes=8 * GIB,
    peak_bytes=6 * GIB,
    mean_cores=4.0,
)

SIZE = RequestedSize(nodes=1, cpus=4, gpus=0, memory_bytes=8 * GIB, limit_seconds=3 * HOUR)


def suggest(summary: JobSummary, *runs: OtherRun, lines: tuple[str, ...] = ()) -> Resubmission | None:
    """Suggest a header by the rules, or by findings with these lines."""
    findings = tuple(found(line) for line in lines) if lines else judge(summary)
    return suggest_resubmission(JobReport(summary=summary, made_seconds=0, findings=findings), runs)


def found(line: str, **numbers: float) -> Finding:
    return replace(make_finding(), suggestion=line, numbers=numbers)


def header(summary: JobSummary, *runs: OtherRun, lines: tuple[str, ...] = ()) -> tuple[str, ...]:
    made = suggest(summary, *runs, lines=lines)
    return made.lines if made else ()


def several(count: int, **changed: Any) -> list[OtherRun]:
    return [replace(RUN, start_seconds=number, **changed) for number in range(count)]


def submitted(options: str, **record: Any) -> dict[str, Any]:
    return {"submit_line": f"sbatch {options} x.sh", **record}
