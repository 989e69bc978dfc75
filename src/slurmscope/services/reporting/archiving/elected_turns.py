# SPDX-License-Identifier: Apache-2.0
"""Do periodic work in the one process that is elected for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

ELECTION_SECONDS = 10.0
"""Interval between attempts to be elected; a process that was killed is replaced after at most this time."""
RESIGN_SECONDS = 1.5 * ELECTION_SECONDS
"""For how long a process that resigned lets others be elected: each of them tries once meanwhile."""
RETENTION, DIGESTS = "retention", "sender of digests"
REPORTER = "reporter of"
"""Names of duties; the name of the cluster is appended to that of a reporter."""
_LONGEST_PAUSE_SECONDS = 1.0


class Candidacy(Protocol):
    """Take part in an election; ``elected`` is set while this process is elected."""

    @property
    def elected(self) -> threading.Event:
        """Return the event that is set while this process is elected."""
        ...

    def campaign(self) -> None:
        """Try to be elected, or confirm it; may raise ``ArchiveError``."""
        ...

    def resign(self, seconds: float) -> None:
        """Let another process be elected for some seconds."""
        ...

    def close(self) -> None:
        """Let another process be elected."""
        ...


class NoElection:
    """Be elected always: there is no other process."""

    def __init__(self) -> None:
        """Be elected from the beginning."""
        self.elected = threading.Event()
        self.elected.set()

    def campaign(self) -> None:
        """Do nothing."""

    def resign(self, seconds: float) -> None:
        """Do nothing: there is no other process."""

    def close(self) -> None:
        """Do nothing."""


class Turns:
    """Work once in an interval, from the moment this process is elected until it is not."""

    def __init__(self, election: Candidacy, interval_seconds: float, work: Callable[[], None]) -> None:
        """Take the work, and the interval between two starts of it."""
        self._election = election
        self._interval_seconds = interval_seconds
        self._work = work
        self._due_seconds = float("-inf")
        self.pause_seconds = min(interval_seconds, _LONGEST_PAUSE_SECONDS)
        """How often to call ``take``."""

    def take(self) -> None:
        """Work if it is due; wait briefly for the election, so that work starts as soon as this process is elected."""
        if not self._election.elected.wait(self.pause_seconds):
            self._due_seconds = float("-inf")
        elif time.monotonic() >= self._due_seconds:
            self._due_seconds = time.monotonic() + self._interval_seconds
            self._work()
