# SPDX-License-Identifier: Apache-2.0
"""List the clusters of a job, array or node whose name alone means several: status 300, Multiple Choices.

Only clusters in which the viewer has access to it are known here; with one of them there is nothing to choose.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from slurmscope.errors import AmbiguousName
from slurmscope.model.archive import JobFilter, JobRow
from slurmscope.model.viewer import Viewer
from slurmscope.portal.backend import PortalBackend
from slurmscope.portal.views.page_paths import add_cluster, is_cluster, job_path
from slurmscope.portal.web.templating import PageRenderer

STATUS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Hold one of the clusters, with the address of the requested page there.

    ``row`` is the job if it is archived, or the newest task of an array.
    """

    cluster: str
    url: str
    row: JobRow | None = None
    is_array: bool = False


def handle_ambiguous_name(request: Request, error: Exception) -> Response:
    """Offer the requested page in each of the clusters."""
    assert isinstance(error, AmbiguousName)  # noqa: S101 - how starlette types its handlers
    viewer: Viewer = request.state.viewer
    if viewer.is_staff:
        backend: PortalBackend = request.app.state.backend
        backend.sign_in.audit(viewer, getattr(request.scope.get("route"), "path", ""), f"{error.kind} {error.name}")
    choices = _list_choices(request, error)
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    if path.startswith("/api/") or path.endswith(".json") or request.query_params.get("format") == "json":
        listed = [{"cluster": choice.cluster, "url": choice.url} for choice in choices]
        return JSONResponse({"error": f"{_sentence(error)} Choose one.", "choices": listed}, STATUS)
    pages: PageRenderer = request.app.state.pages
    values: dict[str, object] = {
        "title": _title(error),
        "sentence": _sentence(error),
        "choices": choices,
        "kind": error.kind,
        "problems": (),
    }
    return HTMLResponse(pages.render("ambiguous.html", viewer, values), STATUS)


def _title(error: AmbiguousName) -> str:
    return f"{error.kind.capitalize()} {error.name}"


def _sentence(error: AmbiguousName) -> str:
    return f"{_title(error)} exists in {len(error.clusters)} clusters."


def _list_choices(request: Request, error: AmbiguousName) -> list[Choice]:
    backend: PortalBackend = request.app.state.backend
    base: str = request.scope.get("root_path", "")
    path = request.url.path.removeprefix(base)
    query = f"?{request.url.query}" if request.url.query else ""
    newest = _find_rows(backend, request.state.viewer, error) if error.kind == "job" else {}
    return [
        Choice(
            cluster=cluster,
            url=base + (f"{page}{query}" if (page := add_cluster(path, cluster)) else job_path(error.name, cluster)),
            row=newest.get(cluster),
            is_array=cluster in newest and newest[cluster].shown_id != error.name,
        )
        for cluster in error.clusters
        if is_cluster(cluster)
    ]


def _find_rows(backend: PortalBackend, viewer: Viewer, error: AmbiguousName) -> dict[str, JobRow]:
    """Return the newest archived run in each cluster; where an array has this ID, its newest task."""
    rows = backend.archive.find_shown(viewer, error.name)
    newest = {row.cluster: row for row in sorted(rows, key=lambda row: row.submit_seconds)}
    for cluster in error.clusters:
        if cluster not in newest and error.name.isdecimal():
            wanted = JobFilter(cluster=cluster, array_job_id=int(error.name))
            newest |= {row.cluster: row for row in backend.archive.list_jobs(viewer, wanted, limit=1).rows}
    return newest
