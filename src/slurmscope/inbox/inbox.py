# SPDX-License-Identifier: Apache-2.0
"""Offer the push inbox of an exporter: answer pushes as Prometheus' Pushgateway does, and show them on the metrics
page.

::

    slurmscope_push_inbox_groups 12
    slurmscope_push_inbox_refused_total{reason="conflict"} 1
"""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping

from slurmscope.core.log import fields
from slurmscope.core.settings import Section
from slurmscope.core.units import parse_positive_seconds
from slurmscope.exporter.feature import Feature, Host, Running
from slurmscope.exporter.reading import PushedPage, PushedText
from slurmscope.exporter.self_metrics import PROCESS_METRICS
from slurmscope.exporter.settings import MetricsSettings
from slurmscope.http.server.address import is_listed
from slurmscope.http.server.app import Route
from slurmscope.http.server.page_slots import TurnLock
from slurmscope.http.server.request import BadRequest, HttpRequest
from slurmscope.http.server.response import Response, Upload, text_response
from slurmscope.inbox.group import PREFIXES, Group, parse_body, parse_group_path
from slurmscope.inbox.pushed import FAILURE_TIME, PUSH_TIME, OwnMetrics, PushedFamily, time_family
from slurmscope.inbox.store import WAIT_SECONDS, GroupStore, InboxSettings
from slurmscope.metrics.family import Family, Metric, counter, gauge

logger = logging.getLogger(__name__)


_PUSH_HELP = "Last Unix time when changing this group in the push inbox succeeded."
_FAILURE_HELP = "Last Unix time when changing this group in the push inbox failed."


class InboxPage:
    def __init__(self, store: GroupStore, shared: Mapping[str, object]) -> None:
        """Take the groups, and the names of metrics that the exporter has as well."""
        self._store = store
        self._shared = shared
        self._lock = threading.Lock()
        self._version: int | None = None
        self._page = PushedPage()

    def get(self) -> PushedPage:
        with self._lock:
            version = self._store.version
            groups = self._store.groups()
            if version != self._version or version != self._store.version:
                self._page = _make_page(groups, self._shared)
                self._version = version
            return self._page


def _make_page(groups: tuple[Group, ...], shared: Mapping[str, object]) -> PushedPage:
    compressor = zlib.compressobj(level=1, wbits=31)
    blocks: list[bytes] = []
    beside: dict[str, PushedText] = {}
    for families in _families(groups):
        text = PushedText(families[0].header.encode(), "".join(family.lines for family in families).encode())
        if families[0].name in shared:
            beside[families[0].name] = text
        else:
            blocks.append(compressor.compress(text.header + text.samples))
    return PushedPage(blocks=(*filter(None, blocks), compressor.flush()) if blocks else (), beside=beside)


def _families(groups: tuple[Group, ...]) -> Iterator[list[PushedFamily]]:
    """Yield the families of one name from all groups, in the order of names; the first one has the help."""
    by_name: dict[str, list[PushedFamily]] = {}
    for group in groups:
        for family in group.families.values():
            by_name.setdefault(family.name, []).append(family)
    if groups:
        pushed = ((group.labels, group.pushed_at) for group in groups)
        failed = ((group.labels, group.failed_at) for group in groups)
        by_name[PUSH_TIME] = [time_family(PUSH_TIME, _PUSH_HELP, pushed)]
        by_name[FAILURE_TIME] = [time_family(FAILURE_TIME, _FAILURE_HELP, failed)]
    for _, families in sorted(by_name.items()):
        yield families


_ACCEPTED = 202


class PushEndpoint:
    """Check who pushes, parse the push, and store it; one at a time, since a parsed push takes up to 100 MB."""

    def __init__(self, store: GroupStore) -> None:
        self._store = store
        self._turns = TurnLock()
        route = Route(answer=self.answer, find_upload=self.find_upload, methods=("PUT", "POST", "DELETE"))
        self.routes = dict.fromkeys(PREFIXES, route)

    def find_upload(self, request: HttpRequest) -> Upload | None:
        """Return how the body of a push is read; None for a push without one, or from where none is accepted."""
        has_body = "content-length" in request.headers or "transfer-encoding" in request.headers
        if request.method not in {"PUT", "POST"} or not has_body or self._find_refusal(request):
            return None
        return Upload(limit_bytes=self._store.settings.body_limit, refuse=self.refuse, accepts_gzip=True)

    def answer(self, request: HttpRequest) -> Response:
        """Answer a request: 200 for a push, 202 for a deletion, as the original does."""
        try:
            if refusal := self._find_refusal(request):
                raise refusal
            labels = parse_group_path(request.path, self._store.label_length_limit)
            if request.method == "DELETE":
                self._store.delete(labels)
                return Response(status=_ACCEPTED)
            self._push(request, labels)
        except BadRequest as problem:
            return self.refuse(problem)
        return Response()

    def refuse(self, problem: BadRequest) -> Response:
        """Count a refusal and return its response."""
        self._store.count_refusal(problem.code)
        logger.debug("push refused", extra=fields(problem.code, code=problem.code, error=problem.message))
        return text_response(problem.status, problem.message)

    def _push(self, request: HttpRequest, labels: dict[str, str]) -> None:
        limits = self._store.settings
        if not self._turns.acquire(request.group, WAIT_SECONDS):
            raise BadRequest(503, "The inbox is still storing other pushes.", "busy")
        try:
            families = parse_body(request, size_limit_bytes=limits.body_limit, sample_limit=limits.series_per_group)
            self._store.push(labels, families, is_whole=request.method == "PUT", ttl_seconds=_asked_ttl(request))
        finally:
            self._turns.release()

    def _find_refusal(self, request: HttpRequest) -> BadRequest | None:
        if "origin" in request.headers:
            # Browsers send it: any web page that someone visits on this host could push otherwise.
            return BadRequest(403, "Pushes from web pages are not accepted.", "browser")
        if request.is_authenticated or is_listed(request.peer, self._store.settings.networks):
            return None
        return BadRequest(403, "Pushes are not accepted from this address; see push-inbox.networks.", "network")


def _asked_ttl(request: HttpRequest) -> float | None:
    given = dict(request.query).get("ttl")
    try:
        return None if given is None else parse_positive_seconds(given)
    except ValueError as error:
        raise BadRequest(400, "ttl is not a duration such as 30m or 12h.", "path") from error


GROUPS = gauge("slurmscope_push_inbox_groups", "Groups of pushed metrics; only with push-inbox.enabled.")
SERIES = gauge("slurmscope_push_inbox_series", "Pushed series.")
SIZE = gauge("slurmscope_push_inbox_size_bytes", "Size of all pushed groups as text.")
EXPIRED = counter("slurmscope_push_inbox_expired_total", "Groups removed because their time to live has passed.")
REFUSED = counter(
    "slurmscope_push_inbox_refused_total",
    "Refused pushes by reason: network, browser, path, format, encoding, length, too_large, conflict, limit, full, "
    "busy, storage or other.",
    "reason",
)
INBOX_METRICS: tuple[Metric, ...] = (GROUPS, SERIES, SIZE, EXPIRED, REFUSED)


class Inbox:
    """Open the inbox when the exporter starts to serve; a reload hands its groups on."""

    def __init__(self, settings: InboxSettings, own: OwnMetrics, *, label_length_limit: int) -> None:
        """Take the settings; nothing is opened yet."""
        self.routes: Mapping[str, Route] = {}
        self._settings = settings
        self._own = own
        self._label_length_limit = label_length_limit
        self._store: GroupStore | None = None
        self._page: InboxPage | None = None
        self._is_owner = True

    @property
    def is_open(self) -> bool:
        return self._store is not None

    def open(self, before: Inbox | None) -> None:
        """Take over the groups of the inbox before a reload, or restore those of an earlier process."""
        if not self._settings.enabled:
            return
        if before is not None and before._store is not None:
            self._store, before._is_owner = before._store, False
            self._store.reconfigure(self._settings, self._label_length_limit)
        else:
            self._store = GroupStore(self._settings, self._own, label_length_limit=self._label_length_limit)
        self._page = InboxPage(self._store, self._own.shared)
        self.routes = PushEndpoint(self._store).routes

    def close(self) -> None:
        """Release the directory, unless a reload handed it on."""
        if self._store is not None and self._is_owner:
            self._store.close()

    def page(self) -> PushedPage:
        return self._page.get() if self._page else PushedPage()

    def families(self) -> Iterator[Family]:
        if (store := self._store) is None:
            return
        yield Family(GROUPS, {(): len(store.groups())})
        yield Family(SERIES, {(): store.series_count})
        yield Family(SIZE, {(): store.size_bytes})
        yield Family(EXPIRED, {(): store.expired})
        yield Family(REFUSED, {(reason,): count for reason, count in sorted(store.refused.items())})


def inbox_feature(find_reserved: Callable[[], Iterable[Metric]]) -> Feature:
    """Return the feature; ``find_reserved`` returns the metrics that no push may change."""

    def open_inbox(host: Host) -> Running:
        settings = host.config.of(InboxSettings)
        if not settings.enabled:
            return Running()
        from slurmscope.jobs.queries import FOREIGN_METRICS

        own = OwnMetrics(find_reserved(), shared=PROCESS_METRICS, others=FOREIGN_METRICS)
        inbox = Inbox(settings, own, label_length_limit=host.config.of(MetricsSettings).label_length_limit)
        return Running(
            routes=lambda: inbox.routes,
            families=lambda _: inbox.families(),
            pushed=inbox.page,
            state=inbox,
            start=lambda before: inbox.open(before if isinstance(before, Inbox) else None),
            close=inbox.close,
        )

    return Feature(
        name="inbox",
        sections=(Section(name="push-inbox", type=InboxSettings),),
        metrics=INBOX_METRICS,
        open=open_inbox,
    )
