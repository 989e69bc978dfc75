# SPDX-License-Identifier: Apache-2.0
"""Show all tasks of an array together."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from slurmscope.model.archive import JobFilter
from slurmscope.portal.pages.jobs import read_all_rows
from slurmscope.portal.pages.visit import Visiting, absent
from slurmscope.portal.views.array import make_array_view
from slurmscope.portal.views.queries import NUMBER, parse_format
from slurmscope.portal.web.tables import make_job_table, make_table_response

MOST_TASKS = 5_000
_SHOWN_TASKS = 50

router = APIRouter(include_in_schema=False)


@router.get("/arrays/{array_id}")
def show_array(visit: Visiting, array_id: str) -> Response:
    """Show how the tasks spread, which stand out, and one recommendation for all of them."""
    if not NUMBER.match(array_id):
        raise absent()
    form, wanted = parse_format(visit.query), JobFilter(array_job_id=int(array_id))
    rows, is_cut = read_all_rows(visit, wanted, MOST_TASKS)
    if not rows:
        raise absent()
    visit.audit(f"array {array_id}", owner=rows[0].user)
    if form != "html":
        return make_table_response(make_job_table(rows, is_cut=is_cut), form, f"array-{array_id}")
    return visit.page(
        "array.html",
        array_id=int(array_id),
        view=make_array_view(rows),
        first=rows[0],
        rows=rows[:_SHOWN_TASKS],
        count=len(rows),
        is_cut=is_cut,
        wanted=wanted,
    )
