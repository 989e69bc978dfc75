# SPDX-License-Identifier: Apache-2.0
"""Store the progress of the reporter, the mails that were sent, and the users who opted out."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Table, delete, insert, select, update

from slurmscope.archive.engine import ArchiveConflict, Database
from slurmscope.archive.tables import CHECKPOINTS, MAILS, OPT_OUTS
from slurmscope.archive.texts import person_name, short_text

VALUE_LENGTH = 10_000
MAX_LISTED = 1000


class Checkpoints:
    """Read and write small values by name, from any thread. Every failure is an ``ArchiveError``."""

    def __init__(self, database: Database) -> None:
        """Set the database, which its owner closes."""
        self._database = database

    def read_checkpoint(self, name: str) -> str | None:
        """Return the text that is stored under this name."""
        value: str | None = self._scalar(CHECKPOINTS, "value", name=person_name(name))
        return value

    def list_checkpoints(self, beginning: str) -> dict[str, str]:
        """Return the texts under all names that begin with a text, by the rest of the name."""
        statement = select(CHECKPOINTS.c.name, CHECKPOINTS.c.value)
        statement = statement.where(CHECKPOINTS.c.name.startswith(beginning, autoescape=True)).limit(MAX_LISTED)
        with self._database.reading() as connection:
            return {row.name.removeprefix(beginning): row.value for row in connection.execute(statement)}

    def write_checkpoint(self, name: str, text: str) -> None:
        """Store a text under this name, replacing an older one."""
        self._put(CHECKPOINTS, {"name": person_name(name)}, {"value": short_text(text, VALUE_LENGTH)})

    def create_checkpoint(self, name: str, text: str) -> str:
        """Store a text under a name that has none yet; return the one that is stored, whichever process was first."""
        if (known := self.read_checkpoint(name)) is not None:
            return known
        try:
            with self._database.writing() as connection:
                connection.execute(
                    insert(CHECKPOINTS).values(name=person_name(name), value=short_text(text, VALUE_LENGTH))
                )
        except ArchiveConflict:  # another process did so at this moment
            return self.read_checkpoint(name) or text
        return text

    def record_mail(self, subject: str, recipient: str, at_seconds: int) -> None:
        self._put(MAILS, _mail(subject, recipient), {"sent_seconds": at_seconds})

    def last_mail(self, subject: str, recipient: str) -> int | None:
        """Return when the last mail about this subject was sent to a recipient."""
        sent_seconds: int | None = self._scalar(MAILS, "sent_seconds", **_mail(subject, recipient))
        return sent_seconds

    def delete_mails(self, before_seconds: int) -> None:
        with self._database.writing() as connection:
            connection.execute(delete(MAILS).where(MAILS.c.sent_seconds < before_seconds))

    def set_opt_out(self, user: str, is_opted_out: bool) -> None:  # noqa: FBT001 - a fact, not a switch
        def write(connection: Connection) -> None:
            connection.execute(delete(OPT_OUTS).where(OPT_OUTS.c.user == person_name(user)))
            if is_opted_out:
                connection.execute(insert(OPT_OUTS).values(user=person_name(user)))

        self._database.write(write)

    def is_opted_out(self, user: str) -> bool:
        return self._scalar(OPT_OUTS, "user", user=person_name(user)) is not None

    def _scalar(self, table: Table, column: str, **key: str) -> Any:
        with self._database.reading() as connection:
            return connection.scalar(select(table.c[column]).filter_by(**key))

    def _put(self, table: Table, key: dict[str, str], values: dict[str, Any]) -> None:
        self._database.write(lambda connection: put_row(connection, table, key, values))


def _mail(subject: str, recipient: str) -> dict[str, str]:
    return {"subject": person_name(subject), "recipient": person_name(recipient)}


def put_row(connection: Connection, table: Table, key: dict[str, str], values: dict[str, Any]) -> None:
    """Write the row with this key, in place of an older one."""
    is_known = connection.execute(select(*table.primary_key.columns).filter_by(**key).with_for_update()).first()
    if is_known:
        connection.execute(update(table).filter_by(**key).values(values))
    else:
        connection.execute(insert(table).values({**key, **values}))
