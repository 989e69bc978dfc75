# SPDX-License-Identifier: Apache-2.0
"""Export the fair share of accounts and users.

::

    slurm_user_fairshare{account="physics",user="alice",partition=""} 0.857143
    slurm_account_fairshare_level{account="physics"} 1.071429
    slurm_account_fairshare_tres_usage_seconds{account="physics",tres="gres/gpu"} 240

Under the fair-tree algorithm, Slurm's default, only users have a fair-share factor; accounts with the same parent
are compared by level. ``partition`` is empty unless the association is for one partition.

The depth of an account in the tree is the number of blanks before its name. An account may have a
``|`` in its name; nothing after it can, so columns are counted from the right.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from slurmscope.cluster.sources import Sources
from slurmscope.core.errors import MalformedAnswer
from slurmscope.core.settings import setting
from slurmscope.core.tres import parse_minutes
from slurmscope.exporter.collector import SLOW_SECONDS, Collector, Reading, Role
from slurmscope.metrics.family import Family, Labels, Metric, gauge, info


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One association: an account, or a user of an account if ``user`` is not empty.

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
    """All associations, parents before their children.

    ``unreadable_rows`` counts rows that could not be parsed.
    """

    shares: tuple[Share, ...]
    unreadable_rows: int = 0


COLUMNS = (
    "Account",
    "User",
    "Partition",
    "RawShares",
    "NormShares",
    "RawUsage",
    "NormUsage",
    "EffectvUsage",
    "FairShare",
    "LevelFS",
    "GrpTRESMins",
    "TRESRunMins",
    "GrpTRESRaw",
)
ARGUMENTS = ("--noheader", "--all", "--parsable2", "--format=" + ",".join(COLUMNS))


def parse_shares(answer: bytes) -> Shares:
    """Read one row per association; a row in another format is skipped, unless there is no other."""
    if answer and not answer.endswith(b"\n"):
        raise MalformedAnswer("sshare: the answer ends in the middle of a line")
    lines = answer.decode("utf-8", "surrogateescape").split("\n")[:-1]
    shares = tuple(_Tree().read(lines))
    if lines and not shares:
        raise MalformedAnswer("sshare: no line of the answer has the requested columns")
    return Shares(shares=shares, unreadable_rows=len(lines) - len(shares))


class _Tree:
    """Remember the branch of accounts that leads to the row that is read, and lists that were read before."""

    def __init__(self) -> None:
        self._branch: list[str] = []
        # Most users have run nothing: thousands of rows share the same list of zeros.
        self._lists: dict[str, dict[str, float]] = {}

    def read(self, lines: list[str]) -> Iterator[Share]:
        for line in lines:
            fields = line.rsplit("|", len(COLUMNS) - 1)
            account = fields[0].lstrip(" ")
            if len(fields) != len(COLUMNS) or not account:
                continue
            try:
                share = self._share(account, len(fields[0]) - len(account), fields)
            except ValueError:
                continue
            yield share

    def _share(self, account: str, depth: int, fields: list[str]) -> Share:
        raw_shares, norm_shares, raw_usage, norm_usage, effective_usage, fairshare, level = map(_number, fields[3:10])
        limits, running, used = map(self._amounts, fields[10:])
        user = fields[1]
        parent = "" if user else self._step(account, depth)
        return Share(
            account=account,
            user=user,
            partition=fields[2],
            parent=parent,
            raw_shares=raw_shares,
            norm_shares=norm_shares,
            raw_usage_seconds=raw_usage,
            norm_usage=norm_usage,
            effective_usage=effective_usage,
            fairshare=fairshare,
            level=level,
            tres_limit_seconds=limits,
            tres_run_seconds=running,
            tres_usage_seconds=used,
        )

    def _step(self, account: str, depth: int) -> str:
        """Move to an account and return its parent; without the rows above it (PrivateData) it has none."""
        if depth > len(self._branch):
            return ""
        self._branch[depth:] = [account]
        return self._branch[depth - 1] if depth else ""

    def _amounts(self, text: str) -> dict[str, float]:
        found = self._lists.get(text)
        if found is None:
            found = self._lists[text] = parse_minutes(text)
        return found


def _number(text: str) -> float | None:
    if text in ("", "parent"):
        return None
    value = float(text)
    return None if math.isnan(value) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOptions:
    """Options of the shares collector."""

    user_tres: bool = setting(False, "Expose the TRES of every user too; this adds many series.")


# What sshare reports per association: field of Share, suffix of the metric name, help.
_VALUES = (
    ("fairshare", "", "Fair-share factor from 0 to 1, as used in the priority of jobs."),
    ("raw_shares", "_raw_shares", "Granted shares; absent if the shares of the parent are used."),
    ("norm_shares", "_norm_shares", "Shares relative to all associations with the same parent, from 0 to 1."),
    ("raw_usage_seconds", "_raw_usage_seconds", "Billed resources times seconds, decayed with Slurm's half-life."),
    ("norm_usage", "_norm_usage", "Usage relative to the whole cluster, from 0 to 1."),
    ("effective_usage", "_effective_usage", "Usage relative to the parent, from 0 to 1."),
    ("level", "_level", "Shares divided by usage, relative to the same parent; below 1 means more used than granted."),
)
_TRES = (
    ("tres_limit_seconds", "_tres_limit_seconds", "Limit on resource-seconds (GrpTRESMins), memory in byte-seconds."),
    ("tres_run_seconds", "_tres_run_seconds", "Resource-seconds running jobs may still use, memory in byte-seconds."),
    ("tres_usage_seconds", "_tres_usage_seconds", "Resource-seconds used, decayed like usage, memory in byte-seconds."),
)

_Declared = Mapping[str, Metric]


def _declare(fields: Iterable[tuple[str, str, str]], stem: str, *labels: str) -> _Declared:
    return {field: gauge(stem + end, text, *labels) for field, end, text in fields}


ACCOUNT_INFO = info("slurm_account_info", "Account and its parent account.", "account", "parent")
# slurm_account_fairshare is also a metric name of older exporters.
ACCOUNT_VALUES = _declare(_VALUES, "slurm_account_fairshare", "account")
USER_VALUES = _declare(_VALUES, "slurm_user_fairshare", "account", "user", "partition")
ACCOUNT_TRES = _declare(_TRES, "slurm_account_fairshare", "account", "tres")
USER_TRES = _declare(_TRES, "slurm_user_fairshare", "account", "user", "partition", "tres")


def collect(options: ShareOptions, *, shares: Shares) -> Iterator[Family]:
    """Yield each value for accounts, then for users."""
    accounts = [((share.account,), share) for share in shares.shares if not share.user]
    yield Family(ACCOUNT_INFO, {(share.account, share.parent): 1 for _, share in accounts})
    yield from _families(ACCOUNT_VALUES, ACCOUNT_TRES, accounts)
    users = [((share.account, share.user, share.partition), share) for share in shares.shares if share.user]
    yield from _families(USER_VALUES, USER_TRES if options.user_tres else {}, users)


def _families(values: _Declared, tres: _Declared, shares: Sequence[tuple[Labels, Share]]) -> Iterator[Family]:
    for name, metric in values.items():
        found = ((labels, getattr(share, name)) for labels, share in shares)
        yield Family(metric, {labels: value for labels, value in found if value is not None})
    for column, metric in tres.items():
        yield Family(
            metric,
            {(*labels, name): amount for labels, share in shares for name, amount in getattr(share, column).items()},
        )


def read_shares(slurm: Sources) -> Shares:
    return parse_shares(slurm.run("sshare", ARGUMENTS))


SHARES = Reading(
    name="shares",
    read=read_shares,
    every_seconds=2 * SLOW_SECONDS,
    older_duration="slurm_fairshare_scrape_duration",
    older_errors=("slurm_fairshare_collect_error",),
)
COLLECTOR = Collector(
    name="shares",
    role=Role.CLUSTER,
    help="Fair share of accounts and users, from one sshare call.",
    needs=(SHARES,),
    metrics=(
        ACCOUNT_INFO,
        *ACCOUNT_VALUES.values(),
        *ACCOUNT_TRES.values(),
        *USER_VALUES.values(),
        *USER_TRES.values(),
    ),
    collect=collect,
    options=ShareOptions,
)
