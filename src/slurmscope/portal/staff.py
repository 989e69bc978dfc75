# SPDX-License-Identifier: Apache-2.0
"""Choose, in a demo only, with which rights pages are shown."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from slurmscope.archive.interface import MAX_NOTE, MAX_VIEW_NAME, MAX_VIEW_QUERY, JobFilter, Note, NotedKind, NotedThing
from slurmscope.jobs.render.formatting import format_time
from slurmscope.portal.context import Context, RequestContext, not_found
from slurmscope.portal.queries import MAX_IDS, NUMBER, BadQuery, parse_filter, render_query
from slurmscope.portal.sign_in.csrf import FIELD, check_site
from slurmscope.portal.sign_in.errors import Refused
from slurmscope.portal.sign_in.identity import VIEW_COOKIE, VIEW_PATH, ViewAs
from slurmscope.portal.waste import require_staff
from slurmscope.reports.page_paths import job_path, user_path

_MAX_LINKED = min(MAX_IDS, 200)
"""Jobs in one link: addresses have a limit."""


class TaggedJobs(NamedTuple):
    """Count the jobs of one cluster that have a tag; ``query`` selects them in the list."""

    cluster: str
    jobs: int
    query: str


class TagView(NamedTuple):
    """One tag with its jobs, by cluster, and users."""

    tag: str
    jobs: tuple[TaggedJobs, ...]
    users: tuple[str, ...]


def group_tagged(tagged: Iterable[tuple[str, NotedThing]]) -> tuple[TagView, ...]:
    """Return all tags in order."""
    groups: dict[str, list[NotedThing]] = {}
    for tag, thing in tagged:
        groups.setdefault(tag, []).append(thing)
    return tuple(_make_view(tag, things) for tag, things in sorted(groups.items()))


def _make_view(tag: str, things: list[NotedThing]) -> TagView:
    ids: dict[str, dict[str, None]] = {}
    for thing in things:
        if thing.kind is NotedKind.JOB:
            ids.setdefault(thing.cluster, {})[thing.name] = None
    jobs = tuple(_link(cluster, tuple(found)) for cluster, found in sorted(ids.items()))
    return TagView(tag, jobs, tuple(sorted(thing.name for thing in things if thing.kind is NotedKind.USER)))


def _link(cluster: str, ids: tuple[str, ...]) -> TaggedJobs:
    return TaggedJobs(cluster, len(ids), render_query(JobFilter(cluster=cluster, shown_ids=ids[:_MAX_LINKED])))


router = APIRouter(include_in_schema=False)

_TAG = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}\Z")


class NoteChange(enum.StrEnum):
    """What the form of notes and tags does."""

    ADD_NOTE = "add-note"
    DELETE_NOTE = "delete-note"
    ADD_TAG = "add-tag"
    REMOVE_TAG = "remove-tag"


@dataclass(frozen=True, slots=True, kw_only=True)
class StaffSection:
    """Keep what staff see and write about a job or a user."""

    thing: NotedThing
    notes: tuple[Note, ...]
    tags: tuple[str, ...]
    token: str
    max_note: int = MAX_NOTE


def make_staff_section(context: RequestContext, thing: NotedThing) -> StaffSection | None:
    """Return the notes and tags, with the token of their forms; None unless the viewer is staff."""
    if not context.viewer.is_staff:
        return None
    store = context.services.notes
    return StaffSection(
        thing=thing,
        notes=store.list_notes(context.viewer, thing),
        tags=store.list_tags(context.viewer, thing),
        token=context.services.csrf.issue(context.viewer),
    )


@router.post("/staff/notes")
def change_notes(  # noqa: PLR0913 - the fields of the form
    context: Context,
    kind: Annotated[NotedKind, Form()],
    name: Annotated[str, Form(max_length=200)],
    cluster: Annotated[str, Form(max_length=64)] = "",
    *,
    change: Annotated[NoteChange, Form()],
    text: Annotated[str, Form(max_length=2 * MAX_NOTE)] = "",
    token: Annotated[str, Form(alias=FIELD)] = "",
) -> Response:
    """Add or delete a note, set or remove a tag, and return to the page of the job or user.

    ``text`` is the note, the number of the note to delete, or the tag.
    """
    require_staff(context)
    context.services.csrf.check(context.viewer, token, context.request.scope)
    thing, page = _find_thing(context, kind, name, cluster)
    # With the time: repeated access to the same subject is recorded once, but every change must be recorded.
    context.audit(
        f"{change} on {kind} {context.name_job(name, thing.cluster)}, {format_time(context.services.clock())}"
    )
    store, viewer = context.services.notes, context.viewer
    if change is NoteChange.ADD_NOTE:
        store.add_note(viewer, thing, _parse_note(text))
    elif change is NoteChange.DELETE_NOTE:
        store.delete_note(viewer, thing, _parse_number(text))
    else:
        store.set_tag(viewer, thing, _parse_tag(text), is_set=change is NoteChange.ADD_TAG)
    return RedirectResponse(f"{page}#staff", 303)


@router.get("/tags")
def show_tags(context: Context) -> Response:
    """Show staff all tags, with the jobs and users that have them."""
    require_staff(context)
    context.audit("tags of all users")
    return context.page("tags.html", tags=group_tagged(context.services.notes.list_tagged(context.viewer)))


@router.post("/views")
def save_view(
    context: Context,
    name: Annotated[str, Form(max_length=MAX_VIEW_NAME)],
    query: Annotated[str, Form(max_length=MAX_VIEW_QUERY)] = "",
    is_shared: Annotated[bool, Form(alias="shared")] = False,  # noqa: FBT002 - a field of a form
    token: Annotated[str, Form(alias=FIELD)] = "",
) -> Response:
    """Save the filter of a list under a name, and return to the list."""
    context.services.csrf.check(context.viewer, token, context.request.scope)
    if is_shared and not context.viewer.is_staff:
        raise Refused("Only support staff and administrators can share a view.")
    if not name.strip() or not name.isprintable():
        raise BadQuery("The name of a view must be printable text.")
    # Parsed and written again: only a filter of the list is ever saved.
    kept = render_query(parse_filter(dict(parse_qsl(query.removeprefix("?")))))
    context.services.views.save_view(context.viewer, name.strip(), kept, is_shared=is_shared)
    return RedirectResponse(f"{context.base_path}/jobs{kept}#views", 303)


@router.post("/views/delete")
def delete_view(
    context: Context,
    view_id: Annotated[int, Form(ge=0, lt=2**63)],
    token: Annotated[str, Form(alias=FIELD)] = "",
) -> Response:
    """Delete a view of the viewer, and return to the list."""
    context.services.csrf.check(context.viewer, token, context.request.scope)
    context.services.views.delete_view(context.viewer, view_id)
    return RedirectResponse(f"{context.base_path}/jobs#views", 303)


def _find_thing(context: RequestContext, kind: NotedKind, name: str, cluster: str) -> tuple[NotedThing, str]:
    """Return the job or user, with the address of its page; respond 404 if it does not exist."""
    if kind is NotedKind.JOB:
        report = context.read_report_of(cluster, name)
        if report is None:
            raise not_found()
        thing = NotedThing(kind, report.record.cluster, report.record.shown_id)
        return thing, context.base_path + job_path(thing.name, context.link_cluster(thing.cluster))
    if not name.isprintable() or not name or not context.has_jobs(JobFilter(user=name)):
        raise not_found()
    return NotedThing(kind, "", name), context.base_path + user_path(name)


def _parse_note(text: str) -> str:
    note = text.replace("\r\n", "\n").strip()
    if not note or len(note) > MAX_NOTE:
        raise BadQuery(f"A note must have between 1 and {MAX_NOTE} characters.")
    return note


def _parse_number(text: str) -> int:
    if not NUMBER.match(text):
        raise BadQuery("This note does not exist.")
    return int(text)


def _parse_tag(text: str) -> str:
    tag = text.strip().lower()
    if not _TAG.match(tag):
        raise BadQuery("A tag has up to 32 letters, digits, dots, dashes and underscores.")
    return tag


def make_router(view_as: ViewAs, base_path: str) -> APIRouter:
    """Return the route of the form that is on every page of a demo."""
    router = APIRouter(include_in_schema=False)

    @router.post(VIEW_PATH)
    def choose_view(request: Request, view: Annotated[str, Form(max_length=40)]) -> Response:
        """Remember the choice until the browser is closed, and return to the page with the form."""
        view_as.check_local(request.scope)
        check_site(request.scope)
        response = RedirectResponse(_find_page(request) or f"{base_path}/", 303)
        response.set_cookie(
            VIEW_COOKIE, view_as.find(view).name, path=f"{base_path}/", httponly=True, samesite="strict"
        )
        return response

    return router


def _find_page(request: Request) -> str:
    """Return path and query of the page with the form, as the browser reports it; nothing for other sites."""
    try:
        page = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return ""
    is_own = page.netloc == request.headers.get("host") and page.path.startswith("/") and not page.path.startswith("//")
    return page._replace(scheme="", netloc="", fragment="").geturl() if is_own else ""
