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


class TaggedJobs(NamedTuple):
    """Count the jobs of one cluster that have a tag; ``query`` selects them in the list."""

    cluster: str
    jobs: int
    query: str


class TagView(NamedTuple):
    """Hold one tag with its jobs, by cluster, and users."""

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
