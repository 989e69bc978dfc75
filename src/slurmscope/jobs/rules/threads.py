# SPDX-License-Identifier: Apache-2.0
"""Check how many threads the programs of a job started, and whether they had a core."""

from __future__ import annotations

from slurmscope.core.units import format_count, format_ratio, format_some
from slurmscope.jobs.rule import (
    MIN_WORKING_CORES,
    Match,
    Rule,
    Severity,
    Subject,
    Threshold,
    Thresholds,
    mean_cores,
    step_tasks,
)
from slurmscope.jobs.summary import JobSummary

LISTED_PROGRAMS = 10
NAME_LENGTH = 40
FEW_THREADS = 4.0
"""Programs with up to so many threads are not reported."""
CROWDED_RATIO = 1.25
"""With fewer runnable threads per core, the other threads sleep."""

_LAUNCHERS = frozenset(
    {
        "srun", "salloc", "sbatch", "sattach", "sbcast", "sgather", "mpirun", "mpiexec", "orterun", "orted", "prun",
        "prte", "prted", "prterun", "aprun", "jsrun", "ibrun", "charmrun", "ssh", "sshd", "pmix_server",
    }
)  # fmt: skip
_LAUNCHER_PREFIXES = ("hydra_", "mpiexec.", "slurm")
"""Processes of Hydra (hydra_pmi_proxy), its launcher, and Slurm's own (slurmstepd, slurm_script)."""


def _too_many_threads(summary: JobSummary, values: Thresholds) -> Match | None:
    cpus = summary.record.cpus or 0
    bound = max(values["max_threads_per_core"] * cpus, FEW_THREADS)
    over = {name: count for name, count in summary.program_threads.items() if count > bound and not _is_launcher(name)}
    if not cpus or not over:
        return None
    # Threads that sleep do not compete for the cores.
    running = summary.mean_running_threads
    is_crowded = running is not None and running > CROWDED_RATIO * cpus
    waiting = "" if running is None else f" {format_count(running)} of them were runnable on average."
    return Match(
        explanation=f"{_listing(over)}, on {format_some(cpus, 'core')}.{waiting}",
        numbers={"cores": float(cpus), "most_threads": max(over.values())}
        | ({} if running is None else {"mean_running_threads": running}),
        suggestion="export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}" if step_tasks(summary) in {None, 1} else "",
        severity=None if is_crowded else Severity.INFO,
    )


def _is_launcher(program: str) -> bool:
    """Return whether a program starts others and then only waits for them."""
    return program in _LAUNCHERS or program.startswith(_LAUNCHER_PREFIXES)


def _listing(over: dict[str, float]) -> str:
    """List the programs, those with the most threads first."""
    worst = sorted(over.items(), key=lambda item: (-item[1], item[0]))
    named = [f"{name[:NAME_LENGTH]} had {format_some(count, 'thread')}" for name, count in worst[:LISTED_PROGRAMS]]
    rest = len(worst) - LISTED_PROGRAMS
    return ", ".join(named) + (f", and {format_some(rest, 'more program')} exceeded the limit" if rest > 0 else "")


def _cpu_queued(summary: JobSummary, values: Thresholds) -> Match | None:
    ratio = summary.cpu.queue_ratio
    if ratio is None or ratio < values["min_queue_ratio"] or not summary.coverage.is_good:
        return None
    mean = mean_cores(summary)
    if mean is None or mean < MIN_WORKING_CORES:
        return None
    return Match(
        explanation=f"Threads that could run had no core for {format_ratio(ratio)} of the time.",
        numbers={"queue_ratio": ratio, "mean_cores": mean},
    )


RULES = (
    Rule(
        id="too_many_threads",
        title="More threads than cores",
        subject=Subject.THREADS,
        severity=Severity.WARNING,
        needs="threads by program",
        advice="Set the number of threads of the program: many programs start one per core of the whole node.",
        check=_too_many_threads,
        min_run_seconds=0.0,
        thresholds=(Threshold("max_threads_per_core", "ratio", 2.0, "Report programs with more threads per core."),),
        explains=("cpu_queued",),
    ),
    Rule(
        id="cpu_queued",
        title="Threads waited for a core",
        subject=Subject.THREADS,
        severity=Severity.WARNING,
        needs="the time that threads of every node waited for a core",
        advice="Start as many threads as there are cores (OMP_NUM_THREADS), and check that tasks are not bound to the "
        "same core (--cpu-bind, OMP_PROC_BIND). With as many threads as cores, other programs use them: tell your "
        "cluster's support.",
        check=_cpu_queued,
        thresholds=(
            Threshold("min_queue_ratio", "ratio", 0.25, "Report jobs whose threads waited for at least this share."),
        ),
    ),
)
