# SPDX-License-Identifier: Apache-2.0
"""Hold the licences that the controller counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class License:
    """Hold the counts of one licence; None is what this release, or a local licence, does not have.

    ``last_consumed`` is what the licence server has told the accounting database, ``last_deficit``
    what others than this cluster use of its part, both as of ``updated_timestamp``.
    """

    name: str
    total: int
    used: int
    free: int
    reserved: int | None = None
    is_remote: bool | None = None
    last_consumed: int | None = None
    last_deficit: int | None = None
    updated_timestamp: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Licenses:
    """Hold all licences; ``unreadable_rows`` counts records that were not in the expected shape."""

    licenses: tuple[License, ...]
    unreadable_rows: int = 0
