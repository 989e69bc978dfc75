# SPDX-License-Identifier: Apache-2.0
"""Show staff where resources were lost, and to which cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import NamedTuple

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from slurmscope.archive.interface import GroupBy, JobFilter, TotalOrder, UseTotal
from slurmscope.jobs.findings import FAILED_STATES, TIMEOUT_STATES, LossCause, find_state_cause
from slurmscope.portal.context import Context, RequestContext
from slurmscope.portal.queries import BadQuery, parse_cluster, parse_days, parse_format
from slurmscope.portal.savings import make_group_link
from slurmscope.portal.web.tables import make_table, make_table_response


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
    """What was lost to one cause; ``jobs`` is None where the jobs are not counted, None hours where not known."""

    cause: LossCause
    jobs: int | None
    core_seconds: float
    gpu_seconds: float | None
    states: tuple[str, ...]


def sum_causes(by_state: Iterable[UseTotal]) -> tuple[CauseTotal, ...]:
    """Sum up totals by state, largest loss of core time first."""
    totals = tuple(by_state)
    total = add_totals(totals)
    jobs: Counter[LossCause | None] = Counter()
    for each in totals:
        jobs[find_state_cause(each.key)] += each.jobs
    failed, timeout = LossCause.FAILED, LossCause.TIMEOUT
    failures, timeouts = ({each.key for each in totals} & set(states) for states in (FAILED_STATES, TIMEOUT_STATES))
    causes = (
        (failed, jobs[failed], total.failed_core_seconds, total.failed_gpu_seconds, tuple(sorted(failures))),
        (timeout, jobs[timeout], total.timeout_core_seconds, total.timeout_gpu_seconds, tuple(sorted(timeouts))),
        (LossCause.IDLE, None, total.unused_core_seconds, total.unused_gpu_seconds, ()),
        (LossCause.MEMORY, None, total.blocked_core_seconds, None, ()),
    )
    return tuple(sorted((CauseTotal(*cause) for cause in causes), key=lambda cause: -cause.core_seconds))


def add_totals(totals: Iterable[UseTotal]) -> UseTotal:
    found = tuple(totals)
    names = [each.name for each in fields(UseTotal) if each.name != "key"]
    return UseTotal(key="", **{name: sum(getattr(total, name) for total in found) for name in names})


router = APIRouter(include_in_schema=False)

STAFF_ONLY = "Only support staff and administrators have access to this page."
_GROUPS = (GroupBy.USER, GroupBy.ACCOUNT, GroupBy.RULE, GroupBy.PARTITION)
_ROWS = 20
_STATES = 100


@router.get("/waste")
def show_waste(context: Context) -> Response:
    """Show lost hours by cause, and by user, account, finding and partition."""
    require_staff(context)
    days, table_format = parse_days(context.query), parse_format(context.query)
    order = _parse_order(context.query.get("order", ""))
    context.audit("waste of all users")
    recent = JobFilter(cluster=parse_cluster(context.query), since_seconds=context.since(days))
    if table_format != "html":
        by = _parse_group(context.query.get("table", "user"))
        totals = context.share(
            ("waste", recent, by, order),
            lambda: context.archive.total(context.viewer, recent, by, limit=1000, order=order),
        )
        return make_table_response(make_table(UseTotal, totals.value), table_format, f"waste-{by}")
    groups = (GroupBy.CLUSTER, *_GROUPS) if len(context.services.clusters()) > 1 else _GROUPS
    sums = context.share(("waste", recent, order), lambda: _sum_up(context, recent, order, groups))
    return context.page(
        "waste.html",
        days=days,
        groups=[
            (by, sums.value[by], make_group_link(context, recent, by)) for by in sums.value if by is not GroupBy.STATE
        ],
        causes=sum_causes(sums.value[GroupBy.STATE]),
        age_seconds=sums.age_seconds,
        columns=LOSS_COLUMNS,
        order=order,
        recent=recent,
    )


def _sum_up(
    context: RequestContext, recent: JobFilter, order: TotalOrder, groups: Iterable[GroupBy]
) -> Mapping[GroupBy, tuple[UseTotal, ...]]:
    def total(by: GroupBy, limit: int) -> tuple[UseTotal, ...]:
        return context.archive.total(context.viewer, recent, by, limit=limit, order=order)

    return {**{by: total(by, _ROWS) for by in groups}, GroupBy.STATE: total(GroupBy.STATE, _STATES)}


def require_staff(context: RequestContext) -> None:
    if not context.viewer.is_staff:
        raise HTTPException(403, STAFF_ONLY)


def _parse_group(text: str) -> GroupBy:
    if text not in {GroupBy.CLUSTER, *_GROUPS}:
        raise BadQuery("The table must be cluster, user, account, rule or partition.")
    return GroupBy(text)


def _parse_order(text: str) -> TotalOrder:
    if text and text not in set(TotalOrder):
        raise BadQuery(f"The order must be one of {', '.join(TotalOrder)}.")
    return TotalOrder(text) if text else TotalOrder.LOST
