# SPDX-License-Identifier: Apache-2.0
"""Hold the reservations of the controller."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Hold one reservation; times are seconds since 1970, None if not reported.

    ``nodes`` is None if the host list could not be expanded; ``partition`` is empty if the reservation has none.
    """

    name: str
    is_active: bool
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    node_count: int | None = None
    core_count: int | None = None
    nodes: tuple[str, ...] | None = ()
    partition: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservations:
    """Hold all reservations; ``unreadable_rows`` counts records that could not be parsed."""

    reservations: tuple[Reservation, ...]
    unreadable_rows: int = 0
