# SPDX-License-Identifier: Apache-2.0
"""Serve the portal's metrics to staff, and to a Prometheus that has a token of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.responses import Response

from slurmscope.metrics.family import Family
from slurmscope.metrics.write import end, write
from slurmscope.outputs.http.negotiate import choose_format
from slurmscope.portal.pages.visit import Visiting

PATH = "/metrics"


def add_metrics_page(app: FastAPI, families: Callable[[], Iterable[Family]]) -> None:
    """Add the page to the portal's routes; what it shows is about nobody, so a look at it is not written down."""

    def show_metrics(visit: Visiting) -> Response:
        if not visit.viewer.is_staff:
            raise HTTPException(403, "Metrics of the portal are for those who run it.")
        chosen = choose_format(visit.request.headers.get("accept", ""))
        page = b"".join((*write(families(), chosen), end(chosen)))
        return Response(page, headers={"Content-Type": chosen.content_type, "Vary": "Accept"})

    app.add_api_route(PATH, show_metrics, methods=["GET"], include_in_schema=False)
