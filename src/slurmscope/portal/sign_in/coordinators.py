# SPDX-License-Identifier: Apache-2.0
"""Find the clusters in which coordinators of accounts have their rights.

Slurm keeps coordinators for all clusters of one slurmdbd. An archive may hold jobs of clusters that belong to others,
where accounts of the same names are those of other users.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from slurmscope.core import log
from slurmscope.core.cache import Cache
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
        self._failure_seconds = failure_seconds
        self._cache = Cache[frozenset[str]](lifetime_seconds, max_keys=max_users, clock=clock)
        self._failure: SourceError | None = None
        self._failed_until_seconds = -float("inf")
        self._reading = threading.Lock()

    def __call__(self, user: str) -> frozenset[str]:
        try:
            return self._cache.get(user, lambda: self._query(user))
        except SourceError:
            return NO_ACCOUNTS

    def problems(self) -> tuple[str, ...]:
        """Return a message for the pages while Slurm cannot be queried."""
        if self._clock() >= self._failed_until_seconds:
            return ()
        return ("Slurm does not report account coordinators: coordinators see only their own jobs for now.",)

    def _query(self, user: str) -> frozenset[str]:
        with self._reading:
            if self._failure is not None and self._clock() < self._failed_until_seconds:
                raise self._failure.with_traceback(None)
            try:
                return self._read(user)
            except SourceError as error:
                logger.warning("cannot read account coordinators", extra=log.fields(error=str(error)))
                self._failure, self._failed_until_seconds = error, self._clock() + self._failure_seconds
                raise


KEPT_SECONDS = 300.0
FAILED_SECONDS = 30.0

ReadClusters = Callable[[], Sequence[str]]
NO_CLUSTERS: frozenset[str] = frozenset()


class CoordinatedClusters:
    """Return the clusters of the accounting that the portal reads; call it as a function, from any thread."""

    def __init__(self, read: ReadClusters, archived: ReadClusters, clock: Clock | None = None) -> None:
        """Take what reads the clusters of accounting, and those that the archive has jobs of."""
        self._read = read
        self._archived = archived
        self._cache = Cache[frozenset[str]](
            KEPT_SECONDS, retry_seconds=FAILED_SECONDS, clock=(clock or Clock()).monotonic
        )

    def __call__(self) -> frozenset[str]:
        """Return the clusters; while they cannot be read, the only one that the archive has, or none of several.

        It is named even if it is the only one: the archive may have jobs of another before that is noticed here.
        """
        try:
            known = self._cache.get(None, lambda: frozenset(self._read()))
        except SourceError:
            known = NO_CLUSTERS
        if known:
            return known
        archived = self._archived()
        return frozenset(archived) if len(archived) == 1 else NO_CLUSTERS
