# SPDX-License-Identifier: Apache-2.0
"""Show whether advice was followed, and what that saved: to staff for all users, to others for themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from fastapi import APIRouter
from starlette.responses import Response

from slurmscope.archive.interface import GroupBy, JobFilter
from slurmscope.core.units import GIB, HOUR_SECONDS, format_bytes, format_count, format_seconds
from slurmscope.jobs.advice import AdviceGroup, AdviceOutcome, AdviceTotal, ComparedRun, Savings
from slurmscope.jobs.curves import sum_known
from slurmscope.portal.context import Context, RequestContext
from slurmscope.portal.queries import BadQuery, parse_cluster, parse_days, parse_format, render_query
from slurmscope.portal.web.tables import make_table, make_table_response
from slurmscope.reports.page_paths import account_path, user_path


class BeforeAfter(NamedTuple):
    """One row of the comparison."""

    label: str
    before: str
    after: str

    @property
    def differs(self) -> bool:
        return self.before != self.after


class RunComparison(NamedTuple):
    """An advised run and a later one, with the rules whose advice was followed and was not."""

    earlier: ComparedRun
    later: ComparedRun
    followed: tuple[str, ...]
    ignored: tuple[str, ...]
    saved: str
    rows: tuple[BeforeAfter, ...]


def compare_runs(outcomes: Iterable[AdviceOutcome]) -> tuple[RunComparison, ...]:
    """Return one comparison for each pair of runs with advice that can be judged."""
    pairs: dict[tuple[ComparedRun, ComparedRun], list[AdviceOutcome]] = {}
    for outcome in outcomes:
        if outcome.is_followed is not None:
            pairs.setdefault((outcome.earlier, outcome.later), []).append(outcome)
    return tuple(_compare(earlier, later, found) for (earlier, later), found in pairs.items())


def describe_savings(savings: Iterable[Savings]) -> str:
    """Return what was saved, such as ``12 core-hours and 40 GiB-hours of memory``; empty where nothing is known."""
    found = tuple(savings)
    amounts = (
        (sum_known(each.core_seconds for each in found), HOUR_SECONDS, "core-hours"),
        (sum_known(each.gpu_seconds for each in found), HOUR_SECONDS, "GPU-hours"),
        (sum_known(each.memory_byte_seconds for each in found), HOUR_SECONDS * GIB, "GiB-hours of memory"),
    )
    texts = [f"{format_count(round(amount / unit, 2))} {name}" for amount, unit, name in amounts if amount]
    return " and ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else "".join(texts)


def describe_total(totals: Iterable[AdviceTotal]) -> str:
    """Return what all runs saved, as ``describe_savings`` does for one."""
    return describe_savings(
        Savings(
            core_seconds=total.saved_core_seconds,
            gpu_seconds=total.saved_gpu_seconds,
            memory_byte_seconds=total.saved_memory_byte_seconds,
        )
        for total in totals
    )


def _compare(earlier: ComparedRun, later: ComparedRun, found: list[AdviceOutcome]) -> RunComparison:
    return RunComparison(
        earlier=earlier,
        later=later,
        followed=tuple(outcome.rule for outcome in found if outcome.is_followed),
        ignored=tuple(outcome.rule for outcome in found if not outcome.is_followed),
        saved=describe_savings(outcome.savings for outcome in found),
        rows=tuple(BeforeAfter(label, read(earlier), read(later)) for label, read in _ROWS),
    )


_ROWS: tuple[tuple[str, Callable[[ComparedRun], str]], ...] = (
    ("State", lambda run: run.state.replace("_", " ").lower()),
    ("Nodes", lambda run: format_count(run.nodes)),
    ("Cores", lambda run: "unknown" if run.cpus is None else format_count(run.cpus)),
    ("GPUs", lambda run: format_count(run.gpus)),
    ("Memory", lambda run: "unknown" if run.memory_bytes is None else format_bytes(run.memory_bytes)),
    ("Time limit", lambda run: "none" if run.time_limit_seconds is None else format_seconds(run.time_limit_seconds)),
    ("Run time", lambda run: format_seconds(run.run_seconds)),
)


def make_group_link(context: RequestContext, recent: JobFilter, by: GroupBy) -> Callable[[str], str]:
    """Return a function that links the name of a group to its jobs, user or account, of the same cluster."""
    cluster = recent.cluster
    links = {
        GroupBy.CLUSTER: lambda name: f"/jobs{render_query(JobFilter(cluster=name))}",
        GroupBy.USER: lambda name: user_path(name, cluster),
        GroupBy.ACCOUNT: lambda name: account_path(name, cluster),
        GroupBy.PARTITION: lambda name: f"/jobs{render_query(JobFilter(cluster=cluster, partition=name))}",
    }
    return (lambda name: context.base_path + links[by](name)) if by in links else context.make_rule_link(recent)


router = APIRouter(include_in_schema=False)

SAVINGS_DAYS = 365
_FILE_ROWS = 1000
_PAGE_ROWS = {AdviceGroup.RULE: _FILE_ROWS, AdviceGroup.USER: 50, AdviceGroup.MONTH: 50}


@router.get("/savings")
def show_savings(context: Context) -> Response:
    """Show outcomes of advice by finding, user and month."""
    days, table_format = parse_days(context.query, SAVINGS_DAYS), parse_format(context.query)
    cluster = parse_cluster(context.query)
    context.audit("savings of all users")
    if table_format != "html":
        by = _parse_group(context.query.get("table", "rule"))
        totals = total_savings(context, by, days, cluster)
        return make_table_response(make_table(AdviceTotal, totals), table_format, f"savings-{by}")
    shows_users = context.viewer.is_staff or bool(context.viewer.coordinates)
    sums = context.share(
        ("savings", days, cluster),
        lambda: [_total(context, by, days, cluster, rows) for by, rows in _PAGE_ROWS.items()],
    )
    rules, users, months = sums.value
    return context.page(
        "savings.html",
        days=days,
        cluster=cluster,
        rules=rules,
        users=users if shows_users else (),
        months=months,
        saved=describe_total(months),
        has_negative=any(
            total.saved_core_seconds < 0 or total.saved_memory_byte_seconds < 0 for total in (*rules, *users, *months)
        ),
        user_link=make_group_link(context, JobFilter(cluster=cluster), GroupBy.USER),
        shows_users=shows_users,
        age_seconds=sums.age_seconds,
    )


def total_savings(context: RequestContext, by: AdviceGroup, days: int, cluster: str = "") -> tuple[AdviceTotal, ...]:
    """Return the totals of all groups, of all clusters or one, summed up once for concurrent requests."""
    key = ("savings", days, by, cluster)
    return context.share(key, lambda: _total(context, by, days, cluster, _FILE_ROWS)).value


def _total(context: RequestContext, by: AdviceGroup, days: int, cluster: str, limit: int) -> tuple[AdviceTotal, ...]:
    return context.services.advice.total_outcomes(
        context.viewer, by, since_seconds=context.since(days), cluster=cluster, limit=limit
    )


def _parse_group(text: str) -> AdviceGroup:
    if text not in set(AdviceGroup):
        raise BadQuery("The table must be rule, user or month.")
    return AdviceGroup(text)
