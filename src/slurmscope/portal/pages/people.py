# SPDX-License-Identifier: Apache-2.0
"""Show what one user, or one account, asked for and used."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Form
from starlette.responses import RedirectResponse, Response

from slurmscope.model.archive import GroupBy, JobFilter, UseTotal
from slurmscope.portal.pages.digest_form import DigestChoice, change_letters, make_letter_form
from slurmscope.portal.pages.visit import Visit, Visiting, absent
from slurmscope.portal.sign_in.csrf import FIELD
from slurmscope.portal.views.day_bars import make_day_bars
from slurmscope.portal.views.queries import parse_days, parse_format
from slurmscope.portal.web.tables import make_table_response, make_total_table

router = APIRouter(include_in_schema=False)

_ROWS = 15


@router.get("/users/{name:path}")
def show_user(visit: Visiting, name: str) -> Response:
    """Show a user; somebody else's page is there for whom at least one of the jobs is there."""
    everything = _find_user(visit, name)
    visit.audit(f"user {name}", owner=name)
    return _show_person(visit, "user.html", name, everything, GroupBy.ACCOUNT)


@router.post("/users/{name:path}/letter")
def set_letter(
    visit: Visiting, name: str, wish: Annotated[DigestChoice, Form()], token: Annotated[str, Form(alias=FIELD)] = ""
) -> Response:
    """Stop the weekly letters to a user, or send them again, and show the user's page."""
    _find_user(visit, name)
    change_letters(visit, name, wish, token)
    return RedirectResponse(f"{_address(visit, 'users', name)}#letter", 303)


@router.get("/accounts/{name:path}")
def show_account(visit: Visiting, name: str) -> Response:
    """Show an account: all of it to its coordinators and staff, to others their own part."""
    everything = JobFilter(account=name)
    if name not in visit.viewer.coordinates and not _may_see(visit, everything):
        raise absent()
    visit.audit(f"account {name}")
    return _show_person(visit, "account.html", name, everything, GroupBy.USER)


def _find_user(visit: Visit, name: str) -> JobFilter:
    """Return what asks for the jobs of a user; who has none that the viewer may see is absent, but for the viewer."""
    everything = JobFilter(user=name)
    if name != visit.viewer.name and not _may_see(visit, everything):
        raise absent()
    return everything


def _may_see(visit: Visit, everything: JobFilter) -> bool:
    name = everything.user or everything.account
    return name.isprintable() and 0 < len(name) <= 200 and visit.has_jobs(everything)


def _show_person(visit: Visit, template: str, name: str, everything: JobFilter, by: GroupBy) -> Response:
    """Make the page of the last days; ``by`` is what the table of sums is made over."""
    days, form = parse_days(visit.query), parse_format(visit.query)
    lately = replace(everything, since_seconds=visit.since(days))

    def total(over: GroupBy, limit: int = 100) -> tuple[UseTotal, ...]:
        return visit.archive.total(visit.viewer, lately, over, limit=limit)

    if form != "html":
        over = GroupBy.DAY if visit.query.get("table") == "days" else by
        return make_table_response(make_total_table(total(over, 400)), form, f"{name}-{over}")
    return visit.page(
        template,
        name=name,
        days=days,
        day_bars=make_day_bars(total(GroupBy.DAY, 400), visit.since(days), days),
        groups=total(by),
        rules=total(GroupBy.RULE, 10),
        running=visit.archive.list_jobs(visit.viewer, replace(everything, is_running=True), limit=_ROWS).rows,
        rows=visit.archive.list_jobs(visit.viewer, everything, limit=_ROWS).rows,
        everything=everything,
        address=_address(visit, "users" if everything.user else "accounts", name),
        letter=make_letter_form(visit, name) if everything.user else None,
        rule_link=visit.make_rule_link(lately),
        sees_all=visit.viewer.is_staff or name in visit.viewer.coordinates,
    )


def _address(visit: Visit, kind: str, name: str) -> str:
    return f"{visit.desk.settings.base_path}/{kind}/{quote(name, safe='')}"
