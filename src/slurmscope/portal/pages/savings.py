# SPDX-License-Identifier: Apache-2.0
"""Show whether advice was followed, and what that saved: to staff for all users, to others for themselves."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from slurmscope.model.advice import AdviceGroup, AdviceTotal
from slurmscope.model.archive import GroupBy, JobFilter
from slurmscope.portal.pages.context import Context, RequestContext
from slurmscope.portal.pages.group_links import make_group_link
from slurmscope.portal.views.queries import parse_cluster, parse_days, parse_format
from slurmscope.portal.views.query_errors import BadQuery
from slurmscope.portal.web.tables import make_advice_table, make_table_response

router = APIRouter(include_in_schema=False)

SAVINGS_DAYS = 365
_FILE_ROWS = 1000
_ROWS = {AdviceGroup.RULE: _FILE_ROWS, AdviceGroup.USER: 50, AdviceGroup.MONTH: 50}


@router.get("/savings")
def show_savings(context: Context) -> Response:
    """Show outcomes of advice by finding, user and month."""
    days, table_format = parse_days(context.query, SAVINGS_DAYS), parse_format(context.query)
    cluster = parse_cluster(context.query)
    context.audit("savings of all users")
    if table_format != "html":
        by = _parse_group(context.query.get("table", "rule"))
        totals = total_savings(context, by, days, cluster)
        return make_table_response(make_advice_table(totals), table_format, f"savings-{by}")
    shows_users = context.viewer.is_staff or bool(context.viewer.coordinates)
    sums = context.share(
        ("savings", days, cluster), lambda: [_total(context, by, days, cluster, rows) for by, rows in _ROWS.items()]
    )
    rules, users, months = sums.value
    return context.page(
        "savings.html",
        days=days,
        cluster=cluster,
        rules=rules,
        users=users if shows_users else (),
        months=months,
        user_link=make_group_link(context, JobFilter(cluster=cluster), GroupBy.USER),
        shows_users=shows_users,
        age_seconds=sums.age_seconds,
    )


def total_savings(context: RequestContext, by: AdviceGroup, days: int, cluster: str = "") -> tuple[AdviceTotal, ...]:
    """Return the totals of all groups, of all clusters or one, summed up once for concurrent requests."""
    key = ("savings", days, by, cluster)
    return context.share(key, lambda: _total(context, by, days, cluster, _FILE_ROWS)).value


def _total(context: RequestContext, by: AdviceGroup, days: int, cluster: str, limit: int) -> tuple[AdviceTotal, ...]:
    return context.backend.jobs.advice.total_outcomes(
        context.viewer, by, since_seconds=context.since(days), cluster=cluster, limit=limit
    )


def _parse_group(text: str) -> AdviceGroup:
    if text not in set(AdviceGroup):
        raise BadQuery("The table must be rule, user or month.")
    return AdviceGroup(text)
