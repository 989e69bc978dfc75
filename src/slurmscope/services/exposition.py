# SPDX-License-Identifier: Apache-2.0
"""Build the page that is scraped: once per set of readings, however many ask for it.

The part made by collectors is kept compressed until a reading changes. The part about slurmscope
itself is small and made fresh for every scrape; gzip allows the two to be sent one after the other.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from slurmscope.errors import SlurmscopeError
from slurmscope.metrics.family import Family, Metric
from slurmscope.metrics.guard import Guard
from slurmscope.metrics.write import Format, end, write
from slurmscope.outputs.http.app import UnknownCollector
from slurmscope.services.collecting import EnabledCollector, Outcome, is_fresh, is_served, run_collector
from slurmscope.services.readings import SharedReading, Snapshot, read_all

DEFAULT_DEADLINE_SECONDS = 30.0
PAGES_KEPT = 4

PageKey = tuple[Format, tuple[tuple[str, tuple[int, ...]], ...]]


class Busy(SlurmscopeError):
    """Another scrape was building the page for longer than this caller could wait."""


@dataclass(frozen=True, slots=True)
class Health:
    """Tell how each collector stands in one scrape."""

    outcomes: Mapping[str, Outcome]
    is_success: Mapping[str, bool]


@dataclass(slots=True)
class Page:
    """Hold what the collectors gave, compressed, and how they went."""

    blocks: list[bytes] = field(default_factory=list)
    outcomes: dict[str, Outcome] = field(default_factory=dict)


class ExpositionService:
    """Answer scrapes from shared readings."""

    def __init__(
        self,
        collectors: Iterable[EnabledCollector],
        readings: Mapping[str, SharedReading],
        *,
        guard: Guard,
        self_families: Callable[[Health], Iterable[Family]],
        is_wanted: Callable[[Metric], bool] = lambda _: True,
    ) -> None:
        """Take what is switched on, what it reads, who tells about slurmscope itself, and which metrics are served."""
        self.collectors = tuple(sorted(collectors, key=lambda enabled: enabled.name))
        self.readings = readings
        self.guard = guard
        self._self_families = self_families
        self._is_wanted = is_wanted
        self._building = threading.Lock()
        self._pages: dict[PageKey, Page] = {}

    def scrape(
        self,
        *,
        format: Format,
        is_gzip: bool,
        include: frozenset[str] | None,
        exclude: frozenset[str],
        deadline_seconds: float | None,
    ) -> Iterable[bytes]:
        """Return the page in blocks, inside the caller's deadline."""
        chosen = self._choose(include, exclude)
        until = time.monotonic() + (deadline_seconds or DEFAULT_DEADLINE_SECONDS)
        snapshots = self._read(chosen, until)
        page = self._page(format, chosen, snapshots, until)
        health = self._health(chosen, snapshots, page.outcomes)
        own = b"".join(write(self._own(health), format)) + end(format)
        if is_gzip:
            return [*page.blocks, _compressed(own)]
        return _plain(page.blocks, own)

    def expose_once(self, format: Format) -> tuple[Iterator[bytes], dict[str, bool]]:
        """Return one fresh page, uncompressed, and a mapping that tells at its end which collectors were good."""
        snapshots = self._read(self.collectors, time.monotonic() + DEFAULT_DEADLINE_SECONDS)
        served = [enabled for enabled in self.collectors if is_served(enabled, snapshots)]
        is_success: dict[str, bool] = {}

        def blocks() -> Iterator[bytes]:
            outcomes: dict[str, Outcome] = {}
            yield from write(self.guard.admit(self._families(served, snapshots, outcomes)), format)
            health = self._health(self.collectors, snapshots, outcomes)
            is_success.update(health.is_success)
            yield from write(self._own(health), format)
            yield end(format)

        return blocks(), is_success

    def is_ready(self) -> bool:
        """Say yes as soon as a scrape can be answered; a failing source is told in the page."""
        return True

    def _choose(self, include: frozenset[str] | None, exclude: frozenset[str]) -> tuple[EnabledCollector, ...]:
        names = {enabled.name for enabled in self.collectors}
        for name in sorted((include or frozenset()) | exclude):
            if name not in names:
                raise UnknownCollector(name)
        wanted = names if include is None else include
        return tuple(enabled for enabled in self.collectors if enabled.name in wanted - exclude)

    def _read(self, chosen: Iterable[EnabledCollector], until: float) -> dict[str, Snapshot]:
        return read_all(self.readings, (name for enabled in chosen for name in enabled.collector.needs), until)

    def _page(
        self, format: Format, chosen: Iterable[EnabledCollector], snapshots: Mapping[str, Snapshot], until: float
    ) -> Page:
        served = tuple(enabled for enabled in chosen if is_served(enabled, snapshots))
        key = (format, tuple((e.name, tuple(snapshots[n].version for n in e.collector.needs)) for e in served))
        if not self._building.acquire(timeout=max(0.0, until - time.monotonic())):
            raise Busy("the page is still being built for another scrape")
        try:
            page = self._pages.get(key)
            if page is None:
                self._forget_old_pages()
                page = self._pages[key] = self._build(format, served, snapshots)
            return page
        finally:
            self._building.release()

    def _build(self, format: Format, served: Iterable[EnabledCollector], snapshots: Mapping[str, Snapshot]) -> Page:
        page = Page()
        compressor = zlib.compressobj(level=1, wbits=31)
        for block in write(self.guard.admit(self._families(served, snapshots, page.outcomes)), format):
            if compressed := compressor.compress(block):
                page.blocks.append(compressed)
        page.blocks.append(compressor.flush())
        return page

    def _families(
        self, served: Iterable[EnabledCollector], snapshots: Mapping[str, Snapshot], outcomes: dict[str, Outcome]
    ) -> Iterator[Family]:
        for enabled in served:
            for family in run_collector(enabled, snapshots, outcomes):
                if self._is_wanted(family.metric):
                    yield family

    def _own(self, health: Health) -> Iterator[Family]:
        """Yield the families about slurmscope itself; a guard of its own, because nothing is dropped here."""
        return Guard().admit(family for family in self._self_families(health) if self._is_wanted(family.metric))

    def _forget_old_pages(self) -> None:
        """Drop pages of readings that are gone, and the oldest when there are still too many."""
        current = {name: reading.version for name, reading in self.readings.items()}
        needs = {enabled.name: enabled.collector.needs for enabled in self.collectors}
        for key in list(self._pages):
            is_current = all(versions == tuple(current[n] for n in needs[name]) for name, versions in key[1])
            if not is_current or len(self._pages) >= PAGES_KEPT:
                del self._pages[key]

    def _health(
        self, chosen: Iterable[EnabledCollector], snapshots: Mapping[str, Snapshot], outcomes: Mapping[str, Outcome]
    ) -> Health:
        is_success = {
            enabled.name: is_fresh(enabled, snapshots)
            and (enabled.name not in outcomes or outcomes[enabled.name].is_success)
            for enabled in chosen
        }
        return Health(outcomes, is_success)


def _compressed(data: bytes) -> bytes:
    return zlib.compress(data, level=1, wbits=31)


def _plain(blocks: Iterable[bytes], own: bytes) -> Iterator[bytes]:
    decompressor = zlib.decompressobj(wbits=31)
    for block in blocks:
        yield decompressor.decompress(block)
    yield decompressor.flush() + own
