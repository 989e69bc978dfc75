# SPDX-License-Identifier: Apache-2.0
"""Put into words how much of what jobs were allocated they wasted; every page, mail and file has the same numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from slurmscope.archive.interface import UseTotal
from slurmscope.core.units import format_hours
from slurmscope.jobs.findings import RULES, LossCause
from slurmscope.jobs.rule import Rule

GPU_CORES = 10.0
"""An hour of a GPU counts as this many core-hours, where causes are compared."""
_MIN_UNKNOWN_RATIO = 0.01


def describe_lost(total: UseTotal) -> Iterator[str]:
    """Yield what was lost, to which causes: ``1,204 of 4,816 core-hours lost (25 %): 804 idle, 400 of failed jobs``."""
    for unit, allocated, measured, causes in (
        (
            "core",
            total.core_seconds,
            total.measured_core_seconds,
            (total.unused_core_seconds, total.failed_core_seconds, total.timeout_core_seconds),
        ),
        (
            "GPU",
            total.gpu_seconds,
            total.measured_gpu_seconds,
            (total.unused_gpu_seconds, total.failed_gpu_seconds, total.timeout_gpu_seconds),
        ),
    ):
        lost = sum(causes)
        if not allocated or not (measured or lost):
            continue
        known = [(seconds, what) for seconds, what in zip(causes, _LOST_TO, strict=True) if seconds]
        parts = [f"{format_hours(seconds)} {what}" for seconds, what in known]
        which = f": all {known[0][1]}" if len(known) == 1 else f": {', '.join(parts)}" if known else ""
        amounts = f"{format_hours(lost)} of {format_hours(allocated)} {unit}-hours lost"
        yield f"{amounts} ({round(100 * lost / allocated)} %){which}"


_LOST_TO = ("idle", "of failed jobs", "of jobs that reached their time limit")


def describe_rest(total: UseTotal) -> Iterator[str]:
    """Yield sentences about what was not lost, but blocked for others, and about what was not measured."""
    for seconds, what in (
        (total.blocked_core_seconds, "core-hours of other jobs' cores were blocked by memory that was not needed"),
        (_unknown(total.core_seconds, total.measured_core_seconds), "allocated core-hours were not measured"),
        (_unknown(total.gpu_seconds, total.measured_gpu_seconds), "allocated GPU-hours were not measured"),
    ):
        if seconds:
            yield f"{format_hours(seconds)} {what}."


class MainCause(NamedTuple):
    """What most was lost to; ``rule`` is the finding with most of it, None where no finding explains enough.

    The hours are those lost to the cause, and with a rule those lost to it by the jobs with this finding.
    """

    cause: LossCause
    rule: Rule | None
    core_seconds: float
    gpu_seconds: float

    @property
    def rule_id(self) -> str:
        return self.rule.id if self.rule else ""

    @property
    def label(self) -> str:
        return self.rule.title if self.rule and self.cause is not LossCause.MEMORY else self.cause.label

    @property
    def hours(self) -> str:
        """Return the lost hours: ``1,204 core-hours and 12 GPU-hours``."""
        amounts = ((self.core_seconds, "core-hours"), (self.gpu_seconds, "GPU-hours"))
        return " and ".join(f"{format_hours(seconds)} {unit}" for seconds, unit in amounts if seconds)


_CAUSE_RULES = {
    LossCause.FAILED: ("oom_kill", "node_failed", "gpu_fault", "gpu_stuck", "part_stopped", "memory_thrashing"),
    LossCause.TIMEOUT: ("gpu_stuck", "process_held", "stopped_early", "memory_thrashing", "serial_code", "timed_out"),
    LossCause.IDLE: (
        "gpu_idle", "gpu_unused_memory", "gpu_stuck", "gpu_held_without_process", "gpu_some_idle", "gpu_starved",
        "gpu_launch_bound", "gpu_only_copies", "gpu_low", "part_stopped", "process_held", "stopped_early",
        "serial_code", "node_imbalance", "memory_thrashing", "core_imbalance", "cpu_uneven_over_time", "cpu_idle",
    ),
    LossCause.MEMORY: ("memory_over_requested",),
}  # fmt: skip
"""Findings that explain a loss and say what to change, the more precise ones first."""
_RULES = {rule.id: rule for rule in RULES}
_MIN_EXPLAINED_RATIO = 0.1


def find_main_cause(total: UseTotal, by_rule: Iterable[UseTotal] = ()) -> MainCause | None:
    """Return what most was lost to; None where nothing was. ``by_rule`` are the totals of the same jobs by finding.

    Blocked cores are not among the lost ones, but may be what is most worth changing.
    """
    most = max((MainCause(cause, None, *_lost_to(cause, total)) for cause in LossCause), key=_weigh)
    if not _weigh(most):
        return None
    found = {each.key: each for each in by_rule}
    named = [
        MainCause(most.cause, _RULES[rule], *_lost_to(most.cause, found[rule]))
        for rule in _CAUSE_RULES[most.cause]
        if rule in found
    ]
    best = max(named, key=_weigh, default=most)
    return best if _weigh(best) >= _MIN_EXPLAINED_RATIO * _weigh(most) else most


def _lost_to(cause: LossCause, total: UseTotal) -> tuple[float, float]:
    """Return the core and GPU time that was lost to a cause."""
    return {
        LossCause.FAILED: (total.failed_core_seconds, total.failed_gpu_seconds),
        LossCause.TIMEOUT: (total.timeout_core_seconds, total.timeout_gpu_seconds),
        LossCause.IDLE: (total.unused_core_seconds, total.unused_gpu_seconds),
        LossCause.MEMORY: (total.blocked_core_seconds, 0.0),
    }[cause]


def _weigh(cause: MainCause) -> float:
    return cause.core_seconds + GPU_CORES * cause.gpu_seconds


def _unknown(allocated: float, measured: float) -> float:
    """Return what was not measured, unless it is next to nothing."""
    unknown = allocated - measured
    return unknown if unknown > _MIN_UNKNOWN_RATIO * allocated else 0.0
