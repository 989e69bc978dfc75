# SPDX-License-Identifier: Apache-2.0
"""Answer the paths of an exporter: metrics, health, and a landing page.

Nothing the client wrote is echoed in the response, and no header is an error: if it cannot be parsed, the client gets
uncompressed text 0.0.4.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import logging
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_network

from slurmscope import __version__
from slurmscope.core.errors import ConfigError, SlurmscopeError
from slurmscope.core.log import fields
from slurmscope.http.server.address import is_listed
from slurmscope.http.server.page_slots import PATIENCE_SECONDS, PageSlots
from slurmscope.http.server.request import BadRequest, HttpRequest
from slurmscope.http.server.response import FindUpload, Header, Response, Upload, text_response
from slurmscope.metrics.write import Format

logger = logging.getLogger(__name__)


_QUALITY = re.compile(r"(?:0(?:\.[0-9]{0,9})?|1(?:\.0{0,9})?)\Z")
_EXACT, _TYPE, _ANY = 2, 1, 0


@dataclass(frozen=True, slots=True)
class _Offer:
    format: Format
    type: str
    subtype: str
    versions: frozenset[str]


_OFFERS = (
    # The first wins if a client prefers neither.
    _Offer(Format.TEXT, "text", "plain", frozenset({"", "0.0.4"})),
    _Offer(Format.OPENMETRICS, "application", "openmetrics-text", frozenset({"", "0.0.1", "1.0.0"})),
)


@dataclass(frozen=True, slots=True)
class _Range:
    """One item of a header: ``text/plain;version=0.0.4;q=0.5`` or ``gzip;q=1``."""

    name: str
    parameters: dict[str, str]
    quality: float
    position: int


def choose_format(accept: str) -> Format:
    """Return the format a client prefers, text 0.0.4 if it does not say."""
    ranges = list(_parse_ranges(accept))
    ranked = [(offer, _rank(offer, ranges)) for offer in _OFFERS]
    best, rank = max(ranked, key=lambda pair: pair[1])
    return best.format if rank[0] > 0 else Format.TEXT


def prefers_json(accept: str) -> bool:
    """Return whether a client prefers JSON to a page for people; one that does not say gets the page."""
    qualities: dict[str, float] = {}
    for item in _parse_ranges(accept):
        qualities.setdefault(item.name, item.quality)
    json_quality = qualities.get("application/json", qualities.get("application/*", 0.0))
    return json_quality > max(qualities.get("text/html", 0.0), qualities.get("text/*", 0.0), 0.0)


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether a client accepts gzip: by name, or by a star if gzip is not named."""
    qualities = {item.name: item.quality for item in _parse_ranges(accept_encoding)}
    for name in ("gzip", "x-gzip", "*"):
        if name in qualities:
            return qualities[name] > 0
    return False


def _rank(offer: _Offer, ranges: list[_Range]) -> tuple[float, int, int]:
    """Return quality, exactness and position of the range that matches an offer best.

    The most exact range decides, so ``*/*, application/openmetrics-text;q=0`` refuses OpenMetrics.
    """
    matches = [(exactness, item.quality, -item.position) for item in ranges for exactness in _matches(offer, item)]
    if not matches:
        return 0.0, _ANY, 0
    exactness, quality, earliness = max(matches)
    return quality, exactness, earliness if exactness == _EXACT else 0


def _matches(offer: _Offer, item: _Range) -> Iterator[int]:
    type_, _, subtype = item.name.partition("/")
    if (type_, subtype) == (offer.type, offer.subtype):
        if item.parameters.get("version", "") in offer.versions:
            yield _EXACT
    elif (type_, subtype) == (offer.type, "*"):
        yield _TYPE
    elif (type_, subtype) == ("*", "*"):
        yield _ANY


def _parse_ranges(header: str) -> Iterator[_Range]:
    """Yield the items of a header; one with a malformed quality is left out."""
    for position, item in enumerate(header.lower().split(",")):
        name, *fields = item.split(";")
        pairs = (field.partition("=") for field in fields)
        parameters = {key.strip(): value.strip().strip('"') for key, _, value in pairs}
        quality = parameters.get("q", "1")
        if name.strip() and _QUALITY.match(quality):
            yield _Range(name.strip(), parameters, float(quality), position)


_METHODS = ("GET", "HEAD")
_LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
_TIMEOUT_HEADER = "x-prometheus-scrape-timeout-seconds"
_LONGEST_DEADLINE_SECONDS = 3600.0
_SHORTEST_DEADLINE_SECONDS = 0.001
_LONGEST_WAIT_SECONDS = 20.0
_NAME_LIMIT = 100

STYLE = "body{font-family:sans-serif;margin:3em auto;max-width:40em;padding:0 1em}dt{margin-top:1em}"
# Allows this inline style and no script; a test compares the hash with the style.
POLICY = (
    "default-src 'none'; style-src 'sha256-Tc8eduw7TFBLEwgC0UByI5MyRo3P2YPTR9bR0s0Kfb4='; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


class UnknownCollector(SlurmscopeError):
    """A request names a collector that does not exist or is disabled."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no collector {name[:_NAME_LIMIT]!a} here")
        self.name = name


class Audience(enum.Enum):
    """Who reads a page."""

    ADMITTED = "clients with a password or certificate, and the user who runs the command"
    HERE = "clients on this machine, and outputs"
    NETWORK = "clients on other machines"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeRequest:
    """What a client wants; ``include`` is None for all collectors, ``deadline_seconds`` without a timeout.

    ``group`` are the clients with which it shares limits.
    """

    format: Format = Format.TEXT
    is_gzip: bool = False
    include: frozenset[str] | None = None
    exclude: frozenset[str] = frozenset()
    deadline_seconds: float | None = None
    audience: Audience = Audience.NETWORK
    group: str = ""


Scrape = Callable[[ScrapeRequest], Iterable[bytes]]
"""Return the page in blocks, compressed if the request says so.

May raise :class:`UnknownCollector` (400) or another SlurmscopeError (503), when called or while making the first block.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How one further path of an exporter is answered, and its text on the landing page, if it is shown there."""

    answer: Callable[[HttpRequest], Response]
    find_upload: FindUpload
    methods: tuple[str, ...]
    link_text: str = ""


class ExporterApp:
    """Route requests to the metrics page, the health checks and the landing page."""

    def __init__(
        self,
        scrape: Scrape,
        *,
        telemetry_path: str = "/metrics",
        max_requests: int = 40,
        name: str = "slurmscope",
        find_routes: Callable[[], Mapping[str, Route]] = dict,
        is_text_only: Callable[[], bool] = lambda: False,
    ) -> None:
        """Take the function that makes pages; ``max_requests`` limits parallel scrapes, 0 means no limit.

        ``find_routes`` returns further paths, which a reload may change; one that ends in / answers all paths below it.
        While ``is_text_only`` returns True, pages are in the text format, whatever the client prefers.
        """
        self._find_routes = find_routes
        self._is_text_only = is_text_only
        self._scrape = scrape
        self._name = name
        self._telemetry_path = telemetry_path
        self._slots = PageSlots(max_requests)
        own: dict[str, Callable[[HttpRequest], Response]] = {
            "/": self._answer_landing,
            "/-/healthy": lambda _: text_response(200, "Healthy."),
            "/-/ready": lambda _: text_response(200, "Ready."),
        }
        if not telemetry_path.startswith("/") or telemetry_path in own:
            raise ConfigError(f"telemetry path {telemetry_path!r} is already used, or does not begin with /")
        self._routes = {**own, telemetry_path: self._answer_scrape}

    def __call__(self, request: HttpRequest) -> Response:
        answer = self._routes.get(request.path)
        methods: tuple[str, ...] = _METHODS
        if answer is None and (route := self._find_route(request.path)) is not None:
            answer, methods = route.answer, route.methods
        if answer is None:
            return text_response(404, "There is nothing at this path.")
        if request.method not in methods:
            return text_response(405, "This path does not take this method.", ("Allow", ", ".join(methods)))
        return answer(request)

    def find_upload(self, request: HttpRequest) -> Upload | None:
        """Return how the body of a request is read; None if it is not."""
        if request.path in self._routes or (route := self._find_route(request.path)) is None:
            return None
        return route.find_upload(request)

    def _find_route(self, path: str) -> Route | None:
        routes = self._find_routes()
        return routes.get(path) or next(
            (route for prefix, route in routes.items() if prefix.endswith("/") and path.startswith(prefix)), None
        )

    def _answer_landing(self, _: HttpRequest) -> Response:
        links = (
            (self._telemetry_path, "Metrics for Prometheus; add ?collect[]=NAME to see one collector only."),
            *((path, route.link_text) for path, route in self._find_routes().items() if route.link_text),
            ("/-/healthy", "Answers 200 while the exporter runs."),
            ("/-/ready", "Answers 200 when the exporter can be scraped, which is as long as it runs."),
        )
        return landing_response(self._name, __version__, links)

    def _answer_scrape(self, request: HttpRequest) -> Response:
        wanted = parse_scrape(request)
        if self._is_text_only():
            wanted = replace(wanted, format=Format.TEXT)
        began = time.monotonic()
        patience_seconds = min(wanted.deadline_seconds or 2 * PATIENCE_SECONDS, _LONGEST_WAIT_SECONDS) / 2
        page = self._slots.take(wanted.group, patience_seconds)
        if page is None:
            return text_response(503, "Too many scrapes at the same time.")
        if wanted.deadline_seconds is not None:
            # The client has waited for its turn, too.
            left_seconds = wanted.deadline_seconds - (time.monotonic() - began)
            wanted = replace(wanted, deadline_seconds=max(_SHORTEST_DEADLINE_SECONDS, left_seconds))
        with contextlib.ExitStack() as stack:
            stack.callback(page.close)
            try:
                first = page.start(self._scrape(wanted))
            except UnknownCollector as problem:
                return text_response(400, f"{problem}.")
            except SlurmscopeError as problem:
                logger.warning("scrape failed", extra=fields(error=str(problem)))
                return text_response(503, f"{problem}.")
            # The page is closed when it was sent or given up, not when it was begun.
            stack.pop_all()
        return Response(headers=_page_headers(wanted), body=itertools.chain((first,), page), close=page.close)


def parse_scrape(request: HttpRequest) -> ScrapeRequest:
    """Read what a client wants from the query and the headers of its request."""
    include = frozenset(value for key, value in request.query if key == "collect[]")
    exclude = frozenset(value for key, value in request.query if key == "exclude[]")
    if include and exclude:
        raise BadRequest(400, "Give collect[] or exclude[], not both.")
    return ScrapeRequest(
        format=choose_format(request.headers.get("accept", "")),
        is_gzip=accepts_gzip(request.headers.get("accept-encoding", "")),
        include=include or None,
        exclude=exclude,
        deadline_seconds=scrape_deadline(request.headers.get(_TIMEOUT_HEADER, "")),
        audience=_find_audience(request),
        group=request.group,
    )


def _find_audience(request: HttpRequest) -> Audience:
    if request.is_authenticated:
        return Audience.ADMITTED
    is_here = request.credentials is not None or is_listed(request.peer, _LOOPBACK)
    return Audience.HERE if is_here else Audience.NETWORK


def scrape_deadline(header: str) -> float | None:
    """Return the seconds a scrape may take: the client's timeout less a margin for the response."""
    try:
        timeout_seconds = float(header)
    except ValueError:
        return None
    if not math.isfinite(timeout_seconds) or timeout_seconds <= 0:
        return None
    timeout_seconds = min(timeout_seconds, _LONGEST_DEADLINE_SECONDS)
    return timeout_seconds - min(0.5, timeout_seconds / 10)


def _page_headers(wanted: ScrapeRequest) -> tuple[Header, ...]:
    encoding: tuple[Header, ...] = (("Content-Encoding", "gzip"),) if wanted.is_gzip else ()
    return (
        ("Content-Type", wanted.format.content_type),
        *encoding,
        ("Vary", "Accept, Accept-Encoding"),
        ("X-Content-Type-Options", "nosniff"),
        ("Cache-Control", "no-store"),
    )


def landing_response(name: str, version: str, links: Iterable[tuple[str, str]]) -> Response:
    """Return the landing page as a response; links are pairs of a path and its description."""
    headers = (
        ("Content-Type", "text/html; charset=utf-8"),
        ("Content-Security-Policy", POLICY),
        ("X-Content-Type-Options", "nosniff"),
    )
    return Response(headers=headers, body=render_landing(name, version, links).encode("utf-8", "replace"))


def render_landing(name: str, version: str, links: Iterable[tuple[str, str]]) -> str:
    """Render the landing page; all text in it is escaped."""
    title = escape(f"{name} {version}")
    items = "".join(
        f'<dt><a href="{escape(path)}">{escape(path)}</a></dt><dd>{escape(text)}</dd>\n' for path, text in links
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title>\n'
        f"<style>{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n<dl>\n{items}</dl>\n</body>\n</html>\n"
    )


def escape(text: str) -> str:
    """Escape text for HTML; the module ``html`` would load every entity name there is."""
    return text.translate(_ESCAPES)
