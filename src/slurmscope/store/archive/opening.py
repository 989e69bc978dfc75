# SPDX-License-Identifier: Apache-2.0
"""Open the archive, and say which packages are missing where it cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurmscope.errors import MissingExtraError
from slurmscope.store.archive.settings import ArchiveSettings

if TYPE_CHECKING:
    from slurmscope.store.archive.archive import SqlArchive


def open_archive(settings: ArchiveSettings, *, may_migrate: bool = True) -> SqlArchive:
    """Return the archive of these settings; close it in the end. ``may_migrate`` is that of :class:`Database`.

    Nothing is read or written before the first query, so an unreachable server does not prevent a start.
    """
    try:
        from slurmscope.store.archive.archive import SqlArchive
        from slurmscope.store.archive.database.engine import Database
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("slurmscope"):
            raise
        raise MissingExtraError("the archive of jobs", "reports") from error
    return SqlArchive(Database(settings, may_migrate=may_migrate))
