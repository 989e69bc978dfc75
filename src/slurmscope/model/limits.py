# SPDX-License-Identifier: Apache-2.0
"""Hold the limits of associations and QOS, with their usage."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class LimitKind(enum.Enum):
    """What a limit counts."""

    JOBS = "jobs"
    TRES = "tres"
    TRES_SECONDS = "tres_seconds"
    WALL_SECONDS = "wall_seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Hold one limit that is set, under Slurm's name, in base units.

    ``tres`` is the resource for the two kinds that count one. ``used`` is None for per-job limits, and for per-user
    limits that are set on an account.
    """

    name: str
    kind: LimitKind
    limit: float
    used: float | None = None
    tres: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssociationLimits:
    """Hold the limits of an account, or of a user of an account if ``user`` is not empty."""

    account: str
    user: str = ""
    partition: str = ""
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QosLimits:
    """Hold limits of a QOS: for all its jobs, for those of an account or for those of a user."""

    account: str = ""
    user: str = ""
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Qos:
    """Hold one QOS."""

    name: str
    priority: int | None = None
    raw_usage_seconds: float | None = None
    limits: tuple[QosLimits, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Hold all associations that have a limit, and every QOS.

    ``unreadable_rows`` counts records that could not be parsed.
    """

    associations: tuple[AssociationLimits, ...]
    qos: tuple[Qos, ...]
    unreadable_rows: int = 0
