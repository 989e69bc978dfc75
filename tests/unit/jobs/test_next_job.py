# SPDX-License-Identifier: Apache-2.0
"""Whoever does what a report suggests gets a job that has on each node what this one needed there."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmscope.jobs.findings import judge
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.resubmission import suggest_resubmission
from slurmscope.jobs.summarize import summarize
from tests.fakes.next_job import MIB, KnownJob, allocate, make_known_job, with_lines
from tests.fakes.reports import START

seeds = st.integers(0, 2**32)
for_known_jobs = settings(deadline=None, max_examples=300)


def report_of(job: KnownJob) -> JobReport:
    summary = summarize(job.record, job.measured, now_seconds=START + 8000.0)
    return JobReport(summary=summary, made_seconds=START + 8000, findings=judge(summary))


def lines_of(job: KnownJob) -> list[tuple[str, ...]]:
    """Return what a user may do: what one finding suggests, or the whole header."""
    report = report_of(job)
    made = suggest_resubmission(report, job.runs)
    alone = [(finding.suggestion,) for finding in report.findings if finding.suggestion]
    return [*alone, *([made.lines] if made and made.lines else [])]


def check(job: KnownJob, lines: Sequence[str]) -> None:
    gets = allocate(with_lines(job.options, lines), job.site)
    was_killed = job.record.state == "OUT_OF_MEMORY"
    changes_memory = "--mem" in " ".join(lines)

    for had, needed, got in zip(job.had, job.needed_mib, gets, strict=True):
        assert got.mib >= needed * 0.999, (lines, needed, had, got)
        if was_killed and needed == had.mib and changes_memory:
            assert got.mib > had.mib, (lines, had, got)
    assert sum(node.cpus for node in gets) >= job.used_cores - 0.5
    assert sum(node.gpus for node in gets) >= job.used_gpus


@for_known_jobs
@given(seeds)
def test_next_job_has_what_this_one_needed(seed: int) -> None:
    job = make_known_job(Random(seed))
    for lines in lines_of(job):
        check(job, lines)


@for_known_jobs
@given(seeds)
def test_next_job_has_what_other_runs_needed(seed: int) -> None:
    job = make_known_job(Random(seed))
    made = suggest_resubmission(report_of(job), job.runs)
    if made is None or not made.lines:
        return
    gets = allocate(with_lines(job.options, made.lines), job.site)
    most = max((run.peak_bytes or 0.0 for run in job.runs), default=0.0) / MIB

    # It may have been on any of the nodes.
    for had, got in zip(job.had, gets, strict=True):
        assert got.mib >= min(had.mib, most) * 0.999, (made.lines, had, got)


@for_known_jobs
@given(seeds)
def test_header_frees_what_it_says(seed: int) -> None:
    job = make_known_job(Random(seed))
    made = suggest_resubmission(report_of(job), job.runs)
    if made is None or not made.lines:
        return
    gets = allocate(with_lines(job.options, made.lines), job.site)
    is_by_default = not any(name.startswith("mem") for name in with_lines(job.options, made.lines))

    assert sum(node.gpus for node in gets) == made.suggested.gpus
    # More memory for each core may be above MaxMemPerCPU, which adds cores.
    assert job.site.max_mib_per_cpu or sum(node.cpus for node in gets) <= made.suggested.cpus
    if not is_by_default and made.suggested.memory_bytes is not None:
        assert sum(node.mib for node in gets) * MIB <= made.suggested.memory_bytes * 1.01 + 20 * MIB


@pytest.mark.parametrize("seed", range(2))
def test_known_jobs_are_of_many_kinds(seed: int) -> None:
    """Notice a maker of jobs that makes nothing to check."""
    jobs = [make_known_job(Random(1000 * seed + number)) for number in range(400)]
    words = [line for job in jobs for lines in lines_of(job) for line in lines]
    options = {word.partition("=")[0] for line in words for word in line.split() if word.startswith("--")}

    assert {"--mem", "--mem-per-cpu", "--mem-per-gpu", "--cpus-per-task", "--ntasks", "--gpus", "--gres"} <= options
    uneven = [job for job in jobs if len({node.cpus for node in job.had}) > 1]
    assert any("mem-per-cpu" in line for job in uneven for lines in lines_of(job) for line in lines)
    added = [job for job in jobs if (job.record.requested_cpus or 0) < (job.record.cpus or 0)]
    assert any("mem-per-cpu" in line for job in added for lines in lines_of(job) for line in lines)
