# SPDX-License-Identifier: Apache-2.0
"""Serve the portal's metrics to staff, and to a Prometheus server with a staff token.

Requests are counted by route template: arbitrary addresses must not create new series.

::

    slurmscope_portal_requests_total{route="/jobs/{shown_id}",status="2xx"} 412
    slurmscope_series_queries_total{kind="curves"} 96
    slurmscope_reporter_read_until_timestamp_seconds 1.7841024e+09
"""

from __future__ import annotations

import platform
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.responses import Response

from slurmscope import __version__
from slurmscope.archive.size import ArchiveSize
from slurmscope.exporter.reading import SharedReading
from slurmscope.exporter.self_metrics import BUILD_INFO, process_families, reading_families
from slurmscope.http.server.app import choose_format
from slurmscope.metrics.family import Family, Histogram, counter, gauge, histogram
from slurmscope.metrics.write import end, write
from slurmscope.portal.context import Context
from slurmscope.portal.node_list import SUSPECT_METRICS, suspect_families
from slurmscope.portal.scope import AsgiApp, AsgiMessage, Receive, Send
from slurmscope.prometheus.query_counters import SERIES_METRICS, QueryCounters, series_families
from slurmscope.reporter.reporter import ReporterProgress

if TYPE_CHECKING:
    from slurmscope.reporter.reporters import Reporters

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


ARCHIVED = counter("slurmscope_reporter_jobs_total", "Ended job runs archived since the start.")
ROUNDS = counter("slurmscope_reporter_rounds_total", "Completed polls of accounting.")
FAILURES = counter("slurmscope_reporter_failures_total", "Failed polls of accounting; the next poll catches up.")
REPORTER_UP = gauge("slurmscope_reporter_up", "Whether the latest poll of accounting succeeded (1) or failed (0).")
READ_UNTIL = gauge(
    "slurmscope_reporter_read_until_timestamp_seconds",
    "Time up to which all ended jobs are archived; absent until the first poll, and where another process archives.",
)

ELECTED = gauge(
    "slurmscope_reporter_elected",
    "1 if this process archives the jobs of the cluster, 0 if it stands by.",
    "cluster",
)

COMMENTS_STOPPED = gauge(
    "slurmscope_reporter_admin_comments_stopped",
    "1 if no AdminComment is written any more, because sacctmgr changed the first one; absent before it.",
    "cluster",
)
ARCHIVE_SIZE = gauge(
    "slurmscope_archive_size_bytes", "Size of the archive; of a database server, of the whole database it is in."
)
ARCHIVE_FREE = gauge(
    "slurmscope_archive_free_bytes", "Free space on the disk of an archive in SQLite; absent for database servers."
)
ARCHIVE_METRICS = (ARCHIVE_SIZE, ARCHIVE_FREE)
ARCHIVE_SECONDS = 300.0

REPORTER_METRICS = (ELECTED, ARCHIVED, ROUNDS, FAILURES, REPORTER_UP, READ_UNTIL, COMMENTS_STOPPED)
PORTAL_METRICS = (*REQUEST_METRICS, *REPORTER_METRICS, *ARCHIVE_METRICS, *SERIES_METRICS, *SUSPECT_METRICS)
"""Metrics of the portal only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortalMetrics:
    """Collect the metrics; ``query_counters`` is None without a Prometheus server, ``reporters`` with --no-reporter."""

    requests: RequestCounts
    reporters: Reporters | None
    query_counters: QueryCounters | None
    readings: Mapping[str, SharedReading]
    archive: SharedReading
    suspects: SharedReading

    def families(self) -> Iterator[Family]:
        yield Family(BUILD_INFO, {(__version__, platform.python_version()): 1.0})
        yield from self.requests.families()
        if self.reporters is not None:
            yield from reporter_families(self.reporters.progress)
            yield Family(ELECTED, {(name,): float(is_ours) for name, is_ours in self.reporters.elected.items()})
            stopped = self.reporters.stopped_comments.items()
            yield Family(COMMENTS_STOPPED, {(name,): float(is_stopped) for name, is_stopped in stopped})
        yield from archive_families(self.archive)
        if self.query_counters is not None:
            yield from series_families(self.query_counters.snapshot())
        yield from suspect_families(self.suspects)
        yield from reading_families({**self.readings, self.archive.name: self.archive})
        yield from process_families()


def reporter_families(progress: ReporterProgress) -> Iterator[Family]:
    """Yield the progress of archiving."""
    yield Family(ARCHIVED, {(): progress.jobs_archived})
    yield Family(ROUNDS, {(): progress.rounds})
    yield Family(FAILURES, {(): progress.failures})
    if progress.rounds or progress.failures:
        yield Family(REPORTER_UP, {(): float(not progress.problem)})
    if progress.read_until_seconds is not None:
        yield Family(READ_UNTIL, {(): progress.read_until_seconds})


def archive_families(archive: SharedReading) -> Iterator[Family]:
    """Yield the size of the archive; it is measured in the background, and no request waits for it."""
    archive.request()
    size = archive.wait(time.monotonic()).value
    if isinstance(size, ArchiveSize):
        yield Family(ARCHIVE_SIZE, {(): size.used_bytes})
        if size.free_bytes is not None:
            yield Family(ARCHIVE_FREE, {(): size.free_bytes})


PATH = "/metrics"


def add_metrics_page(app: FastAPI, families: Callable[[], Iterable[Family]]) -> None:
    """Add the route; access is not audited, because the metrics contain no user data."""

    def show_metrics(context: Context) -> Response:
        if not context.viewer.is_staff:
            raise HTTPException(403, "Only support staff and administrators have access to the metrics.")
        chosen = choose_format(context.request.headers.get("accept", ""))
        page = b"".join((*write(families(), chosen), end(chosen)))
        return Response(page, headers={"Content-Type": chosen.content_type, "Vary": "Accept"})

    app.add_api_route(PATH, show_metrics, methods=["GET"], include_in_schema=False)
