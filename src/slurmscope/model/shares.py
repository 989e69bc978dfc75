# SPDX-License-Identifier: Apache-2.0
"""Hold the fair share of every account and user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Hold one association: an account, or a user of an account if ``user`` is not empty.

    None means that Slurm has no such value: accounts have no ``fairshare`` under the fair-tree algorithm, and an
    association that uses the shares of its parent has neither ``raw_shares`` nor ``level``. ``level`` is infinite
    without usage. Usage decays with Slurm's half-life. Amounts of trackable resources are in seconds times the base
    unit: byte-seconds for memory.
    """

    account: str
    user: str = ""
    partition: str = ""
    parent: str = ""
    raw_shares: float | None = None
    norm_shares: float | None = None
    raw_usage_seconds: float | None = None
    norm_usage: float | None = None
    effective_usage: float | None = None
    fairshare: float | None = None
    level: float | None = None
    tres_limit_seconds: Mapping[str, float] = field(default_factory=dict)
    tres_run_seconds: Mapping[str, float] = field(default_factory=dict)
    tres_usage_seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Hold all associations, parents before their children.

    ``unreadable_rows`` counts rows that could not be parsed.
    """

    shares: tuple[Share, ...]
    unreadable_rows: int = 0
