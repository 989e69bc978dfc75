# SPDX-License-Identifier: Apache-2.0
"""Compare two pages as prometheus_client reads them, without what ``slurmscope migrate check`` knows of reasons."""

from __future__ import annotations

from collections.abc import Set
from itertools import groupby

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


def compare_values(old: str, ours: str, *, without: Set[str] = frozenset()) -> tuple[int, set[str]]:
    """Return how many series of an old page have the same value in ours, and the names of which any has not.

    Series of ours with further labels are added up; ``without`` are labels of the old page that ours does not have.
    """
    have = {name: list(found) for name, found in groupby(sorted(_samples(ours), key=_name), key=_name)}
    equal, different = 0, set[str]()
    for sample in _samples(old):
        labels = {name: value.strip() for name, value in sample.labels.items() if name not in without}
        found = [each.value for each in have.get(sample.name, []) if labels.items() <= each.labels.items()]
        if found and abs(sum(found) - sample.value) <= 0.01 * abs(sample.value):
            equal += 1
        else:
            different.add(sample.name)
    return equal, different


def _samples(page: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(page) for sample in family.samples]


def _name(sample: Sample) -> str:
    return sample.name
