# SPDX-License-Identifier: Apache-2.0
"""Write pushed metrics for the metrics page; compressed once per change, however many clients scrape it."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator, Mapping

from slurmscope.metrics.pushed import FAILURE_TIME, PUSH_TIME, PushedFamily, time_family
from slurmscope.services.exporter.readings import PushedPage, PushedText
from slurmscope.services.inbox.group import Group
from slurmscope.services.inbox.store import GroupStore

_PUSH_HELP = "Last Unix time when changing this group in the push inbox succeeded."
_FAILURE_HELP = "Last Unix time when changing this group in the push inbox failed."


class InboxPage:
    """Hold the page of the current groups."""

    def __init__(self, store: GroupStore, shared: Mapping[str, object]) -> None:
        """Take the groups, and the names of metrics that the exporter has as well."""
        self._store = store
        self._shared = shared
        self._lock = threading.Lock()
        self._version: int | None = None
        self._page = PushedPage()

    def get(self) -> PushedPage:
        """Return the page."""
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
