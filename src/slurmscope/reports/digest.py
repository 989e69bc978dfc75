# SPDX-License-Identifier: Apache-2.0
"""Build the digest of a user or an account: allocated and used hours, the trend, what to change first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurmscope.model.archive import JobRow, UseTotal
from slurmscope.model.waste import LossCause

MAX_JOBS = 10
MAX_FIXES = 3

GPU_WEIGHT = 16.0
"""Idle cores that one idle GPU counts as when jobs are ranked."""

_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestSums:
    """Hold totals of this period and the one before, in any grouping without overlap.

    ``rules`` are totals by rule, ``short`` those of jobs too short to judge, ``lost`` those of jobs that failed or
    reached their time limit, by cause. The ``jobs`` that lost the most are shown.
    """

    totals: Sequence[UseTotal]
    before: Sequence[UseTotal] = ()
    rules: Sequence[UseTotal] = ()
    short: Sequence[UseTotal] = ()
    lost: Sequence[UseTotal] = ()
    jobs: Sequence[JobRow] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Hold hours of one resource; ``used`` is out of the ``measured`` part of the ``allocated`` hours."""

    allocated_hours: float = 0.0
    measured_hours: float = 0.0
    used_hours: float = 0.0

    @property
    def ratio(self) -> float | None:
        """Return used over measured; None when nothing was measured."""
        return self.used_hours / self.measured_hours if self.measured_hours else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """Hold one thing to change: how many jobs it would help, and how many hours these lost."""

    rule: str
    title: str
    jobs: int
    lost_core_hours: float
    lost_gpu_hours: float

    @property
    def weight(self) -> float:
        """Return the lost hours to rank by."""
        return self.lost_core_hours + GPU_WEIGHT * self.lost_gpu_hours


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Hold how many jobs failed, or reached their time limit, and all of their hours."""

    cause: LossCause
    jobs: int
    core_hours: float
    gpu_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """Hold the contents of one digest; ``subject`` is a user, or an account when ``is_account``."""

    subject: str
    is_account: bool
    since_seconds: int
    until_seconds: int
    jobs: int
    jobs_with_findings: int
    cores: Use
    gpus: Use
    cores_before: Use
    gpus_before: Use
    short_jobs: int = 0
    """Jobs without findings that were too short to judge."""
    short_cores: Use = Use()
    short_gpus: Use = Use()
    losses: tuple[Loss, ...] = ()
    worst_jobs: tuple[JobRow, ...] = ()
    fixes: tuple[Fix, ...] = ()
    opt_out: str = ""
    """How to unsubscribe: the address of a page, or a sentence."""


def make_digest(
    subject: str,
    period: tuple[int, int],
    sums: DigestSums,
    *,
    rule_titles: Mapping[str, str] | None = None,
    is_account: bool = False,
) -> Digest:
    """Build a digest; a rule without a title is shown by its id."""
    titles = rule_titles or {}
    wasteful = sorted((row for row in sums.jobs if _lost_hours(row) > 0), key=_lost_hours, reverse=True)
    fixes = [
        Fix(
            rule=rule.key,
            title=titles.get(rule.key, rule.key.replace("_", " ")),
            jobs=rule.jobs,
            lost_core_hours=rule.lost_core_seconds / _HOUR,
            lost_gpu_hours=rule.lost_gpu_seconds / _HOUR,
        )
        for rule in sums.rules
    ]
    return Digest(
        subject=subject,
        is_account=is_account,
        since_seconds=period[0],
        until_seconds=period[1],
        jobs=sum(total.jobs for total in sums.totals),
        jobs_with_findings=sum(total.jobs_with_findings for total in sums.totals),
        cores=_sum_cores(sums.totals),
        gpus=_sum_gpus(sums.totals),
        cores_before=_sum_cores(sums.before),
        gpus_before=_sum_gpus(sums.before),
        short_jobs=sum(total.jobs for total in sums.short),
        short_cores=_sum_cores(sums.short),
        short_gpus=_sum_gpus(sums.short),
        losses=tuple(_make_loss(total) for total in sums.lost if total.jobs),
        worst_jobs=tuple(wasteful[:MAX_JOBS]),
        fixes=tuple(sorted(fixes, key=lambda fix: fix.weight, reverse=True)[:MAX_FIXES]),
    )


def _make_loss(total: UseTotal) -> Loss:
    return Loss(
        cause=LossCause(total.key),
        jobs=total.jobs,
        core_hours=total.core_seconds / _HOUR,
        gpu_hours=total.gpu_seconds / _HOUR,
    )


def _lost_hours(row: JobRow) -> float:
    """Weigh lost cores and GPUs: an idle GPU costs about as much as many idle cores."""
    return ((row.lost_core_seconds or 0.0) + GPU_WEIGHT * (row.lost_gpu_seconds or 0.0)) / _HOUR


def _sum_cores(totals: Sequence[UseTotal]) -> Use:
    return Use(
        allocated_hours=sum(total.core_seconds for total in totals) / _HOUR,
        measured_hours=sum(total.measured_core_seconds for total in totals) / _HOUR,
        used_hours=sum(total.used_core_seconds for total in totals) / _HOUR,
    )


def _sum_gpus(totals: Sequence[UseTotal]) -> Use:
    return Use(
        allocated_hours=sum(total.gpu_seconds for total in totals) / _HOUR,
        measured_hours=sum(total.measured_gpu_seconds for total in totals) / _HOUR,
        used_hours=sum(total.used_gpu_seconds for total in totals) / _HOUR,
    )
