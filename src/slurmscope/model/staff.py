# SPDX-License-Identifier: Apache-2.0
"""Hold notes and tags of staff on jobs and users, and saved filters of job lists."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from slurmscope.model.viewer import Viewer

MAX_NOTE = 2000
MAX_TAG = 32
MAX_VIEW_NAME = 80
MAX_VIEW_QUERY = 2000


class NotedKind(enum.StrEnum):
    """What a note or tag is about."""

    JOB = "job"
    USER = "user"


class NotedThing(NamedTuple):
    """Name a job by its cluster and ID as users write it, or a user; a user has no cluster."""

    kind: NotedKind
    cluster: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Hold a note of a member of staff."""

    note_id: int
    author: str
    at_seconds: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedView:
    """Hold a filter of the job list with a name."""

    view_id: int
    owner: str
    name: str
    query: str
    """As in the address, beginning with ``?``; empty for all jobs."""
    is_shared: bool
    """Whether other staff see it."""


class StaffNotes:
    """Store notes and tags, which only staff see; raises ``ArchiveError``. Without an archive nothing is stored."""

    def list_notes(self, viewer: Viewer, thing: NotedThing) -> tuple[Note, ...]:
        """Return notes, oldest first; none for viewers who are not staff."""
        return ()

    def add_note(self, viewer: Viewer, thing: NotedThing, text: str) -> None:
        """Add a note of this viewer."""

    def delete_note(self, viewer: Viewer, thing: NotedThing, note_id: int) -> None:
        """Delete a note."""

    def list_tags(self, viewer: Viewer, thing: NotedThing) -> tuple[str, ...]:
        """Return tags in order; none for viewers who are not staff."""
        return ()

    def set_tag(self, viewer: Viewer, thing: NotedThing, tag: str, *, is_set: bool) -> None:
        """Set or remove a tag."""

    def list_tagged(self, viewer: Viewer, tag: str = "") -> tuple[tuple[str, NotedThing], ...]:
        """Return tags with what they are on, newest first, of one tag or of all; none unless the viewer is staff."""
        return ()


class SavedViews:
    """Store saved filters; raises ``ArchiveError``. Without an archive nothing is stored."""

    def list_views(self, viewer: Viewer) -> tuple[SavedView, ...]:
        """Return the viewer's own views, and for staff those that others share, by name."""
        return ()

    def save_view(self, viewer: Viewer, name: str, query: str, *, is_shared: bool) -> None:
        """Save a view under a name, in place of the viewer's own one of that name; only staff can share."""

    def delete_view(self, viewer: Viewer, view_id: int) -> None:
        """Delete a view of the viewer; that of another person stays."""
