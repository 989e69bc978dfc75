# SPDX-License-Identifier: Apache-2.0
"""Show staff who uses each shared file system most."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from slurmscope.model.filesystem_use import TopClient
from slurmscope.portal.pages.context import Context
from slurmscope.portal.views.filesystems import arrange_clients
from slurmscope.portal.views.queries import parse_format
from slurmscope.portal.web.tables import Table, make_table_response

router = APIRouter(include_in_schema=False)


@router.get("/filesystems")
def show_filesystems(context: Context) -> Response:
    """Show the jobs, users and programs that use each file system most, now and in the last 24 hours."""
    if not context.viewer.is_staff:
        raise HTTPException(403, "Only support staff and administrators have access to this page.")
    table_format = parse_format(context.query)
    context.audit("file systems of all users")
    top = context.backend.cluster.top_clients()
    if table_format != "html":
        rows = top.clients if top is not None else ()
        table = Table(columns=TopClient._fields, rows=tuple(tuple(row) for row in rows))
        return make_table_response(table, table_format, "filesystems")
    filesystems = arrange_clients(top.clients) if top is not None else None
    return context.page("filesystems.html", filesystems=filesystems, failures=top.problems if top else ())
