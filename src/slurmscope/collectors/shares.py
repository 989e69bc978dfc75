# SPDX-License-Identifier: Apache-2.0
"""Export the fair share of accounts and users.

::

    slurm_user_fairshare{account="physics",user="alice",partition=""} 0.857143
    slurm_account_fairshare_level{account="physics"} 1.071429
    slurm_account_fairshare_tres_usage_seconds{account="physics",tres="gres/gpu"} 240

Under the fair-tree algorithm, Slurm's default, only users have a fair-share factor; accounts with the same parent
are compared by level. ``partition`` is empty unless the association is for one partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slurmscope.metrics.collector import Collector, Role
from slurmscope.metrics.family import Family, Labels, Metric, gauge, info
from slurmscope.model.shares import Share, Shares
from slurmscope.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOptions:
    """Options of the shares collector."""

    user: bool = setting(True, help="Expose the fair share of users, not only of accounts.")
    user_tres: bool = setting(False, help="Expose the TRES of every user too; this adds many series.")


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
    if options.user:
        users = [((share.account, share.user, share.partition), share) for share in shares.shares if share.user]
        yield from _families(USER_VALUES, USER_TRES if options.user_tres else {}, users)


def _families(values: _Declared, tres: _Declared, shares: Sequence[tuple[Labels, Share]]) -> Iterator[Family]:
    for field, metric in values.items():
        found = ((labels, getattr(share, field)) for labels, share in shares)
        yield Family(metric, {labels: value for labels, value in found if value is not None})
    for field, metric in tres.items():
        yield Family(
            metric,
            {(*labels, name): amount for labels, share in shares for name, amount in getattr(share, field).items()},
        )


COLLECTOR = Collector(
    name="shares",
    role=Role.CLUSTER,
    help="Fair share of accounts and users, from one sshare call.",
    needs=("shares",),
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
