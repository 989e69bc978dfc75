# SPDX-License-Identifier: Apache-2.0
"""Show staff where resources were lost, and to which cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import NamedTuple
from urllib.parse import quote, urlencode

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from slurmscope.archive.interface import GroupBy, JobFilter, Note, TotalOrder, UseTotal
from slurmscope.archive.waste import MainCause, describe_lost, describe_rest, find_main_cause
from slurmscope.jobs.findings import FAILED_STATES, TIMEOUT_STATES, LossCause, find_state_cause
from slurmscope.portal.context import Context, RequestContext
from slurmscope.portal.queries import BadQuery, parse_cluster, parse_days, parse_format, render_cause
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
    LossColumn("Lost", TotalOrder.LOST, "Lost core-hours: the sum of the next three columns"),
    LossColumn("Failed", TotalOrder.FAILED, "All core-hours of jobs that failed"),
    LossColumn("Time limit", TotalOrder.TIMEOUT, "All core-hours of jobs that reached their time limit"),
    LossColumn("Idle", TotalOrder.UNUSED, "Measured idle core-hours of all other jobs"),
    LossColumn(
        "Blocked",
        TotalOrder.BLOCKED,
        "Not part of it: core-hours of other cores, blocked by memory that was not needed",
    ),
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
_ROWS = 10
_STATES = 100
_CONTACTED = "Contacted about waste"


class Contact(NamedTuple):
    """What staff may write to a user about waste, and when they last did; ``mail`` opens it in a mail program."""

    last: Note | None
    message: str
    mail: str
    note: str
    token: str


class Waster(NamedTuple):
    """A user who lost much, and what most of it was lost to."""

    total: UseTotal
    cause: MainCause | None
    contact: Contact | None = None

    def render_query(self, recent: JobFilter) -> str:
        """Return the query for the jobs that lost most to the main cause."""
        return render_cause(self.cause.cause, recent, self.total.key, self.cause.rule_id) if self.cause else ""


def find_wasters(context: RequestContext, totals: Iterable[UseTotal], recent: JobFilter) -> tuple[Waster, ...]:
    """Return users with the causes of their losses, which are read once for concurrent requests."""
    found = tuple(totals)

    def find_cause(total: UseTotal) -> MainCause | None:
        wanted = replace(recent, user=total.key)
        by_rule = context.archive.total(context.viewer, wanted, GroupBy.RULE) if total.key else ()
        return find_main_cause(total, by_rule)

    causes = context.share(("main causes", recent, found), lambda: [find_cause(total) for total in found])
    return tuple(map(Waster, found, causes.value))


def add_contacts(
    context: RequestContext, wasters: Iterable[Waster], recent: JobFilter, days: int
) -> tuple[Waster, ...]:
    """Add what to write to each of these users."""
    found = tuple(wasters)
    last = context.services.notes.last_notes(context.viewer, [waster.total.key for waster in found], _CONTACTED)
    token = context.services.csrf.issue(context.viewer)
    return tuple(
        waster._replace(contact=_make_contact(context, waster, recent, days, last.get(waster.total.key), token))
        for waster in found
    )


def _make_contact(
    context: RequestContext, waster: Waster, recent: JobFilter, days: int, last: Note | None, token: str
) -> Contact:
    total, cause = waster.total, waster.cause
    lines = [
        f"Hello {total.key},",
        "",
        f"in the last {days} days, this is what your jobs did with what they were allocated:",
        "",
        *(f"- {sentence}" for sentence in (*describe_lost(total), *describe_rest(total))),
        "",
        *(_describe_cause(cause, f"{context.public_url}/jobs{waster.render_query(recent)}") if cause else ()),
        "The page of each job says what to change in its script. If you would like help, answer this message.",
    ]
    message = "\n".join(lines)
    query = urlencode({"subject": "Unused resources of your jobs", "body": message}, quote_via=quote)
    note = f"{_CONTACTED}: {cause.label if cause else 'unused resources'}, last {days} days."
    return Contact(last, message, f"mailto:{quote(total.key, safe='@')}?{query}", note, token)


def _describe_cause(cause: MainCause, jobs: str) -> Iterator[str]:
    """Yield what most was lost to, what helps against it, and where these jobs are listed."""
    verb = "were blocked" if cause.cause is LossCause.MEMORY else "were lost"
    yield f"Main cause: {cause.label} ({cause.hours} {verb})."
    if cause.rule:
        yield cause.rule.advice
    yield from ("These jobs are listed here:", jobs, "")


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
    total = add_totals(sums.value[GroupBy.STATE])
    worst = sums.value[GroupBy.USER]
    if order is not TotalOrder.LOST:
        worst = context.archive.total(context.viewer, recent, GroupBy.USER, limit=_ROWS, order=TotalOrder.LOST)
    return context.page(
        "waste.html",
        days=days,
        total=total,
        worst=add_contacts(context, find_wasters(context, worst, recent), recent, days),
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
