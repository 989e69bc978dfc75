# SPDX-License-Identifier: Apache-2.0
"""Test the headers for next runs on a simulated year: would later runs have completed, and freed what was promised.

For every kind of job, several users run theirs for a year. Before each run but the first, the header is made from the
run before it and all earlier ones in a real archive, and then applied to this run, whose true need is known.
"""

from __future__ import annotations

import math
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from bench.recurring import RecurringJob, RecurringRun
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.jobs.report import JobReport, RequestedSize, Resubmission
from slurmscope.jobs.rule import hit_step_limit
from slurmscope.jobs.summary import JobSummary
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.reports.live_cache import WaitingTimesCache
from slurmscope.reports.make import ReportMaker
from slurmscope.reports.resubmission import add_resubmission
from slurmscope.reports.sources import open_archive
from slurmscope.simulator.history.workload_kinds import WorkloadKind
from slurmscope.simulator.history.workload_series import SimulatedSeries

JOBS = 4
RUNS = 20
MIN_COMPLETED_RATIO = 0.95
MIN_FREED_RATIO = 0.95
BEGIN_SECONDS = 1_760_000_000
HOUR = 3600.0


@dataclass(slots=True)
class Tally:
    """Count later runs of one kind, with the submitted request and with the suggested one."""

    runs: int = 0
    changed: int = 0
    completed: int = 0
    completed_as_submitted: int = 0
    promised_core_seconds: float = 0.0
    freed_core_seconds: float = 0.0
    promised_gpu_seconds: float = 0.0
    freed_gpu_seconds: float = 0.0
    promised_byte_seconds: float = 0.0
    freed_byte_seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    def add(self, made: Resubmission, run: RecurringRun) -> None:
        """Apply a header to a run."""
        seconds = _run_seconds(run, made.suggested)
        self.runs += 1
        self.changed += bool(made.changes)
        self.completed += seconds is not None
        self.completed_as_submitted += _run_seconds(run, made.submitted) is not None
        before, after = made.submitted, made.suggested
        self.promised_core_seconds += made.freed.core_seconds or 0.0
        self.promised_gpu_seconds += made.freed.gpu_seconds or 0.0
        self.promised_byte_seconds += made.freed.memory_byte_seconds or 0.0
        # Fewer cores may take longer, and a run that does not complete frees nothing.
        if seconds is not None and made.freed.core_seconds:
            self.freed_core_seconds += before.cpus * run.needed_seconds - after.cpus * seconds
        if seconds is not None and made.freed.gpu_seconds:
            self.freed_gpu_seconds += before.gpus * run.needed_seconds - after.gpus * seconds
        if seconds is not None and made.freed.memory_byte_seconds:
            self.freed_byte_seconds += (before.memory_bytes or 0.0) * run.needed_seconds
            self.freed_byte_seconds -= (after.memory_bytes or 0.0) * seconds

    @property
    def completed_ratio(self) -> float:
        """Return the share of later runs that would have completed."""
        return self.completed / self.runs

    @property
    def freed_ratio(self) -> float:
        """Return what was freed of what was promised, the worst of cores, GPUs and memory; 1 where nothing was."""
        amounts = (
            (self.freed_core_seconds, self.promised_core_seconds),
            (self.freed_gpu_seconds, self.promised_gpu_seconds),
            (self.freed_byte_seconds, self.promised_byte_seconds),
        )
        return min((freed / promised for freed, promised in amounts if promised), default=1.0)


def main() -> int:
    """Print a line for each kind of job and return 1 when a target is missed."""
    tallies = back_test(jobs=JOBS, runs=RUNS)
    print("kind, later runs, with a changed header, complete as submitted, complete with the header, freed of promised")
    for kind, tally in tallies.items():
        print(
            f"{kind:18} {tally.runs:5} {tally.changed:5} {tally.completed_as_submitted / tally.runs:7.0%} "
            f"{tally.completed_ratio:7.1%} {tally.freed_ratio:7.0%}  {tally.freed_core_seconds / HOUR:8.0f} core-hours"
            f" {tally.freed_gpu_seconds / HOUR:6.0f} GPU-hours"
            f" {tally.freed_byte_seconds / HOUR / (1 << 30):9.0f} GiB-hours"
        )
    runs, completed = sum(tally.runs for tally in tallies.values()), sum(tally.completed for tally in tallies.values())
    print(f"all kinds: {completed / runs:.1%} of {runs} later runs")
    broken = [
        kind
        for kind, tally in tallies.items()
        if tally.completed_ratio < MIN_COMPLETED_RATIO or tally.freed_ratio < MIN_FREED_RATIO or tally.violations
    ]
    for kind, tally in tallies.items():
        for violation in tally.violations:
            print(f"{kind}: {violation}")
    print(f"broken: {', '.join(broken)}" if broken else "every kind: 95 % complete and free what was promised")
    return 1 if broken else 0


def back_test(*, jobs: int, runs: int, seed: int = 1) -> dict[str, Tally]:
    """Return the counts of each kind of job."""
    with tempfile.TemporaryDirectory() as folder:
        archive = open_archive(ArchiveSettings(url=f"sqlite:///{Path(folder) / 'archive.db'}"))
        try:
            return {
                kind.value: _test_kind(archive, [RecurringJob(kind, number, seed=seed) for number in range(jobs)], runs)
                for kind in WorkloadKind
            }
        finally:
            archive.close()


def _test_kind(archive: SqlArchive, jobs: list[RecurringJob], count: int) -> Tally:
    tally = Tally()
    waiting = WaitingTimesCache(None)
    for job in jobs:
        runs = job.make(count, BEGIN_SECONDS)
        for run, report, following in zip(runs, _reports(runs), runs[1:], strict=False):
            assert run.record.job_id == report.record.job_id
            shown = add_resubmission(archive, waiting, EVERYTHING, report)
            if made := shown.resubmission:
                tally.add(made, following)
                tally.violations += find_violations(shown)
            archive.save([report])
    return tally


def find_violations(report: JobReport) -> list[str]:
    """Return in what a header is against what was measured of the run; nothing for one that follows from it."""
    made, summary = report.resubmission, report.summary
    if made is None or not made.changes:
        return []
    before, after = made.submitted, made.suggested
    ran, limit = summary.run_seconds, before.limit_seconds or math.inf
    had, gets = ((size.memory_bytes or 0.0) / size.nodes for size in (before, after))
    killed, needed = summary.memory.oom_kills or summary.record.state == "OUT_OF_MEMORY", _needed_bytes(summary)
    was_late = summary.record.state == "TIMEOUT" or (summary.record.state == "COMPLETED" and ran > 0.9 * limit)
    largest = summary.node_memory_bytes or math.inf
    is_short = killed and not hit_step_limit(summary) and needed <= largest
    checks = {
        "memory below the measured or extrapolated need": had > 0 and gets != had and gets < needed,
        "no more memory after an OOM kill": is_short and 0 < gets <= had < 0.9 * largest,
        "memory above that of a node": gets > max(had, largest),
        "more memory where it was not short": gets > had > 0 and not killed and needed < 0.9 * had,
        "more time where it was not short": (after.limit_seconds or 0.0) > limit and not was_late,
        "less time than the run took": after.limit_seconds is not None and after.limit_seconds < ran,
        "more cores, GPUs or nodes": after.cpus > before.cpus or after.gpus > before.gpus or after.nodes > before.nodes,
        "costs more than it frees": not killed and not was_late and needed < 0.9 * had and not _frees(made),
    }
    return [f"job {report.record.shown_id}, {summary.record.state}: {text}" for text, is_so in checks.items() if is_so]


def _needed_bytes(summary: JobSummary) -> float:
    """Return the memory per node that anybody measured, or that would have been needed by the time limit."""
    peaks = [node.working_peak_bytes or 0.0 for node in summary.nodes]
    return max([summary.memory.expected_bytes or 0.0, summary.memory.slurm_peak_bytes or 0.0, *peaks])


def _frees(made: Resubmission) -> bool:
    freed, before, after = made.freed, made.submitted, made.suggested
    is_shorter = (after.limit_seconds or 0.0) < (before.limit_seconds or 0.0)
    return is_shorter or any((freed.core_seconds, freed.gpu_seconds, freed.memory_byte_seconds))


def _reports(runs: tuple[RecurringRun, ...]) -> list[JobReport]:
    workloads = {run.record.job_id: run.workload for run in runs}
    maker = ReportMaker(SimulatedSeries(workloads.get), wall_clock=lambda: BEGIN_SECONDS + 400 * 86400.0)
    return maker.make([run.record for run in runs])


def _run_seconds(run: RecurringRun, size: RequestedSize) -> float | None:
    """Return how long a run takes with a request of this size; None if it would not complete."""
    nodes = size.nodes
    moments = [run.needed_seconds * (part + 0.5) / 200 for part in range(200)]
    busy = [sum(node.busy_cores(at) for node in run.workload.nodes) for at in moments]
    seconds = run.needed_seconds * fmean(max(1.0, cores / size.cpus) for cores in busy)
    packed = max(1.0, run.record.node_count / nodes) if run.busy_nodes > nodes else 1.0
    has_memory = size.memory_bytes is None or run.needed_bytes * packed <= size.memory_bytes / nodes
    has_time = size.limit_seconds is None or seconds <= size.limit_seconds
    return seconds if has_memory and has_time and run.used_gpus <= size.gpus else None


if __name__ == "__main__":
    sys.exit(main())
