# SPDX-License-Identifier: Apache-2.0
"""Find the clusters in which coordinators of accounts have their rights.

Slurm keeps coordinators for all clusters of one slurmdbd. An archive may hold jobs of clusters that belong to others,
where accounts of the same names are those of other people.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from slurmscope.core import log
from slurmscope.core.clock import Clock
from slurmscope.core.errors import SourceError

logger = logging.getLogger(__name__)


ReadCoordinatedAccounts = Callable[[str], frozenset[str]]
"""Return the accounts that a user coordinates."""

NO_ACCOUNTS: frozenset[str] = frozenset()


class CoordinatedAccounts:
    """Query Slurm once per user and lifetime; if the query fails, the user coordinates no accounts.

    A failure is cached too, for a shorter time: while Slurm is down, pages do not wait for it each time. Only one
    query runs at a time; cached users do not wait for it. Call this object as a function
    (``ReadCoordinatedAccounts``), from any thread.
    """

    def __init__(
        self,
        read: ReadCoordinatedAccounts,
        *,
        clock: Callable[[], float] = time.monotonic,
        lifetime_seconds: float = 300.0,
        failure_seconds: float = 30.0,
        max_users: int = 10_000,
    ) -> None:
        self._read = read
        self._clock = clock
        self._lifetime_seconds = lifetime_seconds
        self._failure_seconds = failure_seconds
        self._max_users = max_users
        self._cached: OrderedDict[str, tuple[frozenset[str], float]] = OrderedDict()
        self._failed_until_seconds = -float("inf")
        self._reading = threading.Lock()

    def __call__(self, user: str) -> frozenset[str]:
        """Return the user's accounts."""
        cached = self._find_cached(user)
        if cached is not None:
            return cached
        with self._reading:
            # Another thread may have read them, or failed, while this one waited.
            cached = self._find_cached(user)
            return cached if cached is not None else self._query(user)

    def problems(self) -> tuple[str, ...]:
        """Return a message for the pages while Slurm cannot be queried."""
        if self._clock() >= self._failed_until_seconds:
            return ()
        return ("Slurm does not report account coordinators: coordinators see only their own jobs for now.",)

    def _find_cached(self, user: str) -> frozenset[str] | None:
        cached = self._cached.get(user)
        if cached is not None and cached[1] > self._clock():
            return cached[0]
        return NO_ACCOUNTS if self._clock() < self._failed_until_seconds else None

    def _query(self, user: str) -> frozenset[str]:
        try:
            accounts = self._read(user)
        except SourceError as error:
            logger.warning("cannot read account coordinators", extra=log.fields(error=str(error)))
            self._failed_until_seconds = self._clock() + self._failure_seconds
            return NO_ACCOUNTS
        self._cached.pop(user, None)
        self._cached[user] = (accounts, self._clock() + self._lifetime_seconds)
        while len(self._cached) > self._max_users:
            self._cached.popitem(last=False)
        return accounts


KEPT_SECONDS = 300.0
FAILED_SECONDS = 30.0

ReadClusters = Callable[[], Sequence[str]]


class CoordinatedClusters:
    """Return the clusters of the accounting that the portal reads; call it as a function, from any thread."""

    def __init__(self, read: ReadClusters, archived: ReadClusters, clock: Clock | None = None) -> None:
        """Take what reads the clusters of accounting, and those that the archive has jobs of."""
        self._read = read
        self._archived = archived
        self._clock = clock or Clock()
        self._lock = threading.Lock()
        self._known: frozenset[str] = frozenset()
        self._until = float("-inf")

    def __call__(self) -> frozenset[str]:
        """Return the clusters; while they cannot be read, the only one that the archive has, or none of several.

        It is named even if it is the only one: the archive may have jobs of another before that is noticed here.
        """
        with self._lock:
            if self._clock.monotonic() >= self._until:
                self._refresh()
            known = self._known
        if known:
            return known
        archived = self._archived()
        return frozenset(archived) if len(archived) == 1 else frozenset()

    def _refresh(self) -> None:
        try:
            self._known, seconds = frozenset(self._read()), KEPT_SECONDS
        except SourceError:
            self._known, seconds = frozenset(), FAILED_SECONDS
        self._until = self._clock.monotonic() + seconds
