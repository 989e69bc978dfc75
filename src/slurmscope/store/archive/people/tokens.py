# SPDX-License-Identifier: Apache-2.0
"""Give out API tokens and know them again by their hash; the tokens themselves are not kept.

They are random numbers of 256 bits. There is nothing to guess, so a plain hash is as good as a slow one.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, insert, select, update

from slurmscope.errors import ArchiveError
from slurmscope.log import fields
from slurmscope.model.viewer import Viewer, ViewerRole
from slurmscope.store.archive.database.engine import Database
from slurmscope.store.archive.job_rows import person_name
from slurmscope.store.archive.tables.lengths import NAME_LENGTH
from slurmscope.store.archive.tables.schema import TOKENS
from slurmscope.store.archive.tables.texts import short_text

PREFIX = "slsc_"
"""By this a token that leaked into a file or a log is found."""
USE_SECONDS = 60
"""How exactly the last use is known: not every request is a write."""
MAX_TOKENS = 10_000

logger = logging.getLogger(__name__)


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
    return TokenInfo(
        token_id=row["token_id"],
        name=row["name"],
        role=ViewerRole(row["role"]),
        purpose=row["purpose"],
        created_seconds=row["created_seconds"],
        last_used_seconds=row["last_used_seconds"],
        expires_seconds=row["expires_seconds"],
    )
