# SPDX-License-Identifier: Apache-2.0
"""Check how many threads the programs of a job started."""

from __future__ import annotations

from slurmscope.core.units import format_count, format_some
from slurmscope.jobs.rule import Match, Rule, Severity, Subject, Threshold, Thresholds, step_tasks
from slurmscope.jobs.summary import JobSummary

LISTED_PROGRAMS = 10
NAME_LENGTH = 40

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
    bound = max(values["max_threads_per_core"] * cpus, values["min_threads"])
    over = {name: count for name, count in summary.program_threads.items() if count > bound and not _is_launcher(name)}
    if not cpus or not over:
        return None
    # Threads that sleep do not compete for the cores.
    running = summary.mean_running_threads
    is_crowded = running is not None and running > values["crowded_ratio"] * cpus
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
        thresholds=(
            Threshold("max_threads_per_core", "ratio", 2.0, "Report programs with more threads per core."),
            Threshold("min_threads", "count", 4.0, "Ignore programs with up to this many threads."),
            Threshold(
                "crowded_ratio",
                "ratio",
                1.25,
                "Only info for jobs with fewer runnable threads per core: the other threads sleep.",
            ),
        ),
    ),
)
