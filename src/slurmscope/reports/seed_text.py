# SPDX-License-Identifier: Apache-2.0
"""Render a job report in the sections of the older job web application's mail; mail scripts read its last line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slurmscope.figures import format_bytes, format_count, format_ratio
from slurmscope.model.finding import Finding, Severity, Subject
from slurmscope.model.report import JobReport
from slurmscope.reports import contents
from slurmscope.reports.words import format_elapsed, show

_IO = frozenset({Subject.FILES})
_THREADS = frozenset({Subject.THREADS})
_USAGE = frozenset(Subject) - _IO - _THREADS


def render_seed_text(report: JobReport, *, pdf_url: str = "") -> str:
    """Return the text; its last line is exactly WARNING=true or WARNING=false."""
    lines = [
        "----------General Data----------",
        *_general(report),
        "",
        "----------I/O Data----------",
        *_io(report),
        *_findings(report, _IO),
        "",
        "----------Usage Data----------",
        *_usage(report),
        *_findings(report, _USAGE),
        "",
        "----------Thread Data----------",
        *_threads(report),
        *_findings(report, _THREADS),
        "",
        *([f"Charts of this job: {show(pdf_url)}", ""] if pdf_url else []),
        warning_line(report),
    ]
    return "\n".join(lines) + "\n"


def warning_line(report: JobReport) -> str:
    """Return the line that says whether the job has a warning."""
    return f"WARNING={'true' if report.has_warning else 'false'}"


def _general(report: JobReport) -> Iterator[str]:
    record = report.record
    yield f"Sponsor: {show(record.account)}"
    yield f"User: {show(record.user)}"
    yield f"Allocated CPUS: {record.cpus}"
    yield f"Allocated TRES: {', '.join(_tres(report))}"
    yield f"Node(s): {show(','.join(record.nodes)) or 'none'}"
    yield f"Elapsed Time: {format_elapsed(report.summary.run_seconds)}"


def _tres(report: JobReport) -> Iterator[str]:
    record = report.record
    yield f"cpu={record.cpus}"
    if record.memory_bytes is not None:
        yield f"mem={record.memory_bytes >> 20}M"
    yield f"node={record.node_count}"
    if record.gpus:
        yield f"gres/gpu={record.gpus}"


def _io(report: JobReport) -> Iterator[str]:
    for row in contents.io_rows(report):
        yield f"{row.label}: {row.text}"


def _usage(report: JobReport) -> Iterator[str]:
    cpu, memory = report.summary.cpu, report.summary.memory
    yield f"CPU use: {format_ratio(cpu.time.ratio)} of {report.record.cpus} cores"
    yield f"Cores busy: {format_count(cpu.mean_cores)} on average, {format_count(cpu.peak_cores)} at most"
    yield f"Memory: {format_bytes(memory.best_peak_bytes)} at most, {format_ratio(memory.ratio)} of what was requested"


def _threads(report: JobReport) -> Iterator[str]:
    threads = report.summary.program_threads
    if not threads:
        yield "Threads: not measured"
    for program, count in sorted(threads.items()):
        yield f"{show(program, 64)}: {format_count(count)} threads at most"


def _findings(report: JobReport, subjects: frozenset[Subject]) -> Iterator[str]:
    found: Sequence[Finding] = [finding for finding in contents.findings(report) if finding.subject in subjects]
    for finding in found:
        mark = "" if finding.severity is Severity.INFO else " -- WARNING"
        yield f"{finding.title}{mark}"
        yield f"    {finding.explanation} {finding.advice}"
        if finding.suggestion:
            yield f"        {finding.suggestion}"
