# SPDX-License-Identifier: Apache-2.0
"""Format the contents of a report once for all of its renderings.

Text from outside is made safe to show here; templates escape it for HTML.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING

from slurmscope.core.units import NOT_MEASURED, format_bytes, format_count, format_ratio, format_seconds, format_some
from slurmscope.jobs.exit_status import LAST_SIGNAL
from slurmscope.jobs.rating import Rating, rate_use, rated_job
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.render.energy import energy_rows
from slurmscope.jobs.render.formatting import LabelledText, format_time, show
from slurmscope.jobs.render.resubmission import describe_resubmission
from slurmscope.jobs.render.tables import make_node_table, source_sections
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.rule import Subject
from slurmscope.jobs.summary import Coverage, FilesystemSummary, JobSummary

if TYPE_CHECKING:
    from slurmscope.jobs.pending.blockers import PendingExplanation

MEAN_CORES = "Busy cores, mean"
CONSEQUENCES = "Follows from this:"
"""Heading of what a finding explains, in every rendering."""

UNEVEN_GPUS = 0.1
"""By how much a GPU is below the mean where a gauge names it."""
_SHOWN_SHARED_BYTES = 1 << 20

_MEMORY_NOTE = (
    "The values differ because the kernel also charges the file cache, which it reclaims when memory gets scarce, "
    "and because Slurm only samples the largest task at intervals."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """The used share of one requested resource; ``ratio`` is None where there is no bar to draw."""

    label: str
    ratio: float | None
    text: str
    rating: Rating = Rating.UNRATED
    """Gives the colour of the bar."""

    @property
    def percent(self) -> str:
        """Return the share as a percentage, or an empty text."""
        return "" if self.ratio is None else format_ratio(self.ratio)


def texts(report: JobReport) -> dict[str, object]:
    """Return all texts of a report by the names that templates have for them."""
    return {
        "title": title(report),
        "made": format_time(report.made_seconds),
        "facts": facts(report),
        "consequences_title": CONSEQUENCES,
        "header": describe_resubmission(report),
        "memory": memory_rows(report),
        "memory_note": memory_note(report),
        "cpu": cpu_rows(report),
        "io": io_rows(report),
        "energy": energy_rows(report),
        "nodes": make_node_table(report),
        "sections": source_sections(report),
        "missing": missing(report),
    }


def title(report: JobReport) -> str:
    record = report.record
    return show(f"Job {record.shown_id}: {record.name}" if record.name else f"Job {record.shown_id}", 200)


def facts(report: JobReport, zone: tzinfo | None = UTC) -> tuple[LabelledText, ...]:
    """List what accounting reports about the job; ``zone`` is the time zone of its times, None that of this host."""
    record = report.record
    rows = (
        LabelledText("Job", f"{record.shown_id} on {record.cluster}" if record.cluster else record.shown_id),
        LabelledText("Federated job", _federated(record)),
        LabelledText("Part of", _whole_job(record)),
        LabelledText("Name", record.name),
        LabelledText("User, account", f"{record.user}, {record.account}"),
        LabelledText("Partition, QOS", ", ".join(filter(None, (record.partition, record.qos)))),
        LabelledText("State", _state(record)),
        LabelledText("Nodes", _nodes(record)),
        LabelledText("Cores", f"{record.cpus:,}" if record.cpus else "unknown"),
        LabelledText("Memory", format_bytes(record.memory_bytes) if record.memory_bytes is not None else "unknown"),
        LabelledText("GPUs", _gpus(record)),
        *_times(report, zone),
        LabelledText("Restarts", f"{record.restarts}; the numbers are of one run" if record.restarts else ""),
        LabelledText("Earlier runs", "; ".join(_earlier_runs(report, zone))),
        LabelledText("Submitted as", record.submit_line),
        LabelledText("Directory", record.work_dir),
    )
    return tuple(LabelledText(row.label, show(row.text)) for row in rows if row.text)


def _earlier_runs(report: JobReport, zone: tzinfo | None) -> Iterator[str]:
    for run in report.earlier_runs or ():
        ended = f"was {run.state} after {format_seconds(run.run_seconds)}"
        yield f"started at {format_time(run.start_seconds, zone)} and {ended}"


def pending_rows(
    report: JobReport, known: PendingExplanation | None = None, zone: tzinfo | None = UTC
) -> tuple[LabelledText, ...]:
    """Explain why a job is pending, and what its user can do; none for a job that has started or ended.

    ``known`` is what the queue says now; without it there is only the reason in accounting.
    """
    record = report.record
    if not record.is_pending:
        return ()
    # Other reports do without it.
    from slurmscope.jobs.pending.reasons import explain_reason

    word = known.reason if known else record.reason
    is_known = word not in ("", "None")
    reason = explain_reason(word)
    meaning, action = (known.meaning, known.action) if known else (reason.meaning, reason.action)
    unmet, others = _blocked_by(known)
    # What is missing may be the reason itself.
    unmet = "" if unmet == meaning else unmet
    start = known.start_seconds if known else None
    rows = (
        LabelledText(
            "Reason", f"{meaning.removesuffix('.')} ({word})." if is_known else "not in Slurm's accounting yet"
        ),
        LabelledText("Blocked by", unmet),
        LabelledText("Also needs", others),
        LabelledText("Position", _positions(known)),
        LabelledText("What to do", action.replace("JOBID", str(record.job_id)) if is_known else ""),
        LabelledText(
            "Expected start",
            format_time(start, zone)
            if start is not None
            else f"not estimated; squeue --start --jobs={record.job_id} prints it as soon as Slurm has one"
            if known
            else f"squeue --start --jobs={record.job_id} prints it, and the current reason",
        ),
    )
    return tuple(LabelledText(row.label, show(row.text)) for row in rows if row.text)


def _blocked_by(known: PendingExplanation | None) -> tuple[str, str]:
    """Return what keeps a job from starting, and what else it needs where that is not known to be met."""
    blockers = known.blockers if known else ()
    unmet = " ".join(each.sentence for each in blockers if each.is_met is False)
    return unmet, " ".join(each.sentence for each in blockers if each.is_met is None)


def _positions(known: PendingExplanation | None) -> str:
    """Format the position in each partition, with what the jobs ahead request."""
    return "; ".join(
        f"{each.position:,} of {each.jobs:,} in partition {each.partition}"
        + (f", behind jobs for {format_some(each.cores_ahead, 'core')}" if each.cores_ahead else "")
        for each in (known.positions if known else ())
    )


def _federated(record: JobRecord) -> str:
    parts = record.federated
    return f"local job ID {parts.local_id}, submitted to cluster {parts.origin} of the federation" if parts else ""


def _whole_job(record: JobRecord) -> str:
    if record.het_job_id is None or record.het_offset is None:
        return ""
    other = f"{record.het_job_id}+{1 if record.het_offset == 0 else 0}"
    return f"heterogeneous job {record.het_job_id}; other parts, such as {other}, have reports of their own"


def gauges(report: JobReport) -> tuple[Gauge, ...]:
    """Compare use with what was requested, for every resource; GPUs only where there are some."""
    summary = report.summary
    requested_gpus = max(summary.gpu.requested, report.record.gpus)
    has_run, job = report.record.start_seconds is not None, rated_job(summary)
    gpu_use, gpu_memory = summary.gpu.mean_utilization, summary.gpu.memory_ratio
    rows: tuple[tuple[Subject | None, str, float | None, str], ...] = (
        (Subject.CPU, "CPU", summary.cpu.time.ratio, _cpu(summary)),
        (Subject.MEMORY, "Memory", summary.memory.ratio, _memory(summary)),
        (Subject.GPU, "GPU", gpu_use if requested_gpus else None, _gpu_use(summary, requested_gpus)),
        (None, "GPU memory", gpu_memory if requested_gpus else None, _gpu_memory(summary, requested_gpus)),
        (Subject.TIME, "Time", summary.time.ratio if has_run else None, _time(summary)),
    )
    return tuple(
        Gauge(label=label, ratio=_finite(ratio), text=text, rating=rate_use(subject, ratio, job))
        for subject, label, ratio, text in rows
        if text
    )


def memory_rows(report: JobReport) -> tuple[LabelledText, ...]:
    """List the job's memory in three ways, beside what was requested."""
    memory = report.summary.memory
    is_whole = memory.slurm_peak_is_whole or memory.slurm_peak_bytes is None
    shared = memory.shared_peak_bytes or 0.0
    return (
        LabelledText(
            "Requested", format_bytes(memory.requested_bytes) if memory.requested_bytes is not None else "unknown"
        ),
        LabelledText("Needed (anonymous and shared)", format_bytes(memory.working_peak_bytes)),
        *([LabelledText("Of it shared, or in tmpfs", format_bytes(shared))] if shared >= _SHOWN_SHARED_BYTES else []),
        LabelledText("Charged by the kernel", format_bytes(memory.charged_peak_bytes)),
        LabelledText(
            "Slurm's MaxRSS",
            format_bytes(memory.slurm_peak_bytes) + ("" if is_whole else " (its largest task or step alone)"),
        ),
    )


def memory_note(report: JobReport) -> str:
    """Explain why the memory values differ, where there are several."""
    memory = report.summary.memory
    peaks = (memory.working_peak_bytes, memory.charged_peak_bytes, memory.slurm_peak_bytes)
    return _MEMORY_NOTE if sum(peak is not None for peak in peaks) > 1 else ""


def cpu_rows(report: JobReport) -> tuple[LabelledText, ...]:
    """List how the cores were used."""
    cpu = report.summary.cpu
    return (
        LabelledText("In user code", format_seconds(cpu.user_seconds)),
        LabelledText("In the kernel", format_seconds(cpu.system_seconds)),
        LabelledText(MEAN_CORES, format_count(cpu.mean_cores)),
        LabelledText("Busy cores, peak", format_count(cpu.peak_cores)),
    )


def io_rows(report: JobReport) -> tuple[LabelledText, ...]:
    """List what the job read and wrote."""
    io = report.summary.io
    scratch = {True: "used", False: "not used", None: NOT_MEASURED}[io.uses_scratch]
    rows: tuple[LabelledText, ...] = (
        LabelledText("Read", _calls(io.read_bytes, io.reads)),
        LabelledText("Written", _calls(io.write_bytes, io.writes)),
        LabelledText("Files open, peak", format_count(io.peak_open_files)),
        LabelledText("Scratch", scratch),
    )
    if io.metadata_operations is not None:
        rows = (*rows, LabelledText("Metadata operations", format_count(io.metadata_operations)))
    return (*rows, *map(_filesystem, io.filesystems))


def missing(report: JobReport) -> tuple[str, ...]:
    """List what is unknown, and why."""
    return tuple(show(sentence) for sentence in report.missing)


def _state(record: JobRecord) -> str:
    notes = []
    if record.exit_code:
        notes.append(f"exit code {record.exit_code}")
    # Slurm also stores numbers that are no signals, such as 125 for an OOM-killed job.
    if record.exit_signal and record.exit_signal <= LAST_SIGNAL and record.state in {"FAILED", "CANCELLED"}:
        notes.append(f"signal {record.exit_signal}")
    if record.reason not in {"", "None"}:
        notes.append(record.reason)
    return f"{record.state} ({', '.join(notes)})" if notes else record.state


def _nodes(record: JobRecord) -> str:
    names = ", ".join(record.nodes[:4]) + (", …" if len(record.nodes) > 4 else "")
    if not record.node_count:
        return "unknown"
    return f"{record.node_count:,} ({names})" if names else f"{record.node_count:,}"


def _gpus(record: JobRecord) -> str:
    named = ", ".join(f"{gres.count} {gres.model}".strip() for gres in record.gres if gres.name == "gpu")
    return named if record.gpus else "none"


def _times(report: JobReport, zone: tzinfo | None) -> tuple[LabelledText, ...]:
    record, summary = report.record, report.summary
    waited = (record.start_seconds or 0) - (record.eligible_seconds or record.submit_seconds)
    is_started = record.start_seconds is not None
    still_running = ", still running" if record.is_running else ""
    suspended, limit = record.suspended_seconds, record.time_limit_seconds
    return (
        LabelledText("Submitted", format_time(record.submit_seconds, zone)),
        LabelledText("Waited", format_seconds(max(0, waited)) if is_started else ""),
        LabelledText(
            "Started",
            format_time(record.start_seconds, zone) if is_started else "never" if record.has_ended else "not yet",
        ),
        LabelledText("Ended", format_time(record.end_seconds, zone) if record.end_seconds is not None else ""),
        LabelledText("Run time", format_seconds(summary.run_seconds) + still_running if is_started else ""),
        LabelledText(
            "Suspended", f"{format_seconds(suspended)}, not part of the run time" if is_started and suspended else ""
        ),
        LabelledText("Time limit", "none" if limit is None else format_seconds(limit)),
    )


def _cpu(summary: JobSummary) -> str:
    cpu = summary.cpu
    if cpu.time.ratio is None:
        return NOT_MEASURED
    if cpu.mean_cores is None:
        return f"{format_seconds(cpu.time.used)} of {format_seconds(cpu.time.requested)}"
    cpus, mean = summary.record.cpus, format_count(cpu.mean_cores)
    busy = f"{mean} cores busy" if cpus is None else f"{mean} of {format_some(cpus, 'core')} busy"
    return busy + _caveat(cpu.time.coverage)


def _memory(summary: JobSummary) -> str:
    memory = summary.memory
    if memory.best_peak_bytes is None:
        return NOT_MEASURED
    if memory.requested_bytes is None:
        return format_bytes(memory.best_peak_bytes)
    text = f"{format_bytes(memory.best_peak_bytes)} of {format_bytes(memory.requested_bytes)}"
    # Coverage does not apply to Slurm's own figure.
    is_ours = memory.working_peak_bytes is not None or memory.slurm_peak_bytes is None
    return text + _caveat(memory.coverage if is_ours else None)


def _gpu_use(summary: JobSummary, requested: int) -> str:
    if not requested:
        return ""
    if summary.gpu.mean_utilization is None:
        return NOT_MEASURED
    text, least = f"mean of {format_some(requested, 'GPU')}", summary.gpu.least_utilization
    if least is not None and summary.gpu.mean_utilization - least >= UNEVEN_GPUS:
        text += f", the least used {format_ratio(least)}"
    if summary.gpu.held_idle:
        text += f", {summary.gpu.held_idle} never used"
    return text + _caveat(summary.gpu.coverage)


def _gpu_memory(summary: JobSummary, requested: int) -> str:
    if not requested:
        return ""
    peak, size = summary.gpu.peak_memory_bytes, summary.gpu.memory_size_bytes
    if peak is None:
        return NOT_MEASURED
    if size is None:
        return f"{format_bytes(peak)} at its peak"
    shared = ", shared with other jobs" if summary.gpu.is_shared else ""
    return f"{format_bytes(peak)} of {format_bytes(size)} at its peak{shared}"


def _time(summary: JobSummary) -> str:
    if summary.record.start_seconds is None:
        return "not run"
    if summary.time.used is None:
        return NOT_MEASURED
    if summary.time.requested is None:
        return f"{format_seconds(summary.time.used)}, no limit"
    return f"{format_seconds(summary.time.used)} of {format_seconds(summary.time.requested)}"


def _caveat(coverage: Coverage | None) -> str:
    """State how incomplete a measurement is, where that matters."""
    if coverage is None or coverage.is_good:
        return ""
    if coverage.nodes_measured < coverage.nodes:
        return f" (measured on {coverage.nodes_measured:,} of {coverage.nodes:,} nodes)"
    return f" (measured for {format_ratio(coverage.run_ratio)} of the run)"


def _finite(ratio: float | None) -> float | None:
    return ratio if ratio is not None and math.isfinite(ratio) else None


def _filesystem(use: FilesystemSummary) -> LabelledText:
    """Write the job's use of a shared file system."""
    parts = []
    if use.read_bytes is not None:
        parts.append(f"{format_bytes(use.read_bytes)} read{_peak_rate(use.peak_read_bytes, format_bytes)}")
    if use.write_bytes is not None:
        parts.append(f"{format_bytes(use.write_bytes)} written{_peak_rate(use.peak_write_bytes, format_bytes)}")
    if use.metadata_operations is not None:
        operations = format_some(use.metadata_operations, "metadata operation")
        parts.append(f"{operations}{_peak_rate(use.peak_metadata_operations, format_count)}")
    return LabelledText(f"On {show(use.name, 40)}", ", ".join(parts))


def _peak_rate(peak: float | None, write: Callable[[float | None], str]) -> str:
    return f" (peak {write(peak)}/s)" if peak else ""


def _calls(amount: float | None, calls: float | None) -> str:
    text = format_bytes(amount)
    return text if amount is None or not calls else f"{text} in {format_some(calls, 'call')}"
