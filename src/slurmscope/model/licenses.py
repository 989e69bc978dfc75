# SPDX-License-Identifier: Apache-2.0
"""Hold the licenses that the controller counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class License:
    """Hold the counts of one license; None for values that this Slurm version, or a local license, does not have.

    ``last_consumed`` is the usage that the license server reported to slurmdbd, ``last_deficit`` the part of this
    cluster's licenses that is used elsewhere, both as of ``updated_timestamp``.
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
    """Hold all licenses; ``unreadable_rows`` counts records that could not be parsed."""

    licenses: tuple[License, ...]
    unreadable_rows: int = 0
