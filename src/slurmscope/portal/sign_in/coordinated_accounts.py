# SPDX-License-Identifier: Apache-2.0
"""Remember for a while which accounts somebody coordinates."""

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

NOBODY: frozenset[str] = frozenset()


class CoordinatedAccounts:
    """Ask Slurm once per person and lifetime; without an answer a person coordinates nothing.

    A failure is cached too, for a shorter time: while Slurm is down, pages do not wait for it each time. Only one
    request to Slurm runs at a time; cached people do not wait for it. Call this object as a function
    (``ReadCoordinatedAccounts``), from any thread.
    """

    def __init__(
        self,
        ask: ReadCoordinatedAccounts,
        *,
        clock: Callable[[], float] = time.monotonic,
        lifetime_seconds: float = 300.0,
        failure_seconds: float = 30.0,
        size_limit: int = 10_000,
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._lifetime_seconds = lifetime_seconds
        self._failure_seconds = failure_seconds
        self._size_limit = size_limit
        self._known: OrderedDict[str, tuple[frozenset[str], float]] = OrderedDict()
        self._failed_until_seconds = -float("inf")
        self._asking = threading.Lock()

    def __call__(self, user: str) -> frozenset[str]:
        """Return the user's accounts."""
        known = self._recall(user)
        if known is not None:
            return known
        with self._asking:
            # Somebody else may have got the answer, or the failure, while we waited.
            known = self._recall(user)
            return known if known is not None else self._look_up(user)

    def problems(self) -> tuple[str, ...]:
        """Return a sentence for the pages while Slurm does not tell."""
        if self._clock() >= self._failed_until_seconds:
            return ()
        return ("Slurm does not tell who coordinates which account: coordinators see only their own jobs for now.",)

    def _recall(self, user: str) -> frozenset[str] | None:
        known = self._known.get(user)
        if known is not None and known[1] > self._clock():
            return known[0]
        return NOBODY if self._clock() < self._failed_until_seconds else None

    def _look_up(self, user: str) -> frozenset[str]:
        try:
            accounts = self._ask(user)
        except SourceError as error:
            logger.warning("coordinators are not known", extra=log.fields(error=str(error)))
            self._failed_until_seconds = self._clock() + self._failure_seconds
            return NOBODY
        self._known.pop(user, None)
        self._known[user] = (accounts, self._clock() + self._lifetime_seconds)
        while len(self._known) > self._size_limit:
            self._known.popitem(last=False)
        return accounts
