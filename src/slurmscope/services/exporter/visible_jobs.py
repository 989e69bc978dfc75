# SPDX-License-Identifier: Apache-2.0
"""Make readings of jobs fail where PrivateData hides jobs from this user: pages would show an empty cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from slurmscope.sources.slurm.job_visibility import JobVisibility

T = TypeVar("T")


def require_all_jobs(read: Callable[[], T], visibility: JobVisibility) -> Callable[[], T]:
    """Return a function that reads jobs, and raises CommandRefused unless jobs of others are visible."""

    def read_all() -> T:
        jobs = read()
        visibility.require()
        return jobs

    return read_all


def require_first(visibility: JobVisibility, read: Callable[[], T]) -> Callable[[], T]:
    """Return a function that checks first: for readings that do not return to a time that they have read."""

    def read_all() -> T:
        visibility.require()
        return read()

    return read_all
