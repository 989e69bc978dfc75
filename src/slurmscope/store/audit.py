# SPDX-License-Identifier: Apache-2.0
"""Write down who looked at what. Rows are added and read, never changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import insert, select

from slurmscope.model.viewer import Viewer
from slurmscope.store.engine import Database
from slurmscope.store.job_rows import person_name
from slurmscope.store.queries import MAX_ROWS
from slurmscope.store.schema import AUDIT, NAME_LENGTH, TITLE_LENGTH
from slurmscope.store.texts import short_text


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

    def audit(self, viewer: Viewer, route: str, subject: str) -> None:
        """Keep who looked, through which route, and at what."""
        values = {
            "at_seconds": int(self._wall_clock()),
            "viewer": person_name(viewer.name),
            "role": viewer.role.value,
            "route": short_text(route, NAME_LENGTH),
            "subject": short_text(subject, TITLE_LENGTH),
        }
        with self._database.writing() as connection:
            connection.execute(insert(AUDIT).values(values))

    def list_rows(self, *, before_id: int | None = None, limit: int = 100) -> tuple[AuditRow, ...]:
        """Return the latest rows first; ``before_id`` is the last of the page before."""
        statement = select(AUDIT).order_by(AUDIT.c.audit_id.desc()).limit(max(1, min(limit, MAX_ROWS)))
        if before_id is not None:
            statement = statement.where(AUDIT.c.audit_id < before_id)
        with self._database.reading() as connection:
            return tuple(AuditRow(**row) for row in connection.execute(statement).mappings())
