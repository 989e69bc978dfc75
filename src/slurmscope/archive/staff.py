# SPDX-License-Identifier: Apache-2.0
"""Keep notes and tags of staff on jobs and users, and saved filters of job lists.

Every method checks the viewer: notes and tags exist only for staff.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import delete, func, insert, or_, select, true

from slurmscope.archive.engine import ArchiveConflict, Database
from slurmscope.archive.interface import (
    MAX_NOTE,
    MAX_TAG,
    MAX_VIEW_NAME,
    MAX_VIEW_QUERY,
    Note,
    NotedKind,
    NotedThing,
    SavedView,
)
from slurmscope.archive.tables import NOTES, TAGS, VIEWS
from slurmscope.archive.texts import cluster_name, person_name, short_text
from slurmscope.core.errors import ArchiveError, LimitReached
from slurmscope.jobs.viewer import Viewer

MAX_LISTED = 100
MAX_TAGGED = 1000
MAX_VIEWS = 50
"""Notes and tags of one thing, tagged things in a list, and views of one person."""


class SqlStaffNotes:
    """Store notes and tags, from any thread. Every failure is an ``ArchiveError``."""

    def __init__(self, database: Database, *, wall_clock: Callable[[], float] = time.time) -> None:
        """Set the database, which its owner closes."""
        self._database = database
        self._wall_clock = wall_clock

    def list_notes(self, viewer: Viewer, thing: NotedThing) -> tuple[Note, ...]:
        """Return notes, oldest first; none for viewers who are not staff."""
        if not viewer.is_staff:
            return ()
        columns = (NOTES.c.note_id, NOTES.c.author, NOTES.c.at_seconds, NOTES.c.text)
        statement = select(*columns).filter_by(**_key(thing)).order_by(NOTES.c.note_id).limit(MAX_LISTED)
        with self._database.reading() as connection:
            return tuple(Note(**row) for row in connection.execute(statement).mappings())

    def last_notes(self, viewer: Viewer, users: Sequence[str], beginning: str) -> Mapping[str, Note]:
        """Return of each user the newest note that begins like this; none for viewers who are not staff."""
        if not viewer.is_staff or not users:
            return {}
        columns = (NOTES.c.name, NOTES.c.note_id, NOTES.c.author, NOTES.c.at_seconds, NOTES.c.text)
        named = NOTES.c.name.in_([person_name(user) for user in users])
        statement = select(*columns).where(named, NOTES.c.kind == NotedKind.USER.value)
        statement = statement.where(NOTES.c.text.startswith(beginning, autoescape=True)).order_by(NOTES.c.note_id)
        with self._database.reading() as connection:
            rows = connection.execute(statement.limit(MAX_LISTED * len(users))).mappings().all()
        return {row["name"]: Note(**{name: row[name] for name in Note.__dataclass_fields__}) for row in rows}

    def add_note(self, viewer: Viewer, thing: NotedThing, text: str) -> None:
        _require_staff(viewer)
        values = {**_key(thing), **self._signature(viewer), "text": short_text(text, MAX_NOTE)}
        with self._database.writing() as connection:
            count = connection.scalar(select(func.count()).select_from(NOTES).filter_by(**_key(thing))) or 0
            if count >= MAX_LISTED:
                raise LimitReached(f"There are {MAX_LISTED} notes already. Delete one first.")
            connection.execute(insert(NOTES).values(values))

    def delete_note(self, viewer: Viewer, thing: NotedThing, note_id: int) -> None:
        _require_staff(viewer)
        with self._database.writing() as connection:
            connection.execute(delete(NOTES).filter_by(**_key(thing)).where(NOTES.c.note_id == note_id))

    def list_tags(self, viewer: Viewer, thing: NotedThing) -> tuple[str, ...]:
        """Return tags in order; none for viewers who are not staff."""
        if not viewer.is_staff:
            return ()
        statement = select(TAGS.c.tag).filter_by(**_key(thing)).order_by(TAGS.c.tag).limit(MAX_LISTED)
        with self._database.reading() as connection:
            return tuple(connection.scalars(statement))

    def set_tag(self, viewer: Viewer, thing: NotedThing, tag: str, *, is_set: bool) -> None:
        """Set or remove a tag."""
        _require_staff(viewer)
        key = {**_key(thing), "tag": short_text(tag, MAX_TAG)}
        try:
            with self._database.writing() as connection:
                connection.execute(delete(TAGS).filter_by(**key))
                if is_set:
                    connection.execute(insert(TAGS).values({**key, **self._signature(viewer)}))
        except ArchiveConflict:
            # Another person set the same tag at this moment.
            pass

    def list_tagged(self, viewer: Viewer, tag: str = "") -> tuple[tuple[str, NotedThing], ...]:
        """Return tags with what they are on, newest first, of one tag or of all; none unless the viewer is staff."""
        if not viewer.is_staff:
            return ()
        wanted = TAGS.c.tag == short_text(tag, MAX_TAG) if tag else true()
        statement = select(TAGS).where(wanted).order_by(TAGS.c.at_seconds.desc(), TAGS.c.name).limit(MAX_TAGGED)
        with self._database.reading() as connection:
            rows = connection.execute(statement).all()
        return tuple((row.tag, NotedThing(NotedKind(row.kind), row.cluster, row.name)) for row in rows)

    def _signature(self, viewer: Viewer) -> dict[str, Any]:
        return {"author": person_name(viewer.name), "at_seconds": int(self._wall_clock())}


class SqlSavedViews:
    """Store saved filters, from any thread. Every failure is an ``ArchiveError``."""

    def __init__(self, database: Database) -> None:
        """Set the database, which its owner closes."""
        self._database = database

    def list_views(self, viewer: Viewer) -> tuple[SavedView, ...]:
        """Return the viewer's own views, and for staff those that others share, by name."""
        own = VIEWS.c.owner == person_name(viewer.name)
        seen = or_(own, VIEWS.c.is_shared.is_(True)) if viewer.is_staff else own
        statement = select(VIEWS).where(seen).order_by(VIEWS.c.name, VIEWS.c.view_id).limit(MAX_TAGGED)
        with self._database.reading() as connection:
            return tuple(SavedView(**row) for row in connection.execute(statement).mappings())

    def save_view(self, viewer: Viewer, name: str, query: str, *, is_shared: bool) -> None:
        """Save a view under a name, in place of the viewer's own one of that name; only staff can share."""
        if is_shared:
            _require_staff(viewer)
        if len(query) > MAX_VIEW_QUERY:
            raise ArchiveError("the filter is too long to be saved")
        key = {"owner": person_name(viewer.name), "name": short_text(name, MAX_VIEW_NAME)}
        with self._database.writing() as connection:
            connection.execute(delete(VIEWS).filter_by(**key))
            own = select(func.count()).select_from(VIEWS).where(VIEWS.c.owner == key["owner"])
            if (connection.scalar(own) or 0) >= MAX_VIEWS:
                raise LimitReached(f"There are {MAX_VIEWS} saved views already. Delete one first.")
            connection.execute(insert(VIEWS).values({**key, "query": query, "is_shared": is_shared}))

    def delete_view(self, viewer: Viewer, view_id: int) -> None:
        """Delete a view of the viewer; that of another person stays."""
        own = (VIEWS.c.view_id == view_id, VIEWS.c.owner == person_name(viewer.name))
        with self._database.writing() as connection:
            connection.execute(delete(VIEWS).where(*own))


def _key(thing: NotedThing) -> dict[str, str]:
    return {"kind": thing.kind.value, "cluster": cluster_name(thing.cluster), "name": person_name(thing.name)}


def _require_staff(viewer: Viewer) -> None:
    if not viewer.is_staff:
        raise ArchiveError("only staff can do this")
