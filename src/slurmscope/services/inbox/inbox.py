# SPDX-License-Identifier: Apache-2.0
"""Hold the push inbox of an exporter: settings, groups, endpoint and page.

::

    slurmscope_push_inbox_groups 12
    slurmscope_push_inbox_refused_total{reason="conflict"} 1
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from slurmscope.metrics.family import Family, Metric, counter, gauge
from slurmscope.metrics.pushed import OwnMetrics
from slurmscope.outputs.http.app import Route
from slurmscope.services.exporter.readings import PushedPage
from slurmscope.services.inbox.endpoint import PushEndpoint
from slurmscope.services.inbox.page import InboxPage
from slurmscope.services.inbox.settings import InboxSettings
from slurmscope.services.inbox.store import GroupStore

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
        """Return whether pushes are accepted."""
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
        """Return the pushed metrics."""
        return self._page.get() if self._page else PushedPage()

    def families(self) -> Iterator[Family]:
        """Yield the metrics about the inbox."""
        if (store := self._store) is None:
            return
        yield Family(GROUPS, {(): len(store.groups())})
        yield Family(SERIES, {(): store.series_count})
        yield Family(SIZE, {(): store.size_bytes})
        yield Family(EXPIRED, {(): store.expired})
        yield Family(REFUSED, {(reason,): count for reason, count in sorted(store.refused.items())})
