# SPDX-License-Identifier: Apache-2.0
"""Render a job report as other programs do: Slurm's seff, and the older web application, its mail text and its JSON.

Mail scripts read the last line of the text. In the JSON, memory and data are in units of 1024 * 1024 bytes, which that
application called MB.

seff prints 0.00 MB and 0.00% for what was not measured; here it is said to be so. Memory is what the job needed, as
everywhere in slurmscope, not the sum of the peaks of its tasks; CPU time is that of the node agents where they measured
it, in whole seconds as in seff, also for the percentage. Two lines of seff are left out: that about the largest task,
whose percentage is no difference, and the warning about running jobs, which are measured here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from slurmscope.core.units import MIB, NOT_MEASURED, format_bytes, format_count, format_ratio
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.render import contents, verdict
from slurmscope.jobs.render.formatting import format_elapsed, show
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.rule import Finding, Severity, Subject
from slurmscope.jobs.summary import JobSummary

EXPECTED_PERCENT_PER_CORE = 80


_IO = frozenset({Subject.FILES})
_THREADS = frozenset({Subject.THREADS})
_USAGE = frozenset(Subject) - _IO - _THREADS

_WARNING_RULES = frozenset({"scratch_unused", "cpu_uneven_over_time", "too_many_threads"})
"""Rules whose findings were always a warning there, and may be no more than information here."""

_UNITS = ("KB", "MB", "GB", "TB", "PB", "EB")


def render_seed_text(report: JobReport, *, pdf_url: str = "", parts: Sequence[JobReport] = ()) -> str:
    """Return the text; its last line is exactly WARNING=true or WARNING=false.

    ``parts`` are the other parts of a heterogeneous job: it warns if one of them does.
    """
    reports = (report, *parts)
    lines = [line for each in reports for line in _sections(each, pdf_url)]
    return "\n".join([*lines, warning_line(*reports)]) + "\n"


def _sections(report: JobReport, pdf_url: str) -> list[str]:
    return [
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
    ]


def warning_line(*reports: JobReport) -> str:
    findings = (finding for report in reports for finding in report.findings)
    return f"WARNING={'true' if any(map(_is_warning, findings)) else 'false'}"


def _is_warning(finding: Finding) -> bool:
    return finding.severity is not Severity.INFO or finding.rule in _WARNING_RULES


def _general(report: JobReport) -> Iterator[str]:
    record = report.record
    yield f"Sponsor: {show(record.account)}"
    yield f"User: {show(record.user)}"
    yield f"Allocated CPUS: {record.cpus or 'unknown'}"
    yield f"Allocated TRES: {', '.join(_tres(report))}"
    yield f"Node(s): {show(','.join(record.nodes)) or 'none'}"
    yield f"Elapsed Time: {format_elapsed(report.summary.run_seconds)}"


def _tres(report: JobReport) -> Iterator[str]:
    record = report.record
    if record.cpus:
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
    yield f"CPU use: {format_ratio(cpu.time.ratio)} of {report.record.cpus or 'unknown'} cores"
    yield f"Cores busy: {format_count(cpu.mean_cores)} on average, {format_count(cpu.peak_cores)} at most"
    yield f"Memory: {format_bytes(memory.best_peak_bytes)} at most, {format_ratio(memory.ratio)} of what was requested"


def _threads(report: JobReport) -> Iterator[str]:
    threads = report.summary.program_threads
    if not threads:
        yield "Threads: not measured"
    for program, count in sorted(threads.items()):
        yield f"{show(program, 64)}: {format_count(count)} threads at most"


def _findings(report: JobReport, subjects: frozenset[Subject]) -> Iterator[str]:
    found: Sequence[Finding] = [finding for finding in verdict.findings(report) if finding.subject in subjects]
    for finding in found:
        mark = " -- WARNING" if _is_warning(finding) else ""
        yield f"{finding.title}{mark}"
        yield f"    {finding.explanation} {finding.advice}"
        if finding.suggestion:
            yield f"        {finding.suggestion}"
        for other in finding.consequences:
            yield f"    {contents.CONSEQUENCES} {other.title}. {other.explanation}"


def render_seed_usage(report: JobReport) -> dict[str, object]:
    """Return a dictionary for JSON, with None for what was not measured."""
    record, io = report.record, report.summary.io
    scratch = io.uses_scratch
    return {
        "jobid": record.shown_id,
        "sponsor": record.account,
        "username": record.user,
        "runtime": format_elapsed(report.summary.run_seconds),
        "uses_scratch": None if scratch is None else str(scratch),
        "alloc_tres": {
            "billing": record.billing,
            "alloc_cpu": record.cpus or None,
            "alloc_mem": None if record.memory_bytes is None else f"{record.memory_bytes // MIB}M",
            "alloc_nodes": ",".join(record.nodes),
        },
        "threads": {program: int(count) for program, count in report.summary.program_threads.items()},
        "cpu": _cpu_usage(report),
        "ram": _ram_usage(report),
        "io": {
            "opened_files": None if io.mean_open_files is None else int(io.mean_open_files),
            "read": {"amount": _mib(io.read_bytes), "unit": "MB", "count": io.reads},
            "write": {"amount": _mib(io.write_bytes), "unit": "MB", "count": io.writes},
        },
    }


def _cpu_usage(report: JobReport) -> Mapping[str, object]:
    cpu, cores = report.summary.cpu, report.record.cpus or None
    return {
        "available": {"amount": cores, "unit": "cores"},
        "used": {"amount": cpu.cores_used, "unit": "cores"},
        "time_core": _core_times(report),
        "time_total": {"time": cpu.time.used, "unit": "s"},
        "avg_usage_job": {
            "usage": _percent(cpu.mean_cores),
            "lowest_expected_usage": None if cores is None else EXPECTED_PERCENT_PER_CORE * cores,
            "unit": "%",
        },
        "max_usage_job": {"usage": _percent(cpu.peak_cores), "unit": "%"},
    }


def _core_times(report: JobReport) -> list[Mapping[str, object]]:
    times = [
        (f"{node.node}_core_{core}", seconds)
        for node in report.summary.nodes
        for core, seconds in node.core_seconds.items()
    ]
    whole = sum(seconds for _, seconds in times)
    return [
        {"core": name, "time": seconds, "unit": "s", "percent_of_total": 100 * seconds / whole if whole else 0.0}
        for name, seconds in times
    ]


def _ram_usage(report: JobReport) -> Mapping[str, object]:
    memory = report.summary.memory
    requested = memory.requested_bytes
    return {
        "used": {"amount": _mib(memory.best_peak_bytes), "unit": "MB", "usage": memory.ratio},
        # Text, as sacct printed it there.
        "available": {"amount": None if requested is None else f"{int(requested) // MIB}", "unit": "MB"},
    }


def _mib(amount: float | None) -> float | None:
    return None if amount is None else amount / MIB


def _percent(cores: float | None) -> float | None:
    return None if cores is None else 100 * cores


def render_seff(report: JobReport, *, group: str = "") -> str:
    """Return the lines; ``group`` is the name of the user's group, which accounting does not have for us."""
    return "".join(f"{line}\n" for line in _lines(report, group))


def _lines(report: JobReport, group: str) -> Iterator[str]:
    record = report.record
    yield f"Job ID: {record.job_id}"
    if record.array_task_id is not None:
        yield f"Array Job ID: {record.shown_id}"
    yield f"Cluster: {show(record.cluster)}"
    yield f"User/Group: {show(record.user)}/{show(group)}"
    yield f"State: {show(record.state)}" + (f" (exit code {record.exit_code or 0})" if record.has_ended else "")
    cores, nodes = record.cpus or 1, record.node_count or 1
    if cores == 1:
        yield "Cores: 1"
    else:
        yield f"Nodes: {nodes}"
        yield f"Cores per node: {cores // nodes}"
    if record.is_pending:
        yield "Efficiency not available for jobs in the PENDING state."
        return
    yield from _used_cpu(report.summary)
    yield f"Job Wall-clock time: {format_elapsed(report.summary.run_seconds)}"
    yield from _used_memory(report.summary)


def _used_cpu(summary: JobSummary) -> Iterator[str]:
    used = None if summary.cpu.time.used is None else math.floor(summary.cpu.time.used + 0.5)
    yield f"CPU Utilized: {NOT_MEASURED if used is None else format_elapsed(used)}"
    seconds = summary.record.allocated_seconds(summary.run_seconds)[0]
    yield f"CPU Efficiency: {_ratio_percent(used, seconds)} of {format_elapsed(seconds)} core-walltime"


def _used_memory(summary: JobSummary) -> Iterator[str]:
    record, peak = summary.record, summary.memory.best_peak_bytes
    yield f"Memory Utilized: {_bytes(peak)}"
    size = record.memory_bytes or 0
    yield f"Memory Efficiency: {_ratio_percent(peak, size)} of {_bytes(size)} ({_part(record, size)})"


def _part(record: JobRecord, size: float) -> str:
    """Return the memory per core or node, whichever the job requested."""
    if "mem-per-cpu" in record.options:
        return f"{_bytes(size / (record.cpus or 1))}/core"
    return f"{_bytes(size / (record.node_count or 1))}/node"


def _ratio_percent(used: float | None, whole: float) -> str:
    if used is None:
        return NOT_MEASURED
    return f"{100 * used / whole if whole else 0.0:.2f}%"


def _bytes(size: float | None) -> str:
    """Format a size as seff does: in KB of 1,024 bytes and up, 0 in MB."""
    if size is None:
        return NOT_MEASURED
    if size == 0:
        return "0.00 MB"
    amount, unit = size / 1024, 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.2f} {_UNITS[unit]}"
