# SPDX-License-Identifier: Apache-2.0
"""Describe the answers of the API for its OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slurmscope.model.archive import GroupBy, JobRow, UseTotal


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiError:
    """Say in one sentence what went wrong."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsAnswer:
    """Hold one page of jobs, newest submission first; ``next`` is the ``after`` of the page behind it."""

    jobs: tuple[JobRow, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalsAnswer:
    """Hold sums, largest waste of core time first; days in order."""

    by: GroupBy
    since_seconds: int
    totals: tuple[UseTotal, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLineAnswer:
    """Hold one line; null is a gap."""

    label: str
    values: list[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartAnswer:
    """Hold lines over one axis of seconds since 1970."""

    name: str
    title: str
    unit: str
    times: list[float]
    lines: list[ChartLineAnswer]
    reference: float | None
    reference_label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartsAnswer:
    """Hold the charts of one job."""

    charts: list[ChartAnswer]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedUser:
    """Hold what the older portal told of a user, and the jobs."""

    user: str
    uid: int | None
    jobs: tuple[int, ...]


ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ApiError, "description": "The request cannot be understood."},
    401: {"model": ApiError, "description": "Nobody is signed in."},
    403: {"model": ApiError, "description": "What was said about who asks is not believed."},
    404: {"model": ApiError, "description": "It does not exist, or is not the viewer's to see."},
    422: {"model": ApiError, "description": "A parameter has no usable value."},
    429: {"model": ApiError, "description": "Too many wrong tokens came from this address."},
    503: {"model": ApiError, "description": "The archive does not answer."},
}
"""Every way in which a request can fail, all in one shape."""
