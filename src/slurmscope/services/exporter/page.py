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
from slurmscope.services.exporter.collecting import (
    CollectorOutcome,
    EnabledCollector,
    is_fresh,
    is_served,
    run_collector,
)
from slurmscope.services.exporter.readings import Snapshot, read_all
from slurmscope.services.exporter.wiring import Wiring

DEFAULT_DEADLINE_SECONDS = 30.0
PAGES_KEPT = 4

PageKey = tuple[Format, frozenset[str], tuple[tuple[str, tuple[int, ...]], ...]]


class Busy(SlurmscopeError):
    """Another scrape was building the page for longer than this caller could wait."""


@dataclass(frozen=True, slots=True)
class Health:
    """Tell how each collector stands in one scrape."""

    outcomes: Mapping[str, CollectorOutcome]
    is_success: Mapping[str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageInput:
    """Hold what one page is made of: the readings of this moment, and what must not be shown."""

    chosen: tuple[EnabledCollector, ...]
    snapshots: Mapping[str, Snapshot]
    hidden_labels: frozenset[str]

    @property
    def served(self) -> tuple[EnabledCollector, ...]:
        """Return the collectors whose readings are all there."""
        return tuple(enabled for enabled in self.chosen if is_served(enabled, self.snapshots))

    def key(self, format: Format) -> PageKey:
        """Return what a page depends on: equal keys, equal pages."""
        versions = ((e.name, tuple(self.snapshots[n].version for n in e.collector.needs)) for e in self.served)
        return format, self.hidden_labels, tuple(versions)


@dataclass(slots=True)
class Page:
    """Hold what the collectors gave, compressed, and how they went."""

    blocks: list[bytes] = field(default_factory=list)
    outcomes: dict[str, CollectorOutcome] = field(default_factory=dict)


class ExpositionService:
    """Answer scrapes from shared readings."""

    def __init__(
        self,
        collectors: Iterable[EnabledCollector],
        wiring: Wiring,
        *,
        guard: Guard,
        self_families: Callable[[Health], Iterable[Family]],
        is_wanted: Callable[[Metric], bool] = lambda _: True,
    ) -> None:
        """Take what is switched on, what it reads, who tells about slurmscope itself, and which metrics are served."""
        self.collectors = tuple(sorted(collectors, key=lambda enabled: enabled.name))
        self.guard = guard
        self._wiring = wiring
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
        material = self._gather(chosen, until)
        page = self._page(format, material, until)
        own = b"".join(write(self._own_families(material, page.outcomes), format)) + end(format)
        if is_gzip:
            return [*page.blocks, zlib.compress(own, level=1, wbits=31)]
        return _plain(page.blocks, own)

    def expose_once(self, format: Format) -> tuple[Iterator[bytes], dict[str, bool]]:
        """Return one fresh page, uncompressed, and a mapping that tells at its end which collectors were good."""
        material = self._gather(self.collectors, time.monotonic() + DEFAULT_DEADLINE_SECONDS)
        is_success: dict[str, bool] = {}

        def blocks() -> Iterator[bytes]:
            outcomes: dict[str, CollectorOutcome] = {}
            yield from write(self._families(material, outcomes), format)
            is_success.update(_health(material, outcomes).is_success)
            yield from write(self._own_families(material, outcomes), format)
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

    def _gather(self, chosen: tuple[EnabledCollector, ...], until: float) -> PageInput:
        needs = [name for enabled in chosen for name in enabled.collector.needs]
        hidden_labels = self._wiring.hidden_labels
        return PageInput(
            chosen=chosen,
            snapshots=read_all(self._wiring.readings, needs, until),
            hidden_labels=hidden_labels(until) if hidden_labels else frozenset(),
        )

    def _page(self, format: Format, material: PageInput, until: float) -> Page:
        key = material.key(format)
        if not self._building.acquire(timeout=max(0.0, until - time.monotonic())):
            raise Busy("the page is still being built for another scrape")
        try:
            page = self._pages.get(key)
            if page is None:
                self._forget_old_pages()
                page = self._pages[key] = self._build(format, material)
            return page
        finally:
            self._building.release()

    def _build(self, format: Format, material: PageInput) -> Page:
        page = Page()
        compressor = zlib.compressobj(level=1, wbits=31)
        for block in write(self._families(material, page.outcomes), format):
            if compressed := compressor.compress(block):
                page.blocks.append(compressed)
        page.blocks.append(compressor.flush())
        return page

    def _forget_old_pages(self) -> None:
        """Drop pages of readings that are gone, and the oldest when there are still too many."""
        current = {name: reading.version for name, reading in self._wiring.readings.items()}
        needs = {enabled.name: enabled.collector.needs for enabled in self.collectors}
        for key in list(self._pages):
            is_current = all(versions == tuple(current[n] for n in needs[name]) for name, versions in key[2])
            if not is_current or len(self._pages) >= PAGES_KEPT:
                del self._pages[key]

    def _families(self, material: PageInput, outcomes: dict[str, CollectorOutcome]) -> Iterator[Family]:
        families = (
            family
            for enabled in material.served
            for family in run_collector(enabled, material.snapshots, outcomes)
            if self._is_wanted(family.metric) and material.hidden_labels.isdisjoint(family.metric.labels)
        )
        return self.guard.admit(families)

    def _own_families(self, material: PageInput, outcomes: Mapping[str, CollectorOutcome]) -> Iterator[Family]:
        """Yield the families about slurmscope itself; a guard of their own, because nothing is dropped here."""
        families = self._self_families(_health(material, outcomes))
        return Guard().admit(family for family in families if self._is_wanted(family.metric))


def _health(material: PageInput, outcomes: Mapping[str, CollectorOutcome]) -> Health:
    is_success = {
        enabled.name: is_fresh(enabled, material.snapshots)
        and (enabled.name not in outcomes or outcomes[enabled.name].is_success)
        for enabled in material.chosen
    }
    return Health(outcomes, is_success)


def _plain(blocks: Iterable[bytes], own: bytes) -> Iterator[bytes]:
    decompressor = zlib.decompressobj(wbits=31)
    for block in blocks:
        yield decompressor.decompress(block)
    yield decompressor.flush() + own
