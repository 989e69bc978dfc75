# SPDX-License-Identifier: Apache-2.0
"""Show staff where resources were lost, and to which cause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from slurmscope.model.archive import GroupBy, JobFilter, TotalOrder, UseTotal
from slurmscope.portal.pages.context import Context, RequestContext
from slurmscope.portal.pages.group_links import make_group_link
from slurmscope.portal.views.losses import LOSS_COLUMNS, sum_causes
from slurmscope.portal.views.queries import parse_cluster, parse_days, parse_format
from slurmscope.portal.views.query_errors import BadQuery
from slurmscope.portal.web.tables import make_table_response, make_total_table

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
        return make_table_response(make_total_table(totals.value), table_format, f"waste-{by}")
    groups = (GroupBy.CLUSTER, *_GROUPS) if len(context.backend.jobs.clusters()) > 1 else _GROUPS
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
    """Respond 403 to viewers who are not staff."""
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
