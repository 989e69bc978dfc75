# SPDX-License-Identifier: Apache-2.0
"""Build the metrics page: once per set of readings, however many clients scrape it.

The part made by collectors is cached compressed until a reading changes. The part about slurmscope itself is small and
made fresh for every scrape; gzip allows the two to be sent one after the other.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain

from slurmscope.core.errors import SlurmscopeError
from slurmscope.core.log import fields
from slurmscope.exporter.collector import Collector
from slurmscope.exporter.feature import OpenFeatures
from slurmscope.exporter.reading import PushedPage, Snapshot
from slurmscope.http.server.app import Audience, ScrapeRequest, UnknownCollector
from slurmscope.http.server.page_slots import TurnLock
from slurmscope.metrics.family import Family, Metric
from slurmscope.metrics.guard import Guard
from slurmscope.metrics.write import Format, end, write

logger = logging.getLogger(__name__)


DEFAULT_DEADLINE_SECONDS = 30.0
CACHED_PAGES = 4
LONGEST_PAUSE_SECONDS = 0.005

Adapt = Callable[[Iterable[Family]], Iterable[Family]]
PageKey = tuple[Format, frozenset[str], tuple[tuple[str, tuple[int, ...]], ...]]


class Busy(SlurmscopeError):
    """Another scrape was building the page for longer than this caller could wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnabledCollector:
    collector: Collector
    options: object

    @property
    def name(self) -> str:
        return self.collector.name

    def has_values(self, snapshots: Mapping[str, Snapshot]) -> bool:
        """Return whether all readings that the collector needs have a value, fresh or not."""
        return all(snapshots[name].has_value for name in self.collector.reading_names)

    def is_fresh(self, snapshots: Mapping[str, Snapshot]) -> bool:
        """Return whether the latest read of all readings that the collector needs succeeded."""
        return all(snapshots[name].has_value and snapshots[name].error is None for name in self.collector.reading_names)


@dataclass(frozen=True, slots=True)
class CollectorOutcome:
    """The result of a collector's last run; the duration is that of the run, not of the scrape."""

    is_success: bool
    duration_seconds: float


@dataclass(frozen=True, slots=True)
class CollectorHealth:
    """The outcome of each collector that ran, and whether each requested one succeeded."""

    outcomes: Mapping[str, CollectorOutcome]
    is_success: Mapping[str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageInput:
    """What one page is made from: the current readings, and the labels that must not be shown."""

    collectors: tuple[EnabledCollector, ...]
    snapshots: Mapping[str, Snapshot]
    hidden_labels: frozenset[str]

    @property
    def served(self) -> tuple[EnabledCollector, ...]:
        """Return the collectors whose readings all have a value."""
        return tuple(enabled for enabled in self.collectors if enabled.has_values(self.snapshots))

    def key(self, format: Format) -> PageKey:
        """Return what the page depends on: equal keys, equal pages."""
        versions = ((e.name, tuple(self.snapshots[n].version for n in e.collector.reading_names)) for e in self.served)
        return format, self.hidden_labels, tuple(versions)

    def health(self, outcomes: Mapping[str, CollectorOutcome]) -> CollectorHealth:
        """Combine the outcomes of collectors with the state of their readings."""
        is_success = {
            enabled.name: enabled.is_fresh(self.snapshots)
            and (enabled.name not in outcomes or outcomes[enabled.name].is_success)
            for enabled in self.collectors
        }
        return CollectorHealth(outcomes, is_success)


@dataclass(slots=True)
class CachedPage:
    """The compressed output of the collectors, and their outcomes."""

    blocks: list[bytes] = field(default_factory=list)
    outcomes: dict[str, CollectorOutcome] = field(default_factory=dict)


class PageService:
    """Answer scrapes from shared readings."""

    def __init__(
        self,
        collectors: Iterable[EnabledCollector],
        features: OpenFeatures,
        *,
        guard: Guard,
        self_families: Callable[[CollectorHealth], Iterable[Family]],
        is_wanted: Callable[[Metric], bool] = lambda _: True,
        narrow: Callable[[Family], Family] = lambda family: family,
    ) -> None:
        """Take the enabled collectors, the features that read for them, the metrics about slurmscope, and filters.

        ``is_wanted`` selects metrics, ``narrow`` leaves the wanted samples of a family.
        """
        self.collectors = tuple(sorted(collectors, key=lambda enabled: enabled.name))
        features.require(enabled.collector for enabled in self.collectors)
        self._guard = guard
        self._features = features
        self._self_families = self_families
        self._is_wanted = is_wanted
        self._narrow = narrow
        self._building = TurnLock()
        self._pages: dict[PageKey, CachedPage] = {}

    def scrape(self, request: ScrapeRequest) -> Iterable[bytes]:
        """Return the page in blocks, within the client's deadline."""
        collectors = self._select(request.include, request.exclude)
        until = time.monotonic() + (request.deadline_seconds or DEFAULT_DEADLINE_SECONDS)
        page_input = self._read(collectors, until, request.audience)
        page = self._page(request, page_input, until)
        # A client that wants some collectors only wants nothing else.
        pushed = self._features.pushed() if request.include is None else PushedPage()
        families = self._own_families(page_input, page.outcomes)
        own = b"".join(_write_beside(families, pushed, request.format)) + end(request.format)
        if request.is_gzip:
            return [*page.blocks, *pushed.blocks, zlib.compress(own, level=1, wbits=31)]
        return chain(decompressed(page.blocks), decompressed(pushed.blocks), (own,))

    def expose_once(
        self, format: Format, adapt: Adapt = iter, audience: Audience = Audience.HERE
    ) -> tuple[Iterator[bytes], Mapping[str, bool]]:
        """Return a page that is not cached, in blocks, and the success of each collector.

        ``adapt`` changes families before they are written.
        """
        until = time.monotonic() + DEFAULT_DEADLINE_SECONDS
        page_input = self._read(self.collectors, until, audience)
        with self._locked(until):
            page = self._build(format, page_input, adapt)
        own = write(adapt(self._own_families(page_input, page.outcomes)), format)
        return chain(decompressed(page.blocks), own, (end(format),)), page_input.health(page.outcomes).is_success

    def collect_once(self, deadline_seconds: float) -> list[Family]:
        until = time.monotonic() + deadline_seconds
        page_input = self._read(self.collectors, until, Audience.HERE)
        outcomes: dict[str, CollectorOutcome] = {}
        with self._locked(until):
            families = list(self._families(page_input, outcomes))
        return [*families, *self._own_families(page_input, outcomes)]

    def _select(self, include: frozenset[str] | None, exclude: frozenset[str]) -> tuple[EnabledCollector, ...]:
        names = {enabled.name for enabled in self.collectors}
        for name in sorted((include or frozenset()) | exclude):
            if name not in names:
                raise UnknownCollector(name)
        wanted = names if include is None else include
        return tuple(enabled for enabled in self.collectors if enabled.name in wanted - exclude)

    def _read(self, collectors: tuple[EnabledCollector, ...], until: float, audience: Audience) -> PageInput:
        needs = [name for enabled in collectors for name in enabled.collector.reading_names]
        # Before waiting: what is hidden must be known although other sources use up the time.
        self._features.request(needs)
        hidden_labels = self._features.hidden_labels(until, audience)
        snapshots = self._features.wait(needs, until)
        return PageInput(collectors=collectors, snapshots=snapshots, hidden_labels=hidden_labels)

    def _page(self, request: ScrapeRequest, page_input: PageInput, until: float) -> CachedPage:
        key = page_input.key(request.format)
        with self._locked(until, request.group):
            page = self._pages.get(key)
            if page is None:
                self._evict_pages()
                page = self._pages[key] = self._build(request.format, page_input)
            return page

    @contextmanager
    def _locked(self, until: float, group: str = "") -> Iterator[None]:
        """Let one thread at a time run the collectors, because the guard is shared."""
        if not self._building.acquire(group, max(0.0, until - time.monotonic())):
            raise Busy("the page is still being built for another scrape")
        try:
            yield
        finally:
            self._building.release()

    def _build(self, format: Format, page_input: PageInput, adapt: Adapt = iter) -> CachedPage:
        page = CachedPage()
        compressor = zlib.compressobj(level=1, wbits=31)
        began = time.perf_counter()
        for block in write(adapt(self._families(page_input, page.outcomes)), format):
            if compressed := compressor.compress(block):
                page.blocks.append(compressed)
            if self._features.is_receiving():
                # Other threads get half of the time: with Python's lock, they would otherwise wait for the whole page.
                time.sleep(min(time.perf_counter() - began, LONGEST_PAUSE_SECONDS))
            began = time.perf_counter()
        page.blocks.append(compressor.flush())
        return page

    def _evict_pages(self) -> None:
        """Drop pages of outdated readings, and the oldest if there are still too many."""
        current = {name: reading.version for name, reading in self._features.readings.items()}
        needs = {enabled.name: enabled.collector.reading_names for enabled in self.collectors}
        for key in list(self._pages):
            is_current = all(versions == tuple(current[n] for n in needs[name]) for name, versions in key[2])
            if not is_current or len(self._pages) >= CACHED_PAGES:
                del self._pages[key]

    def _families(self, page_input: PageInput, outcomes: dict[str, CollectorOutcome]) -> Iterator[Family]:
        families = (
            self._narrow(family)
            for enabled in page_input.served
            for family in run_collector(enabled, page_input.snapshots, outcomes)
            if self._is_shown(family.metric, page_input)
        )
        return self._guard.admit(families)

    def _is_shown(self, metric: Metric, page_input: PageInput) -> bool:
        return self._is_wanted(metric) and page_input.hidden_labels.isdisjoint(metric.labels)

    def _own_families(self, page_input: PageInput, outcomes: Mapping[str, CollectorOutcome]) -> Iterator[Family]:
        """Yield the families about slurmscope itself, and those of features, which may name users and jobs.

        They have a guard of their own, because none of them is dropped for a limit on series.
        """
        families = self._self_families(page_input.health(outcomes))
        return Guard().admit(family for family in families if self._is_shown(family.metric, page_input))


def run_collector(
    enabled: EnabledCollector, snapshots: Mapping[str, Snapshot], outcomes: dict[str, CollectorOutcome]
) -> Iterator[Family]:
    """Yield the declared families of one collector and record its outcome.

    Families are yielded one by one so that a large one can be written and freed. Families yielded before a failure
    stay on the page: each is complete.
    """
    started = time.perf_counter()
    spent = 0.0
    readings = {name: snapshots[name].value for name in enabled.collector.reading_names}
    declared = {metric.name: metric for metric in enabled.collector.metrics}
    is_success = True
    try:
        for family in enabled.collector.collect(enabled.options, **readings):
            if declared.get(family.metric.name) != family.metric:
                raise LookupError(f"{family.metric.name} is not declared by the collector")
            if not isinstance(family.samples, Mapping):
                # Lazy samples may raise, and must do so here.
                family = replace(family, samples=tuple(family.samples))  # noqa: PLW2901 - the same family
            spent += time.perf_counter() - started
            yield family
            started = time.perf_counter()
    except Exception:
        logger.exception("collector failed", extra=fields(enabled.name, collector=enabled.name))
        is_success = False
    outcomes[enabled.name] = CollectorOutcome(is_success, spent + time.perf_counter() - started)


def _write_beside(families: Iterable[Family], pushed: PushedPage, format: Format) -> Iterator[bytes]:
    """Write families; pushed samples of the same name follow ours, because a family must be in one place."""
    rest = dict(pushed.beside)
    for family in families:
        yield from write((family,), format)
        if text := rest.pop(family.metric.name, None):
            yield text.samples
    for text in rest.values():
        yield text.header + text.samples


def decompressed(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the text of a page that was compressed as one stream; nothing if there are no blocks."""
    decompressor = zlib.decompressobj(wbits=31)
    for block in blocks:
        yield decompressor.decompress(block)
    yield decompressor.flush()
