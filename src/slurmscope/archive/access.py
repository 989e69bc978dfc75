# SPDX-License-Identifier: Apache-2.0
"""Keep the records of portal access: API tokens by their hash, and the audit log of staff access.

They are random numbers of 256 bits. There is nothing to guess, so a plain hash is as good as a slow one.

A page that stays open is requested repeatedly: that is one access, recorded every 15 minutes.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, insert, select, update

from slurmscope.archive.engine import Database
from slurmscope.archive.queries import MAX_ROWS
from slurmscope.archive.tables import AUDIT, TOKENS
from slurmscope.archive.texts import NAME_LENGTH, TITLE_LENGTH, person_name, short_text
from slurmscope.core.errors import ArchiveError
from slurmscope.core.log import fields
from slurmscope.jobs.viewer import Viewer, ViewerRole

logger = logging.getLogger(__name__)


SAME_ACCESS_SECONDS = 900
MAX_RECENT = 10_000

AuditedAccess = tuple[str, str, str]
"""Viewer, role and subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One access: time, viewer and role, route and subject."""

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


PREFIX = "slsc_"
"""By this a token that leaked into a file or a log is found."""
USE_SECONDS = 60
"""How exactly the last use is known: not every request is a write."""
MAX_TOKENS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenInfo:
    """Describe a token that was given out; ``name`` is the user whom its holder acts for."""

    token_id: int
    name: str
    role: ViewerRole
    purpose: str
    created_seconds: int
    last_used_seconds: int | None
    expires_seconds: int | None


class TokenStore:
    """Keep tokens, from any thread. Every failure is an ``ArchiveError``."""

    def __init__(self, database: Database, *, wall_clock: Callable[[], float] = time.time) -> None:
        """Set the database, which its owner closes."""
        self._database = database
        self._wall_clock = wall_clock

    def create(
        self, name: str, role: ViewerRole = ViewerRole.USER, *, purpose: str = "", expires_seconds: int | None = None
    ) -> str:
        """Return a new token; this is the only time it can be read."""
        token = PREFIX + secrets.token_urlsafe(32)
        values = {
            "token_hash": _hash(token),
            "name": person_name(name),
            "role": role.value,
            "purpose": short_text(purpose, NAME_LENGTH),
            "created_seconds": int(self._wall_clock()),
            "expires_seconds": expires_seconds,
        }
        with self._database.writing() as connection:
            connection.execute(insert(TOKENS).values(values))
        return token

    def list_tokens(self, name: str = "") -> tuple[TokenInfo, ...]:
        """Return tokens, all or those of one user, newest first."""
        statement = select(TOKENS).order_by(TOKENS.c.token_id.desc()).limit(MAX_TOKENS)
        if name:
            statement = statement.where(TOKENS.c.name == person_name(name))
        with self._database.reading() as connection:
            return tuple(_as_info(row) for row in connection.execute(statement).mappings())

    def revoke(self, token_id: int) -> bool:
        """Revoke a token; return whether it existed."""
        with self._database.writing() as connection:
            return connection.execute(delete(TOKENS).where(TOKENS.c.token_id == token_id)).rowcount > 0

    def find(self, token: str) -> Viewer | None:
        """Return whose token this is, or None when it is unknown, revoked or expired.

        It is looked up by its hash, so that the duration reveals nothing about other tokens.
        """
        with self._database.reading() as connection:
            row = connection.execute(select(TOKENS).where(TOKENS.c.token_hash == _hash(token))).mappings().first()
        if row is None:
            return None
        found, now = _as_info(row), int(self._wall_clock())
        if found.expires_seconds is not None and found.expires_seconds <= now:
            return None
        self._note_use(found, now)
        return Viewer(name=found.name, role=found.role)

    def _note_use(self, found: TokenInfo, now: int) -> None:
        last = found.last_used_seconds
        if last is not None and abs(now - last) < USE_SECONDS:
            return
        try:
            with self._database.writing() as connection:
                connection.execute(
                    update(TOKENS).where(TOKENS.c.token_id == found.token_id).values(last_used_seconds=now)
                )
        except ArchiveError as error:
            # A database that can only be read still lets people in.
            logger.warning("cannot record the use of a token", extra=fields(reason=str(error)))


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _as_info(row: Any) -> TokenInfo:
    values = {name: row[name] for name in TokenInfo.__dataclass_fields__}
    return TokenInfo(**{**values, "role": ViewerRole(row["role"])})
