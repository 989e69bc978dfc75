# SPDX-License-Identifier: Apache-2.0
"""Show where allocated hours went: each of them to one outcome, so that these add up to the allocation."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import Response

from slurmscope.archive.interface import GroupBy, JobFilter, UseTotal
from slurmscope.portal.context import Context, RequestContext
from slurmscope.portal.queries import parse_days, parse_filter, parse_format
from slurmscope.portal.web.slow_results import SharedResult
from slurmscope.portal.web.tables import make_table, make_table_response

_STATES = 100


class TimeUse(enum.StrEnum):
    """What became of an allocated hour."""

    PRODUCTIVE = "productive"
    STARTUP = "startup"
    TAIL = "tail"
    IDLE = "idle"
    UNMEASURED = "not_measured"
    FAILED = "failed"
    OUT_OF_MEMORY = "out_of_memory"
    TIME_LIMIT = "time_limit"
    NODE = "node_failed"
    PREEMPTED = "preempted"
    REQUEUED = "requeued"

    @property
    def label(self) -> str:
        return _LABELS[self]


_LABELS = {
    TimeUse.PRODUCTIVE: "Used by jobs that did not fail",
    TimeUse.STARTUP: "Idle before the work began",
    TimeUse.TAIL: "Idle after the last work",
    TimeUse.IDLE: "Idle in between",
    TimeUse.UNMEASURED: "Not measured, of jobs that did not fail",
    TimeUse.FAILED: "Lost: the program failed",
    TimeUse.OUT_OF_MEMORY: "Lost: out of memory",
    TimeUse.TIME_LIMIT: "Lost: time limit",
    TimeUse.NODE: "Lost: a node failed",
    TimeUse.PREEMPTED: "Lost: preempted",
    TimeUse.REQUEUED: "Lost: requeued",
}
_OF_STATE = {
    "FAILED": TimeUse.FAILED,
    "OUT_OF_MEMORY": TimeUse.OUT_OF_MEMORY,
    "TIMEOUT": TimeUse.TIME_LIMIT,
    "DEADLINE": TimeUse.TIME_LIMIT,
    "NODE_FAIL": TimeUse.NODE,
    "BOOT_FAIL": TimeUse.NODE,
    "PREEMPTED": TimeUse.PREEMPTED,
    "REQUEUED": TimeUse.REQUEUED,
}
"""States in which all time of a job is lost, whatever it used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeTotal:
    """Hours of one outcome, with the states of the jobs that they are of, where these have no other outcome."""

    outcome: TimeUse
    core_seconds: float = 0.0
    gpu_seconds: float = 0.0
    jobs: int | None = None
    states: tuple[str, ...] = ()


def split_hours(by_state: Iterable[UseTotal]) -> tuple[OutcomeTotal, ...]:
    """Split the allocated time of all states; what is not lost was used, idle or not measured."""
    totals = tuple(by_state)
    kept = [total for total in totals if total.key not in _OF_STATE]
    found = [
        _sum_lost(outcome, [total for total in totals if _OF_STATE.get(total.key) is outcome])
        for outcome in dict.fromkeys(_OF_STATE.values())
    ]
    rest = (
        OutcomeTotal(
            outcome=TimeUse.PRODUCTIVE,
            core_seconds=sum(total.used_core_seconds for total in kept),
            gpu_seconds=sum(total.used_gpu_seconds for total in kept),
        ),
        OutcomeTotal(
            outcome=TimeUse.STARTUP,
            core_seconds=sum(total.startup_core_seconds for total in kept),
            gpu_seconds=sum(total.startup_gpu_seconds for total in kept),
        ),
        OutcomeTotal(
            outcome=TimeUse.TAIL,
            core_seconds=sum(total.tail_core_seconds for total in kept),
            gpu_seconds=sum(total.tail_gpu_seconds for total in kept),
        ),
        OutcomeTotal(
            outcome=TimeUse.IDLE,
            core_seconds=sum(map(_idle_core_seconds, kept)),
            gpu_seconds=sum(map(_idle_gpu_seconds, kept)),
        ),
        OutcomeTotal(
            outcome=TimeUse.UNMEASURED,
            core_seconds=sum(total.core_seconds - total.measured_core_seconds for total in kept),
            gpu_seconds=sum(total.gpu_seconds - total.measured_gpu_seconds for total in kept),
        ),
    )
    lost = sorted((total for total in found if total.jobs), key=lambda total: -total.core_seconds)
    return (*rest, *lost)


def _idle_core_seconds(total: UseTotal) -> float:
    """Return the idle time between the first and the last work of jobs, or all of it where these are not known."""
    edges = total.startup_core_seconds + total.tail_core_seconds
    return total.measured_core_seconds - total.used_core_seconds - edges


def _idle_gpu_seconds(total: UseTotal) -> float:
    edges = total.startup_gpu_seconds + total.tail_gpu_seconds
    return total.measured_gpu_seconds - total.used_gpu_seconds - edges


def _sum_lost(outcome: TimeUse, totals: list[UseTotal]) -> OutcomeTotal:
    return OutcomeTotal(
        outcome=outcome,
        core_seconds=sum(total.core_seconds for total in totals),
        gpu_seconds=sum(total.gpu_seconds for total in totals),
        jobs=sum(total.jobs for total in totals),
        states=tuple(sorted(total.key for total in totals)),
    )


GOODPUT_DAYS = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """The productive share of allocated time, of cores and of GPUs; None where none was allocated and measured."""

    core_ratio: float | None
    gpu_ratio: float | None
    days: int = GOODPUT_DAYS


def find_goodput(context: RequestContext, cluster: str) -> Goodput:
    """Return the goodput of the jobs of a cluster that the viewer may see."""
    wanted = JobFilter(cluster=cluster, since_seconds=context.since(GOODPUT_DAYS))
    return make_goodput(split_hours(_total(context, wanted).value))


def make_goodput(outcomes: Iterable[OutcomeTotal]) -> Goodput:
    """Compare the productive time with all time of which it is known what became of it."""
    known = [total for total in outcomes if total.outcome is not TimeUse.UNMEASURED]
    cores, gpus = (sum(getattr(total, name) for total in known) for name in ("core_seconds", "gpu_seconds"))
    productive = next(total for total in known if total.outcome is TimeUse.PRODUCTIVE)
    return Goodput(
        core_ratio=productive.core_seconds / cores if cores else None,
        gpu_ratio=productive.gpu_seconds / gpus if gpus else None,
    )


def _total(context: RequestContext, wanted: JobFilter) -> SharedResult[tuple[UseTotal, ...]]:
    return context.share(
        ("hours", wanted), lambda: context.archive.total(context.viewer, wanted, GroupBy.STATE, limit=_STATES)
    )


router = APIRouter(include_in_schema=False)


@router.get("/hours")
def show_hours(context: Context) -> Response:
    """Show where the hours of the jobs went that the viewer may see, of one user, account or partition if wanted."""
    days, table_format, given = parse_days(context.query), parse_format(context.query), parse_filter(context.query)
    wanted = JobFilter(
        cluster=given.cluster,
        user=given.user,
        account=given.account,
        partition=given.partition,
        since_seconds=context.since(days),
    )
    if context.viewer.is_staff:
        context.audit("hours of all users" if not wanted.user else f"hours of {wanted.user}", owner=wanted.user)
    sums = _total(context, wanted)
    outcomes = split_hours(sums.value)
    if table_format != "html":
        return make_table_response(make_table(OutcomeTotal, outcomes), table_format, "hours")
    return context.page(
        "hours.html",
        days=days,
        wanted=wanted,
        outcomes=outcomes,
        core_seconds=sum(outcome.core_seconds for outcome in outcomes),
        gpu_seconds=sum(outcome.gpu_seconds for outcome in outcomes),
        age_seconds=sums.age_seconds,
    )
