# SPDX-License-Identifier: Apache-2.0
"""Hold the limits of associations and qualities of service, with what is used of them."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class LimitKind(enum.Enum):
    """Tell what a limit counts."""

    JOBS = "jobs"
    TRES = "tres"
    TRES_SECONDS = "tres_seconds"
    WALL_SECONDS = "wall_seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Hold one limit that is set, under the name that Slurm gives it, in base units.

    ``tres`` names the resource for the two kinds that count one. ``used`` is None for limits of a
    single job, and for limits of a single user that are set on an account.
    """

    name: str
    kind: LimitKind
    limit: float
    used: float | None = None
    tres: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssociationLimits:
    """Hold the limits of an account, or of a user of an account where ``user`` is not empty."""

    account: str
    user: str = ""
    partition: str = ""
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QosLimits:
    """Hold limits of a quality of service: for all its jobs, for those of an account or for those of a user."""

    account: str = ""
    user: str = ""
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Qos:
    """Hold one quality of service."""

    name: str
    priority: int | None = None
    raw_usage_seconds: float | None = None
    limits: tuple[QosLimits, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Hold all associations that have a limit, and every quality of service.

    ``unreadable_rows`` counts records that were not in the expected shape.
    """

    associations: tuple[AssociationLimits, ...]
    qos: tuple[Qos, ...]
    unreadable_rows: int = 0
