# SPDX-License-Identifier: Apache-2.0
"""Show the usage of one user or account, and the user's digest setting."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Form
from starlette.responses import RedirectResponse, Response

from slurmscope.archive.interface import GroupBy, JobFilter, NotedKind, NotedThing, UseTotal
from slurmscope.archive.job_columns import JobRow
from slurmscope.core.units import DAY_SECONDS
from slurmscope.jobs.render.formatting import format_time
from slurmscope.jobs.viewer import Viewer, ViewerRole
from slurmscope.portal.context import Context, RequestContext, not_found
from slurmscope.portal.queries import parse_cluster, parse_days, parse_format, render_day
from slurmscope.portal.savings import make_group_link
from slurmscope.portal.sign_in.csrf import FIELD
from slurmscope.portal.sign_in.errors import Refused
from slurmscope.portal.staff import make_staff_section
from slurmscope.portal.waste import add_totals
from slurmscope.portal.web.tables import make_table, make_table_response
from slurmscope.reports.page_paths import account_path, user_path
from slurmscope.slurm.states import PENDING

MAX_DAY_BARS = 92
"""Of longer periods, a bar is a week: a bar for each day would be about a pixel wide."""
WEEK_DAYS = 7
_MONDAY = 4
"""The first Monday after 1970-01-01, in days."""


class UsageBar(NamedTuple):
    """A day or a week; heights are 0 to 100. Time that was not measured is separate from idle time."""

    title: str
    jobs: int
    core_seconds: float
    used_core_seconds: float
    allocated_height: float
    measured_height: float
    used_height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageBars:
    """All bars, including those without jobs, and the sums of the period."""

    bars: tuple[UsageBar, ...]
    unit: str
    first_day: str
    last_day: str
    highest_core_seconds: float
    total: UseTotal

    @property
    def gpu_ratio(self) -> float | None:
        measured_seconds = self.total.measured_gpu_seconds
        return self.total.used_gpu_seconds / measured_seconds if measured_seconds else None


def make_usage_bars(totals: Sequence[UseTotal], since_seconds: int, days: int) -> UsageBars:
    """Make the bars of so many days, starting at ``since_seconds``, from the sums of each day."""
    by_day = {total.key: total for total in totals}
    names = [render_day(since_seconds + index * DAY_SECONDS) or "" for index in range(days)]
    length = 1 if days <= MAX_DAY_BARS else WEEK_DAYS
    groups = _split(names, since_seconds, length)
    parts = [(group, [by_day[name] for name in group if name in by_day]) for group in groups]
    highest = max((sum(total.core_seconds for total in found) for _, found in parts), default=0.0)
    return UsageBars(
        bars=tuple(_make_bar(group, found, highest) for group, found in parts),
        unit="day" if length == 1 else "week",
        first_day=names[0],
        last_day=names[-1],
        highest_core_seconds=highest,
        total=add_totals(totals),
    )


def _split(names: Sequence[str], since_seconds: int, length: int) -> Iterator[Sequence[str]]:
    """Yield the days of each bar; weeks begin on Monday, so the first and the last may be shorter."""
    start, end = 0, (_MONDAY - since_seconds // DAY_SECONDS) % length or length
    while start < len(names):
        yield names[start:end]
        start, end = end, end + length


def _make_bar(days: Sequence[str], totals: Sequence[UseTotal], highest: float) -> UsageBar:
    total = add_totals(totals)
    parts = (total.core_seconds, total.measured_core_seconds, total.used_core_seconds)
    heights = (round(100 * seconds / highest, 1) if highest else 0.0 for seconds in parts)
    title = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return UsageBar(title, total.jobs, total.core_seconds, total.used_core_seconds, *heights)


router = APIRouter(include_in_schema=False)

_ROWS = 15
_GROUPS = 100
_RULES = 10
_MAX_TOTALS = 400
"""Groups in a file; more than a year has days."""


class DigestChoice(enum.StrEnum):
    """Choose whether the digest is sent; not a toggle, so that submitting a form twice is harmless."""

    STOP = "stop"
    SEND = "send"


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestForm:
    is_sent: bool
    token: str


@router.get("/users/{name:path}")
def show_user(context: Context, name: str) -> Response:
    """Show a user; other users' pages exist for viewers who have access to at least one of their jobs."""
    wanted = _find_user(context, name)
    context.audit(f"user {name}", owner=name)
    return _show_usage(context, "user.html", name, wanted, GroupBy.ACCOUNT)


@router.post("/users/{name:path}/digest")
def set_digest(
    context: Context, name: str, wish: Annotated[DigestChoice, Form()], token: Annotated[str, Form(alias=FIELD)] = ""
) -> Response:
    """Stop or resume the weekly digest of a user, and return to the user's page."""
    _find_user(context, name)
    _change_digest(context, name, wish, token)
    return RedirectResponse(f"{context.base_path}{user_path(name)}#digest", 303)


@router.get("/accounts/{name:path}")
def show_account(context: Context, name: str) -> Response:
    """Show an account: all of it for its coordinators and staff, for others their own part."""
    wanted = JobFilter(account=name)
    if name not in context.viewer.coordinates and not _has_access(context, wanted):
        raise not_found()
    context.audit(f"account {name}")
    return _show_usage(context, "account.html", name, wanted, GroupBy.USER)


def _find_user(context: RequestContext, name: str) -> JobFilter:
    """Return the filter for a user's jobs; respond 404 for other users without accessible jobs."""
    wanted = JobFilter(user=name)
    if name != context.viewer.name and not _has_access(context, wanted):
        raise not_found()
    return wanted


def _has_access(context: RequestContext, wanted: JobFilter) -> bool:
    name = wanted.user or wanted.account
    return name.isprintable() and 0 < len(name) <= 200 and context.has_jobs(wanted)


def _show_usage(context: RequestContext, template: str, name: str, wanted: JobFilter, by: GroupBy) -> Response:
    """Show recent usage, of all clusters or one; ``by`` groups the table of totals."""
    wanted = replace(wanted, cluster=parse_cluster(context.query))
    days, table_format = parse_days(context.query), parse_format(context.query)
    recent = replace(wanted, since_seconds=context.since(days))

    def list_jobs(*, is_running: bool) -> tuple[JobRow, ...]:
        return context.archive.list_jobs(context.viewer, replace(wanted, is_running=is_running), limit=_ROWS).rows

    if table_format != "html":
        group = GroupBy.DAY if context.query.get("table") == "days" else by
        totals = context.share(("usage", recent, group), lambda: _total(context, recent, group))
        return make_table_response(make_table(UseTotal, totals.value), table_format, f"{name}-{group}")
    sums = context.share(
        ("usage", recent), lambda: {each: _total(context, recent, each) for each in (GroupBy.DAY, by, GroupBy.RULE)}
    )
    return context.page(
        template,
        name=name,
        days=days,
        age_seconds=sums.age_seconds,
        usage=make_usage_bars(sums.value[GroupBy.DAY], context.since(days), days),
        groups=sums.value[by][:_GROUPS],
        rules=sums.value[GroupBy.RULE][:_RULES],
        pending=context.list_jobs(replace(wanted, state=PENDING), limit=_ROWS).rows,
        running=list_jobs(is_running=True),
        ended=list_jobs(is_running=False),
        wanted=wanted,
        address=context.base_path + (user_path(name) if wanted.user else account_path(name)),
        digest=_make_digest_form(context, name) if wanted.user else None,
        staff=make_staff_section(context, NotedThing(NotedKind.USER, "", name)) if wanted.user else None,
        group_link=make_group_link(context, recent, by),
        rule_link=context.make_rule_link(recent),
        sees_all=_sees_all(context, wanted),
    )


def _total(context: RequestContext, wanted: JobFilter, by: GroupBy) -> tuple[UseTotal, ...]:
    return context.archive.total(context.viewer, wanted, by, limit=_MAX_TOTALS)


def _sees_all(context: RequestContext, wanted: JobFilter) -> bool:
    """Return whether the viewer may see all jobs of an account, in every shown cluster."""
    clusters = (wanted.cluster,) if wanted.cluster else context.services.clusters() or ("",)
    viewer = context.viewer
    return viewer.is_staff or all(viewer.coordinates_account(wanted.account, name) for name in clusters)


def _make_digest_form(context: RequestContext, name: str) -> DigestForm | None:
    """Make the form on a user's page; None for viewers who may not change the setting."""
    if not _may_change_digest(context.viewer, name):
        return None
    is_sent = not context.services.opt_outs.is_opted_out(name)
    return DigestForm(is_sent=is_sent, token=context.services.csrf.issue(context.viewer))


def _change_digest(context: RequestContext, name: str, choice: DigestChoice, token: str) -> None:
    """Apply the form, or reject it; changes by admins are audited first."""
    if not _may_change_digest(context.viewer, name):
        raise Refused("Only this user and the administrators of the portal can change this setting.")
    context.services.csrf.check(context.viewer, token, context.request.scope)
    # With the time: repeated access to the same subject is recorded once, but every change must be recorded.
    context.audit(f"digest of {name}: {choice}, {format_time(context.services.clock())}", owner=name)
    context.services.opt_outs.set_opt_out(name, is_opted_out=choice is DigestChoice.STOP)


def _may_change_digest(viewer: Viewer, name: str) -> bool:
    return name == viewer.name or viewer.role is ViewerRole.ADMIN
