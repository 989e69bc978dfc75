# SPDX-License-Identifier: Apache-2.0
"""Join features to an exporter: tracing, service discovery, pushed metrics, remote write and others.

A feature declares its settings, collectors and readings. It is opened for each configuration, after the features before
it, and then contributes what :class:`Running` has. The first feature of an exporter is the exporter's own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slurmscope.core.check import Check
from slurmscope.core.config import Config
from slurmscope.core.settings import Section
from slurmscope.exporter.collector import Collector, Reading, Role, declared_readings
from slurmscope.exporter.reading import PushedPage, SharedReading, Snapshot
from slurmscope.http.server.app import Audience, Route
from slurmscope.metrics.family import Family, Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What one open feature contributes to the exporter.

    ``start`` begins to serve; it is called once, with the ``state`` of the same feature before a reload, which may be
    taken over. Without ``start``, as for ``--once`` and ``doctor``, a feature only reads. ``families`` takes whether
    each requested collector succeeded on fresh readings. ``hidden_labels`` takes the monotonic time until which it may
    wait, and who reads the page. ``is_output`` is True if the page is sent elsewhere, so that no HTTP server is needed.
    """

    readings: tuple[SharedReading, ...] = ()
    routes: Callable[[], Mapping[str, Route]] = dict
    families: Callable[[Mapping[str, bool]], Iterable[Family]] = lambda _: ()
    hidden_labels: Callable[[float, Audience], frozenset[str]] = lambda _, __: frozenset()
    checks: Callable[[], Iterable[Check]] = tuple
    pushed: Callable[[], PushedPage] | None = None
    is_receiving: Callable[[], bool] = lambda: False
    is_idle: Callable[[], bool] = lambda: False
    is_output: bool = False
    state: object = None
    start: Callable[[object], None] = lambda _: None
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPage:
    """The page of the running exporter, under whatever configuration it has now.

    ``collect`` takes a deadline in seconds and returns the families of a fresh page.
    """

    collect: Callable[[float], Sequence[Family]] = lambda _: ()
    pushed: Callable[[], PushedPage] = PushedPage


@dataclass(slots=True, kw_only=True)
class Host:
    """What a feature is opened with.

    ``readings`` are those of the features before it; ``sources`` is what declared readings are made from, set by the
    first feature.
    """

    role: Role
    config: Config
    environment: Mapping[str, str]
    declared: Mapping[str, Reading]
    is_wanted: Callable[[Metric], bool]
    readings: Mapping[str, SharedReading]
    hidden_labels: Callable[[float, Audience], frozenset[str]]
    page: OwnPage
    sources: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """Declare one feature; ``metrics`` are those of its families, which no collector declares.

    ``readings`` are those that it needs itself, in addition to those of its collectors.
    """

    name: str
    open: Callable[[Host], Running]
    sections: tuple[Section, ...] = ()
    collectors: tuple[Collector, ...] = ()
    readings: tuple[Reading, ...] = ()
    metrics: tuple[Metric, ...] = ()


def collectors_of(features: Iterable[Feature]) -> tuple[Collector, ...]:
    """Return the collectors of all features, enabled or not, by name."""
    found = (collector for feature in features for collector in feature.collectors)
    return tuple(sorted(found, key=lambda collector: collector.name))


class OpenFeatures:
    """The features that are open under one configuration, as one."""

    def __init__(self, *parts: Running) -> None:
        """Take parts without a name, which are not handed on by a reload."""
        self.readings: dict[str, SharedReading] = {}
        self._parts: list[tuple[str, Running]] = []
        for part in parts:
            self.add("", part)

    def add(self, name: str, part: Running) -> None:
        self._parts.append((name, part))
        self.readings.update((reading.name, reading) for reading in part.readings)

    def require(self, collectors: Iterable[Collector]) -> None:
        """Raise LookupError if a collector needs a reading that does not exist."""
        for collector in collectors:
            for name in collector.reading_names:
                if name not in self.readings:
                    raise LookupError(
                        f"collector {collector.name} needs the reading {name!r}, which is not one of "
                        f"{', '.join(sorted(self.readings))}"
                    )

    def read(self, names: Iterable[str], until: float) -> dict[str, Snapshot]:
        """Read several sources in parallel and wait for all of them, until the given monotonic time."""
        wanted = set(names)
        self.request(wanted)
        return self.wait(wanted, until)

    def request(self, names: Collection[str]) -> None:
        for name in sorted(set(names)):
            self.readings[name].request()

    def wait(self, names: Collection[str], until: float) -> dict[str, Snapshot]:
        """Wait for several sources that are being read, until the given monotonic time."""
        return {name: self.readings[name].wait(until) for name in sorted(set(names))}

    def hidden_labels(self, until: float, audience: Audience) -> frozenset[str]:
        """Return, before the given monotonic time, the labels whose metrics these readers must not get."""
        return frozenset().union(*(part.hidden_labels(until, audience) for part in self._all()))

    def routes(self) -> dict[str, Route]:
        return {path: route for part in self._all() for path, route in part.routes().items()}

    def families(self, is_success: Mapping[str, bool]) -> Iterator[Family]:
        for part in self._all():
            yield from part.families(is_success)

    def checks(self) -> Iterator[Check]:
        """Check the machine for ``slurmscope doctor``."""
        for part in self._all():
            yield from part.checks()

    def pushed(self) -> PushedPage:
        return next((part.pushed() for part in self._all() if part.pushed), PushedPage())

    @property
    def is_text_only(self) -> bool:
        """Return whether there may be pushed metrics: names that are valid in text may clash in OpenMetrics."""
        return any(part.pushed for part in self._all())

    @property
    def is_output(self) -> bool:
        """Return whether a feature sends the page elsewhere."""
        return any(part.is_output for part in self._all())

    def is_receiving(self) -> bool:
        """Return whether clients are sending data now, which should not wait until a page is made."""
        return any(part.is_receiving() for part in self._all())

    def is_idle(self) -> bool:
        """Return whether the last readings hold nothing worth a push."""
        return any(part.is_idle() for part in self._all())

    def start(self, before: OpenFeatures | None) -> None:
        """Begin to serve; ``before`` are the features before a reload, whose state may be taken over."""
        states = {name: part.state for name, part in before._parts} if before else {}
        for name, part in self._parts:
            part.start(states.get(name))

    def close(self) -> None:
        """Stop background threads; the last feature first, since it may use the others."""
        for part in reversed(list(self._all())):
            part.close()

    def _all(self) -> Iterator[Running]:
        return (part for _, part in self._parts)


def open_features(
    features: Sequence[Feature],
    role: Role,
    config: Config,
    environment: Mapping[str, str],
    *,
    is_wanted: Callable[[Metric], bool] = lambda _: True,
    page: OwnPage | None = None,
) -> OpenFeatures:
    """Open features in order; raise what the first one raises that cannot be opened."""
    opened = OpenFeatures()
    own = (reading for feature in features for reading in feature.readings)
    host = Host(
        role=role,
        config=config,
        environment=environment,
        declared=declared_readings(collectors_of(features), *own),
        is_wanted=is_wanted,
        readings=opened.readings,
        hidden_labels=opened.hidden_labels,
        page=page or OwnPage(),
    )
    try:
        for feature in features:
            opened.add(feature.name, feature.open(host))
    except BaseException:
        opened.close()
        raise
    return opened
