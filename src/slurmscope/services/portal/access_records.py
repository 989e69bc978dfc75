# SPDX-License-Identifier: Apache-2.0
"""Open what the archive keeps about access to the portal: tokens, and who looked at what."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from slurmscope.config import Config
from slurmscope.services.reporting.opening import no_archive, open_known_archive
from slurmscope.store.archive.settings import ArchiveSettings

if TYPE_CHECKING:
    from slurmscope.store.archive.archive import SqlArchive
    from slurmscope.store.archive.audit import AuditLog
    from slurmscope.store.archive.tokens import TokenStore


@contextmanager
def open_tokens(config: Config) -> Iterator[TokenStore]:
    """Return the tokens that were given out."""
    with closing(_open_archive(config)) as archive:
        from slurmscope.store.archive.tokens import TokenStore

        yield TokenStore(archive.database)


@contextmanager
def open_audit_log(config: Config) -> Iterator[AuditLog]:
    """Return the looks of staff at what is not theirs."""
    with closing(_open_archive(config)) as archive:
        from slurmscope.store.archive.audit import AuditLog

        yield AuditLog(archive.database)


def _open_archive(config: Config) -> SqlArchive:
    """Open the archive that is there; one that we made now, most often as root, would keep the portal out."""
    settings = config.of(ArchiveSettings)
    archive = open_known_archive(settings)
    if archive is None:
        raise no_archive(settings)
    return archive
