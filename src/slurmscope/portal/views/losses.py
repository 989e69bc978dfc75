# SPDX-License-Identifier: Apache-2.0
"""Sum up lost hours by their cause."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from slurmscope.model.archive import TotalOrder, UseTotal
from slurmscope.model.waste import FAILED_STATES, TIMEOUT_STATES, LossCause, find_state_cause


class LossColumn(NamedTuple):
    """Describe a column of lost hours: its title, what it is ordered by, and a sentence about it."""

    title: str
    order: TotalOrder
    help: str


LOSS_COLUMNS = (
    LossColumn("Jobs", TotalOrder.JOBS, "Number of jobs"),
    LossColumn("Core-hours", TotalOrder.CORES, "Allocated: cores times run time"),
    LossColumn("Lost", TotalOrder.LOST, "Lost core-hours: the sum of the next four columns"),
    LossColumn("Failed", TotalOrder.FAILED, "All core-hours of jobs that failed"),
    LossColumn("Time limit", TotalOrder.TIMEOUT, "All core-hours of jobs that reached their time limit"),
    LossColumn("Idle", TotalOrder.UNUSED, "Measured idle core-hours of all other jobs"),
    LossColumn("Blocked", TotalOrder.BLOCKED, "Core-hours blocked by memory that was requested and not needed"),
    LossColumn("GPU-hours", TotalOrder.GPUS, "Allocated: GPUs times run time"),
    LossColumn("Lost GPU-hours", TotalOrder.LOST_GPU, "GPU-hours of failed jobs, and idle GPU-hours of all others"),
)


class CauseTotal(NamedTuple):
    """Hold what was lost to one cause; ``jobs`` is None where the jobs are not counted, None hours where not known."""

    cause: LossCause
    jobs: int | None
    core_seconds: float
    gpu_seconds: float | None
    states: tuple[str, ...]


def sum_causes(by_state: Iterable[UseTotal]) -> tuple[CauseTotal, ...]:
    """Sum up totals by state, largest loss of core time first."""
    totals = tuple(by_state)
    jobs = {
        cause: sum(total.jobs for total in totals if find_state_cause(total.key) is cause)
        for cause in (LossCause.FAILED, LossCause.TIMEOUT)
    }
    causes = (
        CauseTotal(
            LossCause.FAILED,
            jobs[LossCause.FAILED],
            sum(total.failed_core_seconds for total in totals),
            sum(total.failed_gpu_seconds for total in totals),
            _present(FAILED_STATES, totals),
        ),
        CauseTotal(
            LossCause.TIMEOUT,
            jobs[LossCause.TIMEOUT],
            sum(total.timeout_core_seconds for total in totals),
            sum(total.timeout_gpu_seconds for total in totals),
            _present(TIMEOUT_STATES, totals),
        ),
        CauseTotal(
            LossCause.IDLE,
            None,
            sum(total.unused_core_seconds for total in totals),
            sum(total.unused_gpu_seconds for total in totals),
            (),
        ),
        CauseTotal(LossCause.MEMORY, None, sum(total.blocked_core_seconds for total in totals), None, ()),
    )
    return tuple(sorted(causes, key=lambda total: -total.core_seconds))


def _present(states: Iterable[str], totals: Iterable[UseTotal]) -> tuple[str, ...]:
    return tuple(sorted({total.key for total in totals} & set(states)))
