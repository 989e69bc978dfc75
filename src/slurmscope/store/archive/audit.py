# SPDX-License-Identifier: Apache-2.0
"""Write down who looked at what. Rows are added and read, and never changed.

Whoever keeps a page open asks for it again and again: that is one look, written down every 15 minutes.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import insert, select

from slurmscope.model.viewer import Viewer
from slurmscope.store.archive.engine import Database
from slurmscope.store.archive.job_rows import person_name
from slurmscope.store.archive.queries import MAX_ROWS
from slurmscope.store.archive.schema import AUDIT, NAME_LENGTH, TITLE_LENGTH
from slurmscope.store.archive.texts import short_text

SAME_LOOK_SECONDS = 900
MAX_RECENT = 10_000

AuditedAccess = tuple[str, str, str]
"""Who, in which role, at what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """Hold one look: when, who in which role, through which route, at what."""

    audit_id: int
    at_seconds: int
    viewer: str
    role: str
    route: str
    subject: str


class AuditLog:
    """Keep rows, from any thread. Everything that goes wrong is an ``ArchiveError``."""

    def __init__(self, database: Database, *, wall_clock: Callable[[], float] = time.time) -> None:
        """Take the database, which its owner closes."""
        self._database = database
        self._wall_clock = wall_clock
        self._recent = _RecentLooks()

    def audit(self, viewer: Viewer, route: str, subject: str) -> None:
        """Keep who looked, through which route first, and at what, unless that was done a moment ago."""
        look, now = (viewer.name, viewer.role.value, subject), self._wall_clock()
        if self._recent.has(look, now):
            return
        values = {
            "at_seconds": int(now),
            "viewer": person_name(viewer.name),
            "role": viewer.role.value,
            "route": short_text(route, NAME_LENGTH),
            "subject": short_text(subject, TITLE_LENGTH),
        }
        with self._database.writing() as connection:
            connection.execute(insert(AUDIT).values(values))
        # Only now: a row that could not be written must not keep the next one from being written.
        self._recent.add(look, now)

    def list_rows(
        self, *, viewer: str = "", since_seconds: int | None = None, before_id: int | None = None, limit: int = 100
    ) -> tuple[AuditRow, ...]:
        """Return the latest rows first, of one person or of all; ``before_id`` is the last of the page before."""
        statement = select(AUDIT).order_by(AUDIT.c.audit_id.desc()).limit(max(1, min(limit, MAX_ROWS)))
        if before_id is not None:
            statement = statement.where(AUDIT.c.audit_id < before_id)
        if viewer:
            statement = statement.where(AUDIT.c.viewer == person_name(viewer))
        if since_seconds is not None:
            statement = statement.where(AUDIT.c.at_seconds >= since_seconds)
        with self._database.reading() as connection:
            return tuple(AuditRow(**row) for row in connection.execute(statement).mappings())


class _RecentLooks:
    """Know the looks that were written down a moment ago, from any thread; the oldest ones make room for new ones."""

    def __init__(self) -> None:
        self._at_seconds = OrderedDict[AuditedAccess, float]()
        self._lock = threading.Lock()

    def has(self, look: AuditedAccess, now: float) -> bool:
        with self._lock:
            at_seconds = self._at_seconds.get(look)
        # A clock that was wrong once must not hide looks: what lies in the future does not count.
        return at_seconds is not None and 0 <= now - at_seconds < SAME_LOOK_SECONDS

    def add(self, look: AuditedAccess, now: float) -> None:
        with self._lock:
            self._at_seconds[look] = now
            self._at_seconds.move_to_end(look)
            if len(self._at_seconds) > MAX_RECENT:
                self._at_seconds.popitem(last=False)
