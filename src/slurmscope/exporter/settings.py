# SPDX-License-Identifier: Apache-2.0
"""Declare the settings that all exporters share: logging, the metrics page, and collectors."""

from __future__ import annotations

import enum
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace

from slurmscope.core.config import Config, Resolved
from slurmscope.core.settings import Section, choice, one_of, parse_text, setting
from slurmscope.exporter.collector import Collector, Role
from slurmscope.exporter.output_settings import OutputSettings, WebSettings

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
