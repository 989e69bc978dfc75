# SPDX-License-Identifier: Apache-2.0
"""Fair shares are shown for accounts and users, and only where Slurm has them."""

from __future__ import annotations

import math

from slurmscope.cluster.shares import COLLECTOR, Share, ShareOptions, Shares
from slurmscope.metrics.family import Samples

PHYSICS = Share(
    account="physics",
    parent="root",
    raw_shares=5,
    norm_shares=0.625,
    raw_usage_seconds=1631,
    norm_usage=0.5,
    effective_usage=0.75,
    fairshare=0.9,
    level=1.25,
    tres_limit_seconds={"cpu": 600.0},
    tres_run_seconds={"cpu": 60.0, "mem": 120.0},
    tres_usage_seconds={"gres/gpu": 240.0},
)
ALICE = Share(
    account="physics",
    user="alice",
    raw_shares=1,
    norm_shares=0.25,
    raw_usage_seconds=1359,
    norm_usage=0.125,
    effective_usage=0.5,
    fairshare=0.857143,
    level=math.inf,
    tres_limit_seconds={"cpu": 30.0},
    tres_run_seconds={"cpu": 60.0},
    tres_usage_seconds={"cpu": 180.0},
)
BOB_IN_DEBUG = Share(account="physics", user="bob", partition="debug", fairshare=0.0)
SHARES = Shares(shares=(Share(account="root"), PHYSICS, ALICE, BOB_IN_DEBUG))


def serve(options: ShareOptions) -> dict[str, Samples]:
    """Return all samples by the name of their metric."""
    return {family.metric.name: family.samples for family in COLLECTOR.collect(options, shares=SHARES)}


def test_accounts_are_shown_with_every_column() -> None:
    served = {name: each for name, each in serve(ShareOptions()).items() if not name.startswith("slurm_user_")}

    assert {
        "slurm_account_info": {("root", ""): 1, ("physics", "root"): 1},
        "slurm_account_fairshare": {("physics",): 0.9},
        "slurm_account_fairshare_raw_shares": {("physics",): 5},
        "slurm_account_fairshare_norm_shares": {("physics",): 0.625},
        "slurm_account_fairshare_raw_usage_seconds": {("physics",): 1631},
        "slurm_account_fairshare_norm_usage": {("physics",): 0.5},
        "slurm_account_fairshare_effective_usage": {("physics",): 0.75},
        "slurm_account_fairshare_level": {("physics",): 1.25},
        "slurm_account_fairshare_tres_limit_seconds": {("physics", "cpu"): 600},
        "slurm_account_fairshare_tres_run_seconds": {("physics", "cpu"): 60, ("physics", "mem"): 120},
        "slurm_account_fairshare_tres_usage_seconds": {("physics", "gres/gpu"): 240},
    } == served


def test_users_are_shown_by_account_and_partition() -> None:
    served = serve(ShareOptions())

    assert {("physics", "alice", ""): 0.857143, ("physics", "bob", "debug"): 0.0} == served["slurm_user_fairshare"]
    assert {("physics", "alice", ""): math.inf} == served["slurm_user_fairshare_level"]
    assert {("physics", "alice", ""): 1359} == served["slurm_user_fairshare_raw_usage_seconds"]


def test_resources_of_users_are_shown_on_request_only() -> None:
    name = "slurm_user_fairshare_tres_usage_seconds"

    assert name not in serve(ShareOptions())
    assert {("physics", "alice", "", "cpu"): 180} == serve(ShareOptions(user_tres=True))[name]


def test_every_declared_metric_is_served() -> None:
    served = serve(ShareOptions(user_tres=True))

    assert {metric.name for metric in COLLECTOR.metrics} == {name for name, samples in served.items() if samples}
