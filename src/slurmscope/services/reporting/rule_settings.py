# SPDX-License-Identifier: Apache-2.0
"""Declare a setting for every threshold of every rule."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping

from slurmscope.config import Config
from slurmscope.rules import RULES, Rule
from slurmscope.settings import DURATION, SIZE, Parse, Section, setting
from slurmscope.units import parse_bytes, parse_seconds


def parse_threshold(given: object) -> float:
    """Parse a number of 0 or more."""
    try:
        number = float(given) if isinstance(given, str | int | float) and not isinstance(given, bool) else math.nan
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise ValueError(f"{given!r} is not a number of 0 or more")
    return number


def parse_seconds_threshold(given: object) -> float:
    """Parse a number of seconds, or a duration with units."""
    try:
        return parse_seconds(parse_threshold(given))
    except ValueError:
        return parse_seconds(given)


def parse_bytes_threshold(given: object) -> float:
    """Parse a number of bytes, or a size with a unit."""
    try:
        return parse_threshold(given)
    except ValueError:
        return parse_bytes(str(given))


_UNITS: Mapping[str, tuple[Parse, str]] = {
    "seconds": (parse_seconds_threshold, DURATION),
    "bytes": (parse_bytes_threshold, SIZE),
    "ratio": (parse_threshold, "RATIO"),
    "count": (parse_threshold, "COUNT"),
    "per second": (parse_threshold, "NUMBER"),
}
"""Parser and metavar by the unit of a threshold."""


def rule_sections() -> Iterator[Section]:
    """Yield a section for each rule that has thresholds."""
    yield from _SECTIONS.values()


def rule_section(rule_id: str) -> Section | None:
    """Return the section of one rule; None when it has no thresholds."""
    return _SECTIONS.get(rule_id)


def thresholds_of(config: Config) -> Mapping[str, float]:
    """Return the current value of every threshold, by ``rule.threshold``."""
    return {
        f"{rule_id}.{declared.attribute}": _number(config.values[declared.key].value)
        for rule_id, section in _SECTIONS.items()
        for declared in section.settings()
    }


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _section(rule: Rule) -> Section:
    declared = [
        (
            threshold.name,
            float,
            setting(
                threshold.default,
                help=threshold.help,
                parse=_UNITS[threshold.unit][0],
                metavar=_UNITS[threshold.unit][1],
            ),
        )
        for threshold in rule.thresholds
    ]
    made = dataclasses.make_dataclass(f"{rule.id}_thresholds", declared, frozen=True, kw_only=True)
    return Section(name=f"rules.{rule.id.replace('_', '-')}", type=made)


_SECTIONS: Mapping[str, Section] = {rule.id: _section(rule) for rule in RULES if rule.thresholds}
