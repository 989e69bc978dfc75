# SPDX-License-Identifier: Apache-2.0
"""Add up, in one pass over ended jobs, what the letters to users and accounts say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from slurmscope.model.archive import JobRow, UseTotal
from slurmscope.reports.digest import GPU_WEIGHT, MAX_JOBS, DigestSums


class DigestSubject(NamedTuple):
    """Name the user or account that a letter is about."""

    name: str
    is_account: bool


def add_up(rows: Iterable[JobRow], since_seconds: int) -> Mapping[DigestSubject, PeriodSums]:
    """Sum up by user and by account; jobs that ended before ``since_seconds`` are those of the period before."""
    letters: dict[DigestSubject, PeriodSums] = defaultdict(PeriodSums)
    for row in rows:
        is_before = (row.end_seconds or 0) < since_seconds
        for about in (DigestSubject(row.user, is_account=False), DigestSubject(row.account, is_account=True)):
            if about.name:
                letters[about].add(row, is_before=is_before)
    return dict(letters)


@dataclass(slots=True)
class _Sum:
    jobs: int = 0
    jobs_with_findings: int = 0
    core_seconds: float = 0.0
    measured_core_seconds: float = 0.0
    used_core_seconds: float = 0.0
    gpu_seconds: float = 0.0
    measured_gpu_seconds: float = 0.0
    used_gpu_seconds: float = 0.0

    def add(self, row: JobRow) -> None:
        gpu_seconds = row.gpus * row.run_seconds
        self.jobs += 1
        self.jobs_with_findings += row.worst is not None
        self.core_seconds += row.core_seconds
        self.gpu_seconds += gpu_seconds
        # What was not measured has no waste; it must not count as unused, nor as used.
        if row.wasted_core_seconds is not None:
            self.measured_core_seconds += row.core_seconds
            self.used_core_seconds += row.core_seconds - row.wasted_core_seconds
        if row.wasted_gpu_seconds is not None:
            self.measured_gpu_seconds += gpu_seconds
            self.used_gpu_seconds += gpu_seconds - row.wasted_gpu_seconds

    def as_total(self, key: str) -> UseTotal:
        return UseTotal(
            key=key,
            jobs=self.jobs,
            core_seconds=self.core_seconds,
            measured_core_seconds=self.measured_core_seconds,
            used_core_seconds=self.used_core_seconds,
            gpu_seconds=self.gpu_seconds,
            measured_gpu_seconds=self.measured_gpu_seconds,
            used_gpu_seconds=self.used_gpu_seconds,
            jobs_with_findings=self.jobs_with_findings,
        )


@dataclass(slots=True)
class PeriodSums:
    """Gather the jobs of one user or account; of single jobs only the worst are kept."""

    now: _Sum = field(default_factory=_Sum)
    before: _Sum = field(default_factory=_Sum)
    rules: dict[str, _Sum] = field(default_factory=lambda: defaultdict(_Sum))
    worst: list[JobRow] = field(default_factory=list)

    def add(self, row: JobRow, *, is_before: bool) -> None:
        """Count one job."""
        if is_before:
            self.before.add(row)
            return
        self.now.add(row)
        for rule in row.rules:
            self.rules[rule].add(row)
        self.worst.append(row)
        if len(self.worst) > 10 * MAX_JOBS:
            self.worst = self._worst()

    def sums(self) -> DigestSums:
        """Return what a letter is made of."""
        return DigestSums(
            totals=(self.now.as_total("now"),),
            before=(self.before.as_total("before"),),
            rules=tuple(total.as_total(rule) for rule, total in self.rules.items()),
            jobs=tuple(self._worst()),
        )

    def _worst(self) -> list[JobRow]:
        return sorted(self.worst, key=_weight, reverse=True)[:MAX_JOBS]


def _weight(row: JobRow) -> float:
    return (row.wasted_core_seconds or 0.0) + GPU_WEIGHT * (row.wasted_gpu_seconds or 0.0)
