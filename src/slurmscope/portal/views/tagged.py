# SPDX-License-Identifier: Apache-2.0
"""Group tagged jobs and users by their tag."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from slurmscope.model.archive import JobFilter
from slurmscope.model.staff import NotedKind, NotedThing
from slurmscope.portal.views.queries import MAX_IDS, render_query

_MAX_LINKED = min(MAX_IDS, 200)
"""Jobs in one link: addresses have a limit."""


class TagView(NamedTuple):
    """Hold one tag with its jobs and users; ``query`` selects the jobs in the list."""

    tag: str
    jobs: tuple[str, ...]
    users: tuple[str, ...]
    query: str


def group_tagged(tagged: Iterable[tuple[str, NotedThing]]) -> tuple[TagView, ...]:
    """Return all tags in order."""
    groups: dict[str, list[NotedThing]] = {}
    for tag, thing in tagged:
        groups.setdefault(tag, []).append(thing)
    return tuple(_make_view(tag, things) for tag, things in sorted(groups.items()))


def _make_view(tag: str, things: list[NotedThing]) -> TagView:
    jobs = tuple(dict.fromkeys(thing.name for thing in things if thing.kind is NotedKind.JOB))
    users = tuple(sorted(thing.name for thing in things if thing.kind is NotedKind.USER))
    return TagView(tag, jobs, users, render_query(JobFilter(shown_ids=jobs[:_MAX_LINKED])) if jobs else "")
