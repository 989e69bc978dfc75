# SPDX-License-Identifier: Apache-2.0
"""Count requests to the portal and their duration.

Requests are counted by route template: arbitrary addresses must not create new series.
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
NO_RESPONSE = "none"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

REQUESTS = counter(
    "slurmscope_portal_requests_total",
    "Requests to the portal by route and status class (2xx to 5xx; none if no response was started).",
    "route",
    "status",
)
DURATION = histogram(
    "slurmscope_portal_request_duration_seconds",
    "Time from a request to the start of its response.",
    "route",
    buckets=BUCKETS,
)
REQUEST_METRICS = (REQUESTS, DURATION)


class RequestCounts:
    """Keep the counters; safe to use from any thread."""

    def __init__(self) -> None:
        """Start at zero."""
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}

    def record(self, route: str, status: int | None, seconds: float) -> None:
        """Count one request; ``status`` is None if no response was started."""
        with self._lock:
            self._counts[route, f"{status // 100}xx" if status else NO_RESPONSE] += 1
            buckets = self._buckets.setdefault(route, [0] * (len(BUCKETS) + 1))
            buckets[bisect_left(BUCKETS, seconds)] += 1
            self._seconds[route] = self._seconds.get(route, 0.0) + seconds

    def families(self) -> Iterator[Family]:
        """Yield the current counters."""
        with self._lock:
            counts = dict(sorted(self._counts.items()))
            durations = {
                (route,): Histogram(tuple(buckets), self._seconds[route])
                for route, buckets in sorted(self._buckets.items())
            }
        yield Family(REQUESTS, counts)
        yield Family(DURATION, durations)


class CountedApp:
    """Wrap the portal's application and count every request."""

    def __init__(self, app: FastAPI, counts: RequestCounts, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Wrap an application that has all its routes."""
        self._app: AsgiApp = app
        self._counts = counts
        self._clock = clock
        self._plain_routes = dict(_plain_routes(app))

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Forward the request; its duration ends when the response starts, to exclude slow clients."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, seconds = self._clock(), None, None

        async def record_start(message: AsgiMessage) -> None:
            nonlocal status, seconds
            if message["type"] == "http.response.start":
                status, seconds = message["status"], self._clock() - began
            await send(message)

        try:
            await self._app(scope, receive, record_start)
        finally:
            self._counts.record(self._route(scope), status, self._clock() - began if seconds is None else seconds)

    def _route(self, scope: Mapping[str, Any]) -> str:
        """Return the route template, which the application stores in the scope."""
        path = getattr(scope.get("route"), "path", None) or self._plain_routes.get(scope.get("endpoint"))
        return path or NO_ROUTE


def _plain_routes(app: FastAPI) -> Iterator[tuple[object, str]]:
    """Yield routes that store only their function in the scope."""
    from starlette.routing import Route

    for route in app.routes:
        if type(route) is Route:
            yield route.endpoint, route.path
