# SPDX-License-Identifier: Apache-2.0
"""Cache which accounts a user coordinates."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from slurmscope import log
from slurmscope.errors import SourceError

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
