# SPDX-License-Identifier: Apache-2.0
"""The fair shares that are shown are those that Slurm's accounting database and its controller hold."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from lab import ALICE, SlurmLab
from tests.e2e.scrape import scrape

OPTICS = "optics"


@pytest.fixture
def grown_lab(clean_lab: SlurmLab) -> Iterator[SlurmLab]:
    """Give a cluster with an account below another one."""
    clean_lab.run("sacctmgr", "-i", "add", "account", OPTICS, "parent=physics", "fairshare=3")
    clean_lab.run("sacctmgr", "-i", "add", "user", ALICE, f"account={OPTICS}", "fairshare=7")
    yield clean_lab
    clean_lab.run("sacctmgr", "-i", "delete", "user", ALICE, f"account={OPTICS}")
    clean_lab.run("sacctmgr", "-i", "delete", "account", OPTICS)


def test_shares_are_those_of_the_database(grown_lab: SlurmLab) -> None:
    columns = "format=Account,User,ParentName,Fairshare"
    rows = grown_lab.run("sacctmgr", "--noheader", "--parsable2", "show", "association", columns).split()
    expected = {tuple(row.split("|")[:2]): row.split("|")[2:] for row in rows}

    def is_delivered() -> bool:
        lines = grown_lab.run("sshare", "--all", "--parsable2", "--format=Account,User").splitlines()
        return f"{OPTICS}|{ALICE}" in map(str.strip, lines)

    # The database delivers a change to the controller on its own time, and the user after the account.
    grown_lab.wait_for(is_delivered, what="the new account and its user")

    served = scrape(grown_lab, "shares")

    accounts = {account: found for (account, user), found in expected.items() if not user}
    assert {(account, parent) for account, (parent, _) in accounts.items()} == set(served["slurm_account_info"])
    # sshare has no shares for the root of the tree.
    assert {(account,): float(shares) for account, (_, shares) in accounts.items() if account != "root"} == served[
        "slurm_account_fairshare_raw_shares"
    ]
    assert {(*key, ""): float(shares) for key, (_, shares) in expected.items() if key[1]} == served[
        "slurm_user_fairshare_raw_shares"
    ]
    assert 7 == served["slurm_user_fairshare_raw_shares"][OPTICS, ALICE, ""]


def test_factors_are_those_of_the_controller(clean_lab: SlurmLab) -> None:
    shown = clean_lab.run("scontrol", "show", "assoc_mgr", "flags=assoc")
    pattern = (
        r"Account=(\S+) UserName=([^( ]+)\(\d+\) Partition=(\S*) .*\n\s+SharesRaw/Norm/Level/Factor=\S+/([\d.]+)\n"
    )
    expected = {match[:3]: float(match[3]) for match in re.findall(pattern, shown)}

    served = scrape(clean_lab, "shares")

    assert len(expected) >= 5
    assert expected == pytest.approx(served["slurm_user_fairshare"], abs=0.005)
