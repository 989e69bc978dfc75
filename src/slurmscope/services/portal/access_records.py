# SPDX-License-Identifier: Apache-2.0
"""Open the archive's records of portal access: API tokens and the audit log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from slurmscope.config import Config
from slurmscope.services.reporting.opening import no_archive, open_known_archive
from slurmscope.store.archive.settings import ArchiveSettings

if TYPE_CHECKING:
    from slurmscope.store.archive.archive import SqlArchive
    from slurmscope.store.archive.people.audit import AuditLog
    from slurmscope.store.archive.people.tokens import TokenStore


@contextmanager
def open_tokens(config: Config) -> Iterator[TokenStore]:
    """Open the issued API tokens."""
    with closing(_open_archive(config)) as archive:
        from slurmscope.store.archive.people.tokens import TokenStore

        yield TokenStore(archive.database)


@contextmanager
def open_audit_log(config: Config) -> Iterator[AuditLog]:
    """Open the audit log of staff access."""
    with closing(_open_archive(config)) as archive:
        from slurmscope.store.archive.people.audit import AuditLog

        yield AuditLog(archive.database)


def _open_archive(config: Config) -> SqlArchive:
    """Open an existing archive; a new one, most often created as root, would not be accessible to the portal."""
    settings = config.of(ArchiveSettings)
    archive = open_known_archive(settings)
    if archive is None:
        raise no_archive(settings)
    return archive
