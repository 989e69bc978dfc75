# SPDX-License-Identifier: Apache-2.0
"""Count how one number is distributed over jobs, in bins that link to their jobs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slurmscope.model.archive import JobFilter, JobRow
from slurmscope.portal.views.queries import render_query

BINS = 12
MAX_LINKED = 200
"""Jobs of a bin up to which it has a link: addresses have a limit."""


class Number(NamedTuple):
    """Read and format one number of a job."""

    label: str
    read: Callable[[JobRow], float | None]
    format: Callable[[float], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Hold one bar; ``query`` selects its jobs in the list, and is empty for no jobs or too many."""

    count: int
    span: str
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Hold how one number is distributed over the jobs for which it is known."""

    label: str
    known: int
    lowest: str
    median: str
    highest: str
    bars: tuple[Bin, ...]

    @property
    def bins(self) -> tuple[int, ...]:
        """Return the number of jobs in each bin."""
        return tuple(each.count for each in self.bars)

    @property
    def tallest(self) -> int:
        """Return the largest number of jobs in a bin."""
        return max(self.bins, default=0)


def make_distribution(number: Number, rows: Sequence[JobRow]) -> Distribution | None:
    """Count the jobs whose number is known in bins of equal width; None if it is known for none."""
    known = [(value, row) for row in rows if (value := number.read(row)) is not None]
    if not known:
        return None
    values = [value for value, _ in known]
    lowest, highest = min(values), max(values)
    width = (highest - lowest) / BINS or 1.0
    jobs: list[list[JobRow]] = [[] for _ in range(BINS)]
    for value, row in known:
        jobs[min(BINS - 1, int((value - lowest) / width))].append(row)
    edges = [number.format(lowest + width * index) for index in range(BINS + 1)]
    return Distribution(
        label=number.label,
        known=len(known),
        lowest=number.format(lowest),
        median=number.format(statistics.median(values)),
        highest=number.format(highest),
        bars=tuple(
            Bin(count=len(some), span=f"{edges[index]} to {edges[index + 1]}", query=_link(some))
            for index, some in enumerate(jobs)
        ),
    )


def _link(rows: Sequence[JobRow]) -> str:
    ids = tuple(row.shown_id for row in rows)
    return render_query(JobFilter(shown_ids=ids)) if 0 < len(ids) <= MAX_LINKED else ""
