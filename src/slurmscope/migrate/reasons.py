# SPDX-License-Identifier: Apache-2.0
"""Say why one series of a replaced exporter has another value here, or none.

A reason explains a change only if its condition holds for the very numbers: a metric whose unit is documented as
wrong by 4.9 % may differ by 4.9 %, and by nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from slurmscope.migrate.pages import Page

TOLERANCE = 0.002
MIB_FACTOR = 1.048576
"""Of bytes in a MiB and in a million."""


class SeriesChange(NamedTuple):
    """One series of the old page; ``now`` is None if slurmscope has none with its labels."""

    metric: str
    labels: Mapping[str, str]
    was: float
    now: float | None


class Pages(NamedTuple):
    """The pages that are compared, for conditions that need other metrics."""

    old: Page
    ours: Page


Condition = Callable[[SeriesChange, Pages], bool]


@dataclass(frozen=True, slots=True)
class DocumentedReason:
    """What the documentation says, and the condition under which it explains a change."""

    text: str
    explains: Condition


def is_close(one: float, other: float, tolerance: float = TOLERANCE) -> bool:
    return math.isclose(one, other, rel_tol=tolerance, abs_tol=1e-9)


def total(page: Page, metric: str, **labels: str) -> float | None:
    """Sum the series of a metric that have these labels; None if there is none."""
    found = [
        sample.value
        for sample in (page[metric].samples if metric in page else ())
        if all(sample.labels.get(name, "") == value for name, value in labels.items())
    ]
    return math.fsum(found) if found else None


def factor(*factors: float) -> Condition:
    """Explain a value that is one of these multiples of the old one."""
    return lambda change, _: change.now is not None and any(is_close(change.now, each * change.was) for each in factors)


def at_least(share: float = 1.0) -> Condition:
    """Explain a value that is no smaller, or has at least this share of the old one."""
    return lambda change, _: change.now is not None and 0 < share * change.was <= change.now


def at_most(limit: float = 1.0) -> Condition:
    """Explain a value that is no larger; a series that has none left may be missing."""
    return lambda change, _: 0 <= (change.now or 0.0) <= limit * change.was


def truncated(change: SeriesChange, _: Pages) -> bool:
    """Explain an exact value that was cut to a whole number."""
    return change.now is not None and change.was == math.floor(change.now)


def same_total(label: str, *factors: float) -> Condition:
    """Explain values that moved between the values of a label: added up over them, both pages have the same."""

    def explains(change: SeriesChange, pages: Pages) -> bool:
        others = {name: value for name, value in change.labels.items() if name != label}
        was, now = total(pages.old, change.metric, **others), total(pages.ours, change.metric, **others)
        return was is not None and now is not None and any(is_close(now, each * was) for each in (1.0, *factors))

    return explains


def both(*conditions: Condition) -> Condition:
    return lambda change, pages: all(condition(change, pages) for condition in conditions)


def without_series(change: SeriesChange, _: Pages) -> bool:
    return change.now is None


def has(label: str, *characters: str) -> Condition:
    """Hold for series with one of these characters in the value of a label."""
    return lambda change, _: any(character in change.labels.get(label, "") for character in characters)
