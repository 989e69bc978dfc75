# SPDX-License-Identifier: Apache-2.0
"""Count what the portal answers, and how long people wait for it.

Routes are counted by their template: an address that somebody invents must not invent a series.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from slurmscope.metrics.family import Family, Histogram, counter, histogram
from slurmscope.portal.scope import AsgiApp, AsgiMessage, Receive, Send

if TYPE_CHECKING:
    from fastapi import FastAPI

NO_ROUTE = "none"
NO_ANSWER = "none"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

REQUESTS = counter(
    "slurmscope_portal_requests_total",
    "Requests to the portal by route and class of status code (2xx to 5xx); none where no answer was begun in time.",
    "route",
    "status",
)
DURATION = histogram(
    "slurmscope_portal_request_duration_seconds",
    "Seconds from a request to the begin of its answer.",
    "route",
    buckets=BUCKETS,
)
REQUEST_METRICS = (REQUESTS, DURATION)


class RequestCounts:
    """Keep the sums; any thread may write and read."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}

    def note(self, route: str, status: int | None, seconds: float) -> None:
        """Count one request; without a status it got no answer."""
        with self._lock:
            self._counts[route, f"{status // 100}xx" if status else NO_ANSWER] += 1
            buckets = self._buckets.setdefault(route, [0] * (len(BUCKETS) + 1))
            buckets[bisect_left(BUCKETS, seconds)] += 1
            self._seconds[route] = self._seconds.get(route, 0.0) + seconds

    def families(self) -> Iterator[Family]:
        """Yield the sums of this moment."""
        with self._lock:
            counts = dict(sorted(self._counts.items()))
            waits = {
                (route,): Histogram(tuple(buckets), self._seconds[route])
                for route, buckets in sorted(self._buckets.items())
            }
        yield Family(REQUESTS, counts)
        yield Family(DURATION, waits)


class CountedApp:
    """Wrap the portal's application, and note every request in the ledger."""

    def __init__(self, app: FastAPI, ledger: RequestCounts, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the application with all its routes."""
        self._app: AsgiApp = app
        self._ledger = ledger
        self._clock = clock
        self._plain_routes = dict(_plain_routes(app))

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Pass the request on; the wait ends when the answer begins, for a slow reader is not our doing."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, seconds = self._clock(), None, None

        async def note_begin(message: AsgiMessage) -> None:
            nonlocal status, seconds
            if message["type"] == "http.response.start":
                status, seconds = message["status"], self._clock() - began
            await send(message)

        try:
            await self._app(scope, receive, note_begin)
        finally:
            self._ledger.note(self._route(scope), status, self._clock() - began if seconds is None else seconds)

    def _route(self, scope: Mapping[str, Any]) -> str:
        """Name the template that the application has chosen, which it leaves in the scope."""
        path = getattr(scope.get("route"), "path", None) or self._plain_routes.get(scope.get("endpoint"))
        return path or NO_ROUTE


def _plain_routes(app: FastAPI) -> Iterator[tuple[object, str]]:
    """Yield routes that leave nothing but their function in the scope."""
    from starlette.routing import Route

    for route in app.routes:
        if type(route) is Route:
            yield route.endpoint, route.path
