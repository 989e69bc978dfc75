# SPDX-License-Identifier: Apache-2.0
"""Join the collectors and features of a site's extensions to an exporter, so that a failure affects only them.

Their readings have threads of their own, as all readings do, and a scrape waits for one no longer than a second. What
they raise is logged once and counted. An extension that declares what slurmscope has already is not used.

An installed package offers one as an entry point of the group ``slurmscope.extensions``. Only those that the
configuration names are imported. One that cannot be used has the reason as its ``problem``, and adds nothing.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType
from typing import TypeVar

from slurmscope.core.check import Check
from slurmscope.core.errors import SourceError
from slurmscope.core.log import fields
from slurmscope.exporter.collector import Collector, Reading, Role
from slurmscope.exporter.feature import Feature, Host, Running, collectors_of
from slurmscope.exporter.reading import SharedReading, open_reading
from slurmscope.exporter.self_metrics import EXTENSION, EXTENSION_ERRORS, SELF_METRICS
from slurmscope.http.server.app import Route
from slurmscope.metrics.family import Family

logger = logging.getLogger(__name__)

T = TypeVar("T")
U = TypeVar("U")

PATIENCE_SECONDS = 1.0
SHORTEST_SECONDS = 5.0
GROUP = "slurmscope.extensions"
ADVICE = "see docs/adding.md; remove its name from extensions.load if it is not needed"


@dataclass(slots=True)
class _State:
    """What went wrong in one extension since the exporter began."""

    extension: Extension
    parts: tuple[str, ...] = ()
    problem: str = ""
    errors: int = 0
    logged: set[str] = field(default_factory=set)

    def attempt(self, what: str, run: Callable[[], T], otherwise: U) -> T | U:
        """Run a function of the extension; log each type of failure once, count all, and return ``otherwise``."""
        try:
            return run()
        except Exception as error:
            cause = f"{what} {type(error).__name__}"
            if cause not in self.logged:
                name = self.extension.name
                logger.exception("extension failed", extra=fields(f"{name} {what}", extension=name, part=what))
            self.logged.add(cause)
            self.errors += 1
            self.problem = f"{what}: {type(error).__name__}: {error}"
            return otherwise


def add_extensions(features: Sequence[Feature], role: Role, names: Iterable[str]) -> tuple[Feature, ...]:
    """Return the features with those of the named extensions, in their order."""
    extended, states = list(features), []
    for name in names:
        extension = load_extension(name)
        state = _State(extension)
        states.append(state)
        # What is declared may have any type.
        clash = state.attempt("declarations", partial(find_clash, extension, role, tuple(extended)), "")
        state.problem = extension.problem or clash or state.problem
        join = partial(_join, extension, role, state)
        own = None if state.problem else state.attempt("declarations", join, None)
        if own is None:
            state.errors = 1
            continue
        state.parts = tuple(f"collector {collector.name}" for collector in own[-1].collectors)
        state.parts += tuple(f"feature {feature.name}" for feature in own[:-1])
        extended += own
    return (*extended, _status(states)) if states else tuple(features)


def _join(extension: Extension, role: Role, state: _State) -> tuple[Feature, ...]:
    """Return what is added to the features; collectors last, which may need readings that the features open."""
    return (*(_guarded(each, state) for each in _features(extension)), _collecting(extension, role))


def find_clash(extension: Extension, role: Role, features: Iterable[Feature]) -> str:
    """Return what the extension declares although it exists already; nothing if it can be used."""
    features = tuple(features)
    collectors = collectors_of(features)
    taken = {metric.name for c in collectors for metric in c.metrics}
    taken |= {metric.name for each in features for metric in each.metrics} | {metric.name for metric in SELF_METRICS}
    own, own_features = _collectors(extension, role), _features(extension)
    names = [f"collector {c.name}" for c in own if c.name in {other.name for other in collectors}]
    names += [f"feature {f.name}" for f in own_features if f.name in {other.name for other in features}]
    metrics = [metric.name for c in own for metric in c.metrics] + [m.name for f in own_features for m in f.metrics]
    names += [name for name in metrics if name in taken or metrics.count(name) > 1]
    return f"declares what exists already: {', '.join(dict.fromkeys(names))}" if names else ""


def _collectors(extension: Extension, role: Role) -> tuple[Collector, ...]:
    of_features = (collector for feature in _features(extension) for collector in feature.collectors)
    found = (*extension.declared("COLLECTOR", Collector), *of_features)
    # A module may name a collector for itself and in its feature.
    return tuple({id(collector): collector for collector in found if collector.role is role}.values())


def _features(extension: Extension) -> tuple[Feature, ...]:
    return extension.declared("FEATURE", Feature)


def _collecting(extension: Extension, role: Role) -> Feature:
    """Return a feature with all collectors; their readings get the extension's name before their own."""
    own = _collectors(extension, role)
    declared = {need.name: need for collector in own for need in collector.needs if isinstance(need, Reading)}
    prefix = f"{extension.name}."

    def open_all(host: Host) -> Running:
        opened = [_open(replace(reading, name=prefix + name), host) for name, reading in declared.items()]
        needed = {need for collector in own for need in collector.needs if isinstance(need, str)}
        unknown = sorted(needed - host.readings.keys())
        return Running(readings=(*opened, *(_broken(name, f"there is no reading {name!r}") for name in unknown)))

    collectors = tuple(_renamed(collector, prefix) for collector in own)
    return Feature(name=f"extension {extension.name}", collectors=collectors, open=open_all)


def _renamed(collector: Collector, prefix: str) -> Collector:
    def collect(options: object, **readings: object) -> Iterable[Family]:
        return collector.collect(options, **{name.removeprefix(prefix): value for name, value in readings.items()})

    needs = tuple(need if isinstance(need, str) else prefix + need.name for need in collector.needs)
    return replace(collector, needs=needs, collect=collect)


def _open(declared: Reading, host: Host) -> SharedReading:
    try:
        return open_reading(
            declared, host.sources, shortest_seconds=SHORTEST_SECONDS, patience_seconds=PATIENCE_SECONDS
        )
    except Exception as error:
        logger.exception("reading cannot be opened", extra=fields(declared.name, reading=declared.name))
        return _broken(declared.name, f"{type(error).__name__}: {error}")


def _broken(name: str, problem: str) -> SharedReading:
    def fail() -> object:
        raise SourceError(problem)

    return SharedReading(name, fail, interval_seconds=300.0)


def _guarded(feature: Feature, state: _State) -> Feature:
    """Return the feature without what could affect others: readings of known names, paths that are not below its own.

    Its collectors are in :func:`_collecting`; its readings are those that it opens.
    """

    def open_(host: Host) -> Running:
        return state.attempt(f"open {feature.name}", lambda: _open_guarded(feature, state, host), Running())

    return Feature(name=feature.name, sections=feature.sections, metrics=feature.metrics, open=open_)


def _open_guarded(feature: Feature, state: _State, host: Host) -> Running:
    base, guard = f"/extensions/{state.extension.name}/", partial(_call, state, feature.name)
    no_routes: Mapping[str, Route] = {}
    opened = feature.open(host)
    if not isinstance(opened, Running):
        raise TypeError(f"opened {type(opened).__name__}, not Running")
    readings = tuple(reading for reading in opened.readings if reading.name not in host.readings)
    for reading in readings:
        reading.patience_seconds = min(reading.patience_seconds, PATIENCE_SECONDS)
    return Running(
        readings=readings,
        routes=lambda: guard("routes", lambda: _below(base, opened.routes()), no_routes),
        families=lambda good: guard("families", lambda: _evaluated(feature, opened.families(good)), ()),
        checks=lambda: guard("checks", lambda: tuple(opened.checks()), ()),
        is_output=opened.is_output,
        state=opened.state,
        start=lambda before: guard("start", lambda: opened.start(before), None),
        close=lambda: guard("close", opened.close, None),
    )


def _call(state: _State, name: str, what: str, run: Callable[[], T], otherwise: T) -> T:
    return state.attempt(f"{what} of {name}", run, otherwise)


def _below(base: str, routes: Mapping[str, Route]) -> Mapping[str, Route]:
    return {path: route for path, route in routes.items() if path.startswith(base)}


def _evaluated(feature: Feature, families: Iterable[Family]) -> tuple[Family, ...]:
    """Return the declared families, with samples that raise nothing any more."""
    return tuple(
        family if isinstance(family.samples, Mapping) else replace(family, samples=tuple(family.samples))
        for family in families
        if family.metric in feature.metrics
    )


def _status(states: Sequence[_State]) -> Feature:
    """Return the feature that exports and checks the extensions themselves."""

    def families(_: Mapping[str, bool]) -> Iterator[Family]:
        yield Family(EXTENSION, {(s.extension.name, s.extension.version): 1.0 for s in states})
        yield Family(EXTENSION_ERRORS, {(s.extension.name,): float(s.errors) for s in states})

    def checks() -> Iterator[Check]:
        return (check_extension(state.extension, state.problem, state.parts) for state in states)

    return Feature(name="extensions", open=lambda _: Running(families=families, checks=checks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """One extension: its module, and the release of its package, or why it cannot be used."""

    name: str
    version: str = ""
    module: ModuleType | None = None
    problem: str = ""

    def declared(self, attribute: str, type_: type[T]) -> tuple[T, ...]:
        """Return the objects of a type that the module declares under a name, as one or as a tuple."""
        found = getattr(self.module, attribute, ())
        return tuple(each for each in (found if isinstance(found, tuple) else (found,)) if isinstance(each, type_))


@functools.cache
def load_extension(name: str) -> Extension:
    """Import an extension; a failure is logged once, and repeated only after a restart."""
    # It takes longer to import than all that a node agent needs.
    from importlib.metadata import entry_points

    found = tuple(entry_points(group=GROUP, name=name))
    if len(found) != 1:
        problem = f"{len(found) or 'no'} installed package{'s have' * (len(found) > 1) or ' has'} it in {GROUP}"
        logger.error("extension cannot be used", extra=fields(name, extension=name, error=problem))
        return Extension(name=name, problem=problem)
    version = found[0].dist.version if found[0].dist else ""
    try:
        module = found[0].load()
    except (Exception, SystemExit) as error:
        logger.exception("extension cannot be imported", extra=fields(name, extension=name))
        return Extension(name=name, version=version, problem=f"{type(error).__name__}: {error}")
    if not isinstance(module, ModuleType):
        return Extension(name=name, version=version, problem="its entry point does not name a module")
    return Extension(name=name, version=version, module=module)


def check_extension(extension: Extension, problem: str, parts: Iterable[str]) -> Check:
    """Report one extension, its version and what it adds for ``slurmscope doctor``."""
    release = f"version {extension.version}" if extension.version else "not installed"
    message = f"{release}: {problem or ', '.join(parts) or 'adds nothing here'}"
    return Check(
        name=f"extension {extension.name}", is_good=not problem, message=message, advice=ADVICE if problem else ""
    )
