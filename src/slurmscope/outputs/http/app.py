# SPDX-License-Identifier: Apache-2.0
"""Answer the paths of an exporter: metrics, health, and a landing page."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import sys
import threading
from collections.abc import Generator, Iterable, Mapping
from typing import Protocol

from slurmscope import __version__
from slurmscope.errors import ConfigError, SlurmscopeError
from slurmscope.log import fields
from slurmscope.metrics.write import Format
from slurmscope.outputs.http.landing import landing_response
from slurmscope.outputs.http.negotiate import accepts_gzip, choose_format
from slurmscope.outputs.http.request import BadRequest, HttpRequest
from slurmscope.outputs.http.response import Header, Response, Route, sentence

logger = logging.getLogger(__name__)
_TIMEOUT_HEADER = "x-prometheus-scrape-timeout-seconds"
_LONGEST_DEADLINE_SECONDS = 3600.0
_NAME_LIMIT = 100


class UnknownCollector(SlurmscopeError):
    """A request names a collector that is not there or not switched on."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no collector {name[:_NAME_LIMIT]!a} here")
        self.name = name


class Exposition(Protocol):
    """What the app serves.

    ``scrape`` may raise :class:`UnknownCollector` (400) or another error with a sentence for the
    client (503), when called or while its first block is made. With ``is_gzip`` it compresses itself.
    """

    def scrape(
        self,
        *,
        format: Format,
        is_gzip: bool,
        include: frozenset[str] | None,
        exclude: frozenset[str],
        deadline_seconds: float | None,
    ) -> Iterable[bytes]:
        """Return the page in blocks."""
        ...

    def is_ready(self) -> bool:
        """Tell whether a scrape would be answered."""
        ...


class ExporterApp:
    """Find and answer the routes of an exporter."""

    def __init__(
        self,
        exposition: Exposition,
        *,
        telemetry_path: str = "/metrics",
        max_requests: int = 40,
        name: str = "slurmscope",
        extra_routes: Mapping[str, Route] | None = None,
    ) -> None:
        """Take what to serve; ``max_requests`` scrapes run at the same time, 0 means any number."""
        self._exposition = exposition
        self._name = name
        self._telemetry_path = telemetry_path
        self._slots = threading.BoundedSemaphore(max_requests or sys.maxsize)
        own = {
            "/": Route(answer=self._landing),
            "/-/healthy": Route(answer=lambda _: sentence(200, "Healthy.")),
            "/-/ready": Route(answer=self._ready),
        }
        if not telemetry_path.startswith("/") or telemetry_path in own or telemetry_path in (extra_routes or {}):
            raise ConfigError(f"telemetry path {telemetry_path!r} is not free, or does not begin with /")
        self._routes = {**(extra_routes or {}), **own, telemetry_path: Route(answer=self._scrape)}

    def __call__(self, request: HttpRequest) -> Route:
        """Return the route of a request, or one that says why there is none."""
        route = self._routes.get(request.path)
        if route is None:
            return Route(answer=lambda _: sentence(404, "There is nothing at this path."))
        if request.method not in route.methods:
            allow = ("Allow", ", ".join(route.methods))
            return Route(answer=lambda _: sentence(405, "This path does not take this method.", allow))
        return route

    def _landing(self, _: HttpRequest) -> Response:
        links = (
            (self._telemetry_path, "Metrics for Prometheus; add ?collect[]=NAME to see one collector only."),
            ("/-/healthy", "Answers 200 while the program runs."),
            ("/-/ready", "Answers 200 when a scrape would be answered, 503 before."),
        )
        return landing_response(self._name, __version__, links)

    def _ready(self, _: HttpRequest) -> Response:
        return sentence(200, "Ready.") if self._exposition.is_ready() else sentence(503, "Not ready yet.")

    def _scrape(self, request: HttpRequest) -> Response:
        include, exclude = chosen_collectors(request)
        chosen = choose_format(request.headers.get("accept", ""))
        is_gzip = accepts_gzip(request.headers.get("accept-encoding", ""))
        deadline_seconds = scrape_deadline(request.headers.get(_TIMEOUT_HEADER, ""))
        if not self._slots.acquire(blocking=False):
            return sentence(503, "Too many scrapes at the same time.")
        with contextlib.ExitStack() as stack:
            stack.callback(self._slots.release)
            try:
                page = self._exposition.scrape(
                    format=chosen,
                    is_gzip=is_gzip,
                    include=include,
                    exclude=exclude,
                    deadline_seconds=deadline_seconds,
                )
                blocks = iter(page)
                if isinstance(blocks, Generator):
                    stack.callback(blocks.close)
                first = next(blocks, b"")
            except UnknownCollector as problem:
                return sentence(400, f"{problem}.")
            except SlurmscopeError as problem:
                logger.warning("scrape not answered", extra=fields(error=str(problem)))
                return sentence(503, f"{problem}.")
            # The place is free again when the page was sent or given up, not when it was begun.
            release = stack.pop_all().close
        return Response(
            headers=_page_headers(chosen, is_gzip=is_gzip), body=itertools.chain((first,), blocks), close=release
        )


def _page_headers(format: Format, *, is_gzip: bool) -> tuple[Header, ...]:
    encoding: tuple[Header, ...] = (("Content-Encoding", "gzip"),) if is_gzip else ()
    return (
        ("Content-Type", format.content_type),
        *encoding,
        ("Vary", "Accept, Accept-Encoding"),
        ("X-Content-Type-Options", "nosniff"),
        ("Cache-Control", "no-store"),
    )


def chosen_collectors(request: HttpRequest) -> tuple[frozenset[str] | None, frozenset[str]]:
    """Return which collectors a request wants, ``None`` for all, and which it does not."""
    include = frozenset(value for key, value in request.query if key == "collect[]")
    exclude = frozenset(value for key, value in request.query if key == "exclude[]")
    if include and exclude:
        raise BadRequest(400, "Give collect[] or exclude[], not both.")
    return include or None, exclude


def scrape_deadline(header: str) -> float | None:
    """Return the seconds a scrape may take: the client's timeout less a margin for the way back."""
    try:
        timeout_seconds = float(header)
    except ValueError:
        return None
    if not math.isfinite(timeout_seconds) or timeout_seconds <= 0:
        return None
    timeout_seconds = min(timeout_seconds, _LONGEST_DEADLINE_SECONDS)
    return timeout_seconds - min(0.5, timeout_seconds / 10)
