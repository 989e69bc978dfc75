# SPDX-License-Identifier: Apache-2.0
"""Report for an archive that no other process uses."""

from __future__ import annotations

import threading

from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.election import Election
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.reporter.reporters import LeaderArchive, OpenLeaderArchive


class NoElection(Election):
    """Be elected always."""

    def __init__(self) -> None:
        self.elected = threading.Event()
        self.elected.set()

    def hold_lock(self) -> None:
        """Do nothing."""

    def resign(self, seconds: float) -> None:
        """Do nothing: there is no other process."""

    def close(self) -> None:
        """Do nothing."""


def open_alone(archive: SqlArchive) -> OpenLeaderArchive:
    """Return what opens this archive for every role."""
    return lambda _: LeaderArchive(NoElection(), archive, Checkpoints(archive.database))
