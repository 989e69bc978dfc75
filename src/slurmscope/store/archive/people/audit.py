# SPDX-License-Identifier: Apache-2.0
"""Keep the audit log of staff access. Rows are added and read, and never changed.

A page that stays open is requested repeatedly: that is one access, recorded every 15 minutes.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import insert, select

from slurmscope.model.viewer import Viewer
from slurmscope.store.archive.database.engine import Database
from slurmscope.store.archive.job_rows import person_name
from slurmscope.store.archive.queries import MAX_ROWS
from slurmscope.store.archive.tables.lengths import NAME_LENGTH, TITLE_LENGTH
from slurmscope.store.archive.tables.schema import AUDIT
from slurmscope.store.archive.tables.texts import short_text

SAME_ACCESS_SECONDS = 900
MAX_RECENT = 10_000

AuditedAccess = tuple[str, str, str]
"""Viewer, role and subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """Hold one access: time, viewer and role, route and subject."""

    audit_id: int
    at_seconds: int
    viewer: str
    role: str
    route: str
    subject: str


class AuditLog:
    """Write and list audit rows, from any thread. Every failure is an ``ArchiveError``."""

    def __init__(self, database: Database, *, wall_clock: Callable[[], float] = time.time) -> None:
        """Set the database, which its owner closes."""
        self._database = database
        self._wall_clock = wall_clock
        self._recent = _RecentAccesses()

    def audit(self, viewer: Viewer, route: str, subject: str) -> None:
        """Record an access, unless the same one was recorded a moment ago."""
        access, now = (viewer.name, viewer.role.value, subject), self._wall_clock()
        if self._recent.has(access, now):
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
        self._recent.add(access, now)

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


class _RecentAccesses:
    """Keep the accesses that were recorded a moment ago, from any thread; the oldest are dropped first."""

    def __init__(self) -> None:
        self._at_seconds = OrderedDict[AuditedAccess, float]()
        self._lock = threading.Lock()

    def has(self, access: AuditedAccess, now: float) -> bool:
        with self._lock:
            at_seconds = self._at_seconds.get(access)
        # A clock that was wrong once must not hide accesses: a time in the future does not count.
        return at_seconds is not None and 0 <= now - at_seconds < SAME_ACCESS_SECONDS

    def add(self, access: AuditedAccess, now: float) -> None:
        with self._lock:
            self._at_seconds[access] = now
            self._at_seconds.move_to_end(access)
            if len(self._at_seconds) > MAX_RECENT:
                self._at_seconds.popitem(last=False)
