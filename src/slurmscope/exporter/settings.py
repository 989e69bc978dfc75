# SPDX-License-Identifier: Apache-2.0
"""Declare the settings that all exporters share: outputs, logging, the metrics page and collectors.

They select the metrics that an exporter serves: by profile, by older names, and by a regular expression. The metrics of
the profile ``reports`` are handed in; see :mod:`slurmscope.jobs.queries`.
"""

from __future__ import annotations

import enum
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from slurmscope.core.config import EXTENSIONS, Config, Resolved, file_path, parse_path
from slurmscope.core.settings import Section, choice, duration, one_of, parse_list, parse_text, setting
from slurmscope.exporter.collector import Collector, Role
from slurmscope.metrics.family import Family, Metric


def parse_listen_addresses(given: object) -> tuple[str, ...]:
    """Parse the addresses to listen on; at least one is needed."""
    addresses = parse_list(given)
    if not addresses:
        raise ValueError("no address given; use :PORT, HOST:PORT or [IPV6]:PORT")
    return addresses


def parse_telemetry_path(given: object) -> str:
    """Parse the path of the metrics page; the landing page and the health paths are reserved."""
    path = parse_text(given)
    if not path.startswith("/") or path == "/" or path.startswith("/-/") or set(path) & set(" ?#%"):
        raise ValueError(f"{path!r} is not a valid path; use one such as /metrics")
    return path


def parse_textfile(given: object) -> Path:
    """Parse the path of a file that node_exporter's textfile collector reads."""
    path = parse_path(given)
    if path.suffix != ".prom":
        raise ValueError(f"{str(path)!r} does not end in .prom; node_exporter reads only *.prom files")
    return path


def parse_push_url(given: object) -> str:
    url = parse_text(given)
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url.rsplit('@', 1)[-1]!r} is not an http:// or https:// URL")
    return url


def parse_labels(given: object) -> tuple[str, ...]:
    """Parse grouping labels written as name=value."""
    items = parse_list(given)
    for item in items:
        name, equals, _ = item.partition("=")
        if not equals or not name.isidentifier() or not name.isascii():
            raise ValueError(f"{item!r} is not of the form name=value")
    return items


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """How metrics are served over HTTP."""

    listen_address: tuple[str, ...] = setting(
        (),
        "Address to listen on: :PORT, HOST:PORT or [IPV6]:PORT; repeatable.",
        parse=parse_listen_addresses,
        metavar="ADDRESS",
    )
    telemetry_path: str = setting(
        "/metrics", "Path under which to expose metrics.", parse=parse_telemetry_path, metavar="PATH"
    )
    config_file: Path | None = file_path(
        None,
        "File for TLS and basic authentication, in the format of the Prometheus exporter toolkit.",
        key="config.file",
    )
    max_requests: int = 40
    """Maximum number of parallel scrapes; further requests get status 503."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSettings:
    """Other outputs. With any of them, the HTTP server starts only if an address is given."""

    textfile: Path | None = setting(
        None,
        "Write metrics periodically to this file, for node_exporter's textfile collector; must end in .prom.",
        parse=parse_textfile,
        metavar="FILE",
    )
    push: str = setting(
        "",
        "Push metrics to this Pushgateway, and delete them there on exit.",
        parse=parse_push_url,
        metavar="URL",
        is_secret=True,
    )
    push_grouping: tuple[str, ...] = setting(
        (),
        "Grouping label of pushed metrics, as name=value; default is instance with this host's name; repeatable.",
        parse=parse_labels,
        metavar="NAME=VALUE",
    )
    interval: float = duration(
        15.0, "Interval between writes to the text file, pushes, or remote write samples.", flag="interval"
    )


LEVELS = ("debug", "info", "warn", "error")
_POSIX_CLASS = re.compile(r"\[:\^?\w+:\]")
ADDRESSES = {Role.CLUSTER: (":9092",), Role.NODE: (":9798",)}


def parse_level(given: object) -> str:
    """Parse a log level in any case; ``warning`` is accepted for ``warn``."""
    word = parse_text(given).lower()
    return str(one_of(*LEVELS)("warn" if word == "warning" else word))


def parse_regex(given: object) -> str:
    """Parse a regular expression of Python, and reject what other engines read differently.

    A class such as ``[[:alpha:]]``, which Prometheus and the replaced exporters know, would match something else here
    without a word.
    """
    text = parse_text(given)
    if _POSIX_CLASS.search(text):
        raise ValueError(
            f"{text!r} has a POSIX class; write [a-zA-Z] instead of [[:alpha:]], [0-9] instead of [[:digit:]]"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(text)
    except (re.error, Warning) as error:
        raise ValueError(f"{text!r} is not a valid Python regular expression: {error}") from error
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Logging."""

    level: str = setting(
        "info",
        "Minimum level of logged messages: debug, info, warn or error.",
        parse=parse_level,
        metavar="LEVEL",
        environment=("LOGLEVEL",),
    )
    format: str = setting(
        "logfmt", "Format of log lines: logfmt or json.", parse=one_of("logfmt", "json"), metavar="FORMAT"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """Which metrics are exported."""

    compat: bool = setting(True, "Also expose the metric names of the tools that slurmscope replaces.")
    exclude: str = setting(
        "", "Do not expose metrics whose name matches this regular expression.", parse=parse_regex, metavar="REGEX"
    )
    series_limit: int = setting(
        100_000, "Maximum number of series per metric; further series are dropped and counted.", metavar="COUNT"
    )
    label_length_limit: int = 1024
    """Maximum length of a label value; longer values are truncated."""


class MetricsProfile(enum.StrEnum):
    """How many metrics the node agent serves."""

    REPORTS = "reports"
    STANDARD = "standard"
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsProfileSettings:
    """How many metrics of each job are exported."""

    profile: str = choice(
        MetricsProfile.STANDARD.value,
        MetricsProfile,
        "Which metrics to expose: reports (only what reports, portal and the example rules query), standard, or "
        "full (also the usage of each step and task).",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorSettings:
    """Settings that apply to all collectors."""

    disable_defaults: bool = setting(
        False, "Disable all collectors except those enabled explicitly with --collector.<name>."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """Whether a collector is enabled."""

    enabled: bool = setting(True, "")


def exporter_sections(role: Role, collectors: Iterable[Collector]) -> Iterator[Section]:
    """Yield the configuration sections that all exporters have, with those of collectors."""
    yield Section(name="web", type=WebSettings, defaults={"listen_address": ADDRESSES[role]})
    yield Section(name="output", type=OutputSettings)
    yield Section(name="metrics", type=MetricsSettings)
    if role is Role.NODE:
        yield Section(name="metrics", type=MetricsProfileSettings)
    yield Section(name="log", type=LogSettings)
    yield EXTENSIONS
    yield Section(name="collector", type=CollectorSettings)
    for collector in collectors:
        name = f"collector.{collector.name}"
        default = {"enabled": collector.is_default}
        yield Section(name=name, type=Switch, defaults=default, flag=name, help=collector.help)
        if fields(collector.options):
            yield Section(name=name, type=collector.options)


def resolve_collectors(config: Config, collectors: Iterable[Collector]) -> Config:
    """Resolve which collectors are enabled, where that is not set explicitly.

    ``collector.disable-defaults`` disables them all; otherwise some are enabled when the setting they need is given.
    """
    changed = {
        f"collector.{collector.name}.enabled": resolved
        for collector in collectors
        if (resolved := _implied_switch(config, collector)) is not None
    }
    values = {key: resolved for key, resolved in changed.items() if config.is_default(key)}
    return replace(config, values={**config.values, **values}) if values else config


def _implied_switch(config: Config, collector: Collector) -> Resolved | None:
    if config.of(CollectorSettings).disable_defaults:
        return Resolved(False, "collector.disable-defaults")
    if collector.enabled_by and not config.is_default(collector.enabled_by):
        return Resolved(True, collector.enabled_by)
    return None


STEPS_KEY = "collector.job_use.steps"


@dataclass(frozen=True, slots=True)
class ReportMetrics:
    """The metrics of the profile ``reports``, and the label values to which some of them are restricted."""

    names: frozenset[str] = frozenset()
    conditions: Mapping[str, tuple[str, frozenset[str]]] = field(default_factory=dict)


def resolve_profile(config: Config, role: Role) -> Config:
    """Enable the series of steps in the profile ``full``, unless they are disabled explicitly."""
    if find_profile(config, role) is not MetricsProfile.FULL or not config.is_default(STEPS_KEY):
        return config
    return replace(config, values={**config.values, STEPS_KEY: Resolved(True, "metrics.profile")})


def find_profile(config: Config, role: Role) -> MetricsProfile:
    """Return the profile of an exporter; only the node agent has others than the standard."""
    return MetricsProfile(config.of(MetricsProfileSettings).profile) if role is Role.NODE else MetricsProfile.STANDARD


def wanted_metrics(
    config: Config, role: Role, collectors: Iterable[Collector], reports: ReportMetrics
) -> Callable[[Metric], bool]:
    """Return the filter for the metrics to export.

    Collectors that are off by default are not part of a profile: a site that enables one wants its metrics.
    """
    settings = config.of(MetricsSettings)
    excluded = re.compile(settings.exclude) if settings.exclude else None
    further = {metric.name for c in collectors if not c.is_default for metric in c.metrics}
    names = reports.names | further if find_profile(config, role) is MetricsProfile.REPORTS else None

    def is_wanted(metric: Metric) -> bool:
        if names is not None and metric.name not in names:
            return False
        return (settings.compat or not metric.is_compat) and not (excluded and excluded.search(metric.name))

    return is_wanted


def wanted_samples(config: Config, role: Role, reports: ReportMetrics) -> Callable[[Family], Family]:
    """Return the function that leaves the wanted samples of a family, such as the one event that reports query."""
    if find_profile(config, role) is not MetricsProfile.REPORTS:
        return lambda family: family

    def narrow(family: Family) -> Family:
        condition = reports.conditions.get(family.metric.name)
        return _select(family, *condition) if condition else family

    return narrow


def _select(family: Family, label: str, values: frozenset[str]) -> Family:
    position = family.metric.labels.index(label)
    samples = family.samples.items() if isinstance(family.samples, Mapping) else family.samples
    return Family(family.metric, {labels: value for labels, value in samples if labels[position] in values})
