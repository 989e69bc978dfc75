# SPDX-License-Identifier: Apache-2.0
"""Serve the portal's metrics to staff, and to a Prometheus server with a staff token."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.responses import Response

from slurmscope.metrics.family import Family
from slurmscope.metrics.write import end, write
from slurmscope.outputs.http.negotiate import choose_format
from slurmscope.portal.pages.context import Context

PATH = "/metrics"


def add_metrics_page(app: FastAPI, families: Callable[[], Iterable[Family]]) -> None:
    """Add the route; access is not audited, because the metrics contain no user data."""

    def show_metrics(context: Context) -> Response:
        if not context.viewer.is_staff:
            raise HTTPException(403, "Only support staff and administrators have access to the metrics.")
        chosen = choose_format(context.request.headers.get("accept", ""))
        page = b"".join((*write(families(), chosen), end(chosen)))
        return Response(page, headers={"Content-Type": chosen.content_type, "Vary": "Accept"})

    app.add_api_route(PATH, show_metrics, methods=["GET"], include_in_schema=False)
