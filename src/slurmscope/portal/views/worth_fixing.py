# SPDX-License-Identifier: Apache-2.0
"""Choose the few findings of a person's recent jobs that are most worth fixing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurmscope.figures import format_count, format_some
from slurmscope.model.archive import JobRow, UseTotal
from slurmscope.model.job_states import ENDED_STATES

MAX_FIXES = 3
MAX_RULES = 10
"""Rules among which the fixes are chosen."""
GPU_CORES = 10.0
"""An hour of a GPU counts as this many core-hours."""

_LOST_STATES = ENDED_STATES - {"COMPLETED", "CANCELLED"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """Hold one finding that several jobs have in common, and the newest of these jobs."""

    rule: str
    jobs: int
    newest: JobRow
    sentence: str


def choose_fixes(totals: Sequence[UseTotal], newest: Mapping[str, JobRow], *, days: int) -> tuple[Fix, ...]:
    """Choose the rules whose jobs lost most; all time of jobs that did not complete counts as lost.

    ``newest`` is the newest job of each rule, and shows how such jobs end.
    """
    known = [(total, newest[total.key]) for total in totals if total.key in newest]
    known.sort(key=lambda pair: _lost_seconds(*pair), reverse=True)
    return tuple(
        Fix(rule=total.key, jobs=total.jobs, newest=row, sentence=_describe(total, row, days))
        for total, row in known[:MAX_FIXES]
    )


def _lost_seconds(total: UseTotal, row: JobRow) -> float:
    if row.state in _LOST_STATES:
        return total.core_seconds + GPU_CORES * total.gpu_seconds
    return (total.idle_core_seconds or 0.0) + GPU_CORES * _idle_gpu_seconds(total)


def _idle_gpu_seconds(total: UseTotal) -> float:
    return max(0.0, total.measured_gpu_seconds - total.used_gpu_seconds)


def _describe(total: UseTotal, row: JobRow, days: int) -> str:
    jobs = f"{format_some(total.jobs, 'job')} in {days} days"
    if row.state in _LOST_STATES:
        return f"{jobs}; they held {_hours(total.core_seconds, 'core')}, and the newest did not complete."
    idle = [
        _hours(seconds, unit)
        for seconds, unit in ((total.idle_core_seconds, "core"), (_idle_gpu_seconds(total), "GPU"))
        if seconds
    ]
    return f"{jobs}; {' and '.join(idle)} idle." if idle else f"{jobs}."


def _hours(seconds: float, unit: str) -> str:
    return f"{format_count(round(seconds / 3600, 1))} {unit}-hours"
