# SPDX-License-Identifier: Apache-2.0
"""Check how a job read and wrote files."""

from __future__ import annotations

from slurmscope.core.units import GIB, format_bytes, format_ratio, format_seconds, format_some
from slurmscope.jobs.rule import Match, Rule, Severity, Subject, Threshold, Thresholds
from slurmscope.jobs.summary import IoSummary, JobSummary

MANY_FILES = 1000.0
LEAST_SYSTEM_SECONDS = 60.0
LARGE_CALL_BYTES = float(64 << 10)
"""With this much data in each call on average, the kernel copies data: that takes its time."""


def _moved_bytes(io: IoSummary) -> float | None:
    return None if io.read_bytes is None or io.write_bytes is None else io.read_bytes + io.write_bytes


def _scratch_unused(summary: JobSummary, values: Thresholds) -> Match | None:
    moved = summary.io.storage_bytes
    if summary.io.uses_scratch is not False or moved is None or not summary.coverage.is_good:
        return None
    if moved < values["min_moved_bytes"]:
        return None
    return Match(
        explanation=f"The job moved {format_bytes(moved)} from and to file systems, and had no file on scratch open.",
        numbers={"moved_bytes": moved},
    )


def _small_files(summary: JobSummary, values: Thresholds) -> Match | None:
    moved, files = _moved_bytes(summary.io), summary.io.peak_open_files
    if moved is None or files is None or files < MANY_FILES:
        return None
    if moved / files >= values["min_bytes_per_file"]:
        return None
    return Match(
        explanation=f"The job had {format_some(files, 'file')} open at once, and transferred "
        f"{format_bytes(moved / files)} per file.",
        numbers={"open_files": files, "moved_bytes": moved, "bytes_per_file": moved / files},
    )


def _metadata_storm(summary: JobSummary, values: Thresholds) -> Match | None:
    operations, run_seconds = summary.io.metadata_operations, summary.run_seconds
    if operations is None:
        return None
    rate = operations / run_seconds
    if rate <= values["max_operations_per_second"]:
        return None
    return Match(
        explanation=f"The job made {format_some(operations, 'file system request')} that transfer no data (open, stat, "
        f"create, remove): {format_some(rate, 'request')} per second over its run.",
        numbers={"operations": operations, "operations_per_second": rate},
    )


def _tiny_requests(summary: JobSummary, values: Thresholds) -> Match | None:
    io, moved, run_seconds = summary.io, _moved_bytes(summary.io), summary.run_seconds
    if io.reads is None or io.writes is None or moved is None:
        return None
    calls = io.reads + io.writes
    if calls < max(1.0, values["min_calls"]) or calls / run_seconds < values["min_calls_per_second"]:
        return None
    if moved / calls >= values["min_bytes_per_call"]:
        return None
    return Match(
        explanation=f"The job transferred {format_bytes(moved / calls)} per call on average, in "
        f"{format_some(calls, 'call')}.",
        numbers={"calls": calls, "bytes_per_call": moved / calls, "calls_per_second": calls / run_seconds},
    )


def _kernel_time(summary: JobSummary, values: Thresholds) -> Match | None:
    io, cpu, moved = summary.io, summary.cpu, _moved_bytes(summary.io)
    if cpu.user_seconds is None or cpu.system_seconds is None or moved is None or not summary.coverage.is_good:
        return None
    calls = (io.reads or 0.0) + (io.writes or 0.0)
    ratio = cpu.system_seconds / max(1.0, cpu.user_seconds + cpu.system_seconds)
    if cpu.system_seconds < LEAST_SYSTEM_SECONDS or ratio < values["min_system_ratio"]:
        return None
    if moved / max(1.0, calls) >= LARGE_CALL_BYTES:
        return None
    return Match(
        explanation=f"{format_seconds(cpu.system_seconds)} of CPU time ({format_ratio(ratio)}) were spent in the "
        f"kernel, which transferred {format_bytes(moved)} in {format_some(calls, 'call')}.",
        numbers={"system_seconds": cpu.system_seconds, "system_ratio": ratio, "moved_bytes": moved, "calls": calls},
    )


RULES = (
    Rule(
        id="small_files",
        title="Many small files",
        subject=Subject.FILES,
        severity=Severity.WARNING,
        needs="bytes read and written, and open files, on every node",
        advice="Shared file systems are slow with many small files. Keep the data in a few large files: HDF5, an "
        "archive, or a database file.",
        check=_small_files,
        min_run_seconds=0.0,
        thresholds=(
            Threshold("min_bytes_per_file", "bytes", 5e6, "Report jobs that transfer less than this per file."),
        ),
        explains=("metadata_storm", "kernel_time"),
    ),
    Rule(
        id="metadata_storm",
        title="The file system was flooded with requests",
        subject=Subject.FILES,
        severity=Severity.WARNING,
        needs="a file system that counts requests per job",
        advice="Open files once and keep them open, do not list large directories in a loop, and pack many small files "
        "into an archive. Such jobs slow down the file system for all users.",
        check=_metadata_storm,
        explains=("kernel_time",),
        min_run_seconds=60.0,
        thresholds=(Threshold("max_operations_per_second", "per second", 100.0, "Report a higher mean over the run."),),
    ),
    Rule(
        id="tiny_requests",
        title="Files were read or written in tiny requests",
        subject=Subject.FILES,
        severity=Severity.WARNING,
        needs="bytes and number of read and write calls on every node",
        advice="Use buffers of a megabyte or more, and do not flush after every line.",
        check=_tiny_requests,
        explains=("kernel_time",),
        min_run_seconds=60.0,
        thresholds=(
            Threshold(
                "min_bytes_per_call", "bytes", 1024.0, "Report jobs whose calls transfer less than this on average."
            ),
            Threshold("min_calls", "count", 1e6, "Ignore jobs with fewer calls."),
            Threshold("min_calls_per_second", "per second", 1000.0, "Ignore jobs with fewer calls per second."),
        ),
    ),
    Rule(
        id="kernel_time",
        title="Much kernel time for little data",
        subject=Subject.FILES,
        severity=Severity.WARNING,
        needs="CPU time in the kernel, bytes and number of read and write calls, on every node",
        advice="Many small files, a call for each line, or many short processes take more time in the kernel than in "
        "the program. Pack small files into an archive or a database file, and start fewer processes.",
        check=_kernel_time,
        min_run_seconds=60.0,
        thresholds=(
            Threshold("min_system_ratio", "ratio", 0.4, "Report jobs that spent this share of their CPU time there."),
        ),
    ),
    Rule(
        id="scratch_unused",
        title="Scratch was not used",
        subject=Subject.FILES,
        severity=Severity.INFO,
        needs="open files, and bytes from and to file systems, on every node",
        advice="Work on scratch, which is built for large amounts of data, and copy results back at the end.",
        check=_scratch_unused,
        thresholds=(Threshold("min_moved_bytes", "bytes", float(GIB), "Ignore jobs that read and write less."),),
    ),
)
