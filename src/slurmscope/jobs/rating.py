# SPDX-License-Identifier: Apache-2.0
"""Rate how much of a resource a job used: the one source of the colours of gauges, bars and tables.

The same number of the same job has the same rating everywhere. The bounds are the defaults of the rules, so that what
is rated badly is mostly also a finding.
"""

from __future__ import annotations

import enum
import math
from typing import NamedTuple

from slurmscope.jobs.findings import resolve_thresholds
from slurmscope.jobs.rule import MIN_JUDGED_SECONDS, SETTLED_STATES, Subject, has_gpus
from slurmscope.jobs.rules.cpu import CRITICAL_BUSY_RATIO
from slurmscope.jobs.rules.gpu_work import BUSY_RATIO, NO_WORK_RATIO
from slurmscope.jobs.rules.memory import CRITICAL_USED_RATIO
from slurmscope.jobs.summary import JobSummary
from slurmscope.slurm.states import ENDED_STATES

_BOUNDS = resolve_thresholds({})
_TIMEOUT = "TIMEOUT"


class Rating(enum.StrEnum):
    """How well a resource was used; ``UNRATED`` is neutral: nothing can be said, or not yet."""

    CRITICAL = "critical"
    WARNING = "warning"
    FINE = "fine"
    UNRATED = "unrated"


class RatedJob(NamedTuple):
    """What a rating depends on besides the number; the default is that of a sum over many jobs."""

    state: str = "COMPLETED"
    run_seconds: float = math.inf
    gpus: int = 0
    cpus: int | None = None
    requested_bytes: float | None = None
    gpu_ratio: float | None = None
    """Mean over its GPUs, which is rated as the least used of them: 73 % and 0 % are not fine."""
    least_gpu_ratio: float | None = None
    is_busy_for_nothing: bool = False
    """Whether GPUs were busy without doing any work: 100 % is not fine."""


BUSY_FOR_NOTHING = frozenset({"gpu_stuck", "gpu_busy_without_work", "gpu_launch_bound"})
"""Rules that find such jobs."""


MANY_JOBS = RatedJob()


def rated_job(summary: JobSummary) -> RatedJob:
    record = summary.record
    return RatedJob(
        record.state,
        summary.run_seconds,
        record.gpus if has_gpus(summary) else 0,
        record.cpus,
        summary.memory.requested_bytes,
        summary.gpu.mean_utilization,
        summary.gpu.least_utilization,
        _is_busy_for_nothing(summary),
    )


def _is_busy_for_nothing(summary: JobSummary) -> bool:
    work = summary.gpu.work
    if summary.gpu.stuck_seconds > 0:
        return True
    if work.busy_ratio is None or work.sm_ratio is None or summary.gpu.is_shared:
        return False
    return work.busy_ratio >= BUSY_RATIO and work.sm_ratio < NO_WORK_RATIO


def rate_use(subject: Subject | None, ratio: float | None, job: RatedJob = MANY_JOBS) -> Rating:
    """Rate the used share of a resource.

    A running job may be rated badly, but not as fine: it is not over. A short job is not rated, nor are the cores of a
    job with GPUs, nor anything that no rule is about (a subject of None).
    """
    if subject is None or ratio is None or not math.isfinite(ratio):
        return Rating.UNRATED
    if subject is Subject.TIME:
        return Rating.CRITICAL if job.state == _TIMEOUT else Rating.UNRATED
    if job.run_seconds < MIN_JUDGED_SECONDS:
        return Rating.UNRATED
    rating = _rate(subject, ratio, job)
    return Rating.UNRATED if rating is Rating.FINE and job.state not in ENDED_STATES else rating


def _rate(subject: Subject, ratio: float, job: RatedJob) -> Rating:
    if subject is Subject.MEMORY:
        return _rate_memory(ratio, job)
    if subject is Subject.GPU:
        critical, warning = (_BOUNDS[rule]["min_utilization_ratio"] for rule in ("gpu_idle", "gpu_low"))
        if job.is_busy_for_nothing:
            return Rating.CRITICAL
        is_mean = ratio == job.gpu_ratio and job.least_gpu_ratio is not None
        return _compare(min(ratio, job.least_gpu_ratio or 0.0) if is_mean else ratio, critical, warning)
    if subject is Subject.CPU and not job.gpus:
        return _compare(ratio, CRITICAL_BUSY_RATIO, _BOUNDS["cpu_idle"]["min_busy_ratio"])
    return Rating.UNRATED


def _rate_memory(ratio: float, job: RatedJob) -> Rating:
    """Too little headroom is bad in any job; unused memory only where it was much, and the job has ended."""
    bounds = _BOUNDS["memory_over_requested"]
    if ratio >= _BOUNDS["memory_near_limit"]["min_used_ratio"]:
        return Rating.WARNING
    rating = _compare(ratio, CRITICAL_USED_RATIO, bounds["min_used_ratio"])
    if rating is Rating.FINE:
        return rating
    if job.state not in SETTLED_STATES:
        return Rating.UNRATED
    requested = job.requested_bytes
    is_little = requested is not None and (
        requested <= bounds["free_bytes_per_core"] * (job.cpus or 0)
        or requested * (1 - ratio) < bounds["min_unused_bytes"]
    )
    return Rating.FINE if is_little else rating


def _compare(ratio: float, critical: float, warning: float) -> Rating:
    return Rating.CRITICAL if ratio < critical else Rating.WARNING if ratio < warning else Rating.FINE
