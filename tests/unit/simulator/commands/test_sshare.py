# SPDX-License-Identifier: Apache-2.0
"""The simulated sshare reports the same usage as the simulated queue, and our parser reads it whole."""

from __future__ import annotations

import math

import pytest

from slurmscope.cluster.shares import ARGUMENTS, Shares, parse_shares
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape, SimulatedCluster
from slurmscope.simulator.commands import sshare

NOW = 1_800_000_000
CLUSTER = simulate(Shape(jobs=300, users=12, accounts=4), now=NOW)
EMPTY = SimulatedCluster(
    name="empty", now=NOW, jobs=(), nodes=(), partitions=(), users=CLUSTER.users, accounts=CLUSTER.accounts, qos=()
)


def read(cluster: SimulatedCluster) -> Shares:
    """Ask as the exporter does."""
    code, answer, complaints = sshare.answer(cluster, ARGUMENTS)
    assert (0, b"") == (code, complaints)
    return parse_shares(answer)


def test_every_account_and_user_is_read() -> None:
    shares = read(CLUSTER)

    expected = {(name, user.name) for user in CLUSTER.users for name in user.accounts}
    expected |= {(name, "") for name in (*CLUSTER.accounts, "root")}
    assert expected == {(share.account, share.user) for share in shares.shares}
    assert 0 == shares.unreadable_rows


def test_accounts_have_used_what_their_jobs_have_used() -> None:
    shares = {share.account: share for share in read(CLUSTER).shares if not share.user}

    for account in CLUSTER.accounts:
        # A waiting job may have a start too, in the future: the expected one.
        starts = [(job, job.start_time or NOW) for job in CLUSTER.jobs if job.account == account]
        seconds = [job.cpus * (min(NOW, job.end_time or NOW) - start) for job, start in starts if start < NOW]
        assert sum(seconds) == shares[account].raw_usage_seconds
    assert math.isclose(1.0, sum(shares[name].norm_usage or 0.0 for name in CLUSTER.accounts), abs_tol=1e-4)


def test_the_factor_of_a_user_is_a_place_among_all() -> None:
    users = [share for share in read(CLUSTER).shares if share.user]

    places = sorted(share.fairshare or 0.0 for share in users)
    assert pytest.approx([(place + 1) / len(users) for place in range(len(users))], abs=1e-6) == places
    # A user who has used nothing of the account's share comes before all others of the account.
    idle = {share.account: share.fairshare or 0.0 for share in users if share.level == math.inf}
    busy = [share for share in users if share.account in idle and share.level != math.inf]
    assert busy
    assert all((share.fairshare or 0.0) < idle[share.account] for share in busy)


def test_a_cluster_without_jobs_has_used_nothing() -> None:
    shares = read(EMPTY).shares

    assert {0.0} == {share.raw_usage_seconds for share in shares}
    assert {math.inf, None} == {share.level for share in shares}


def test_columns_and_header_are_as_asked() -> None:
    _, answer, _ = sshare.answer(EMPTY, ["-p", "-o", "user,account"])

    assert [b"User|Account|", b"|root|", b"| physics|"] == answer.split(b"\n")[:3]
    assert len(EMPTY.accounts) + 2 == answer.count(b"\n")


@pytest.mark.parametrize("argv", [["-P", "-o", "bogus"], ["-a"], ["--bogus"]])
def test_wrong_usage_is_refused(argv: list[str]) -> None:
    code, answer, complaints = sshare.answer(EMPTY, argv)

    assert (1, b"") == (code, answer)
    assert complaints.startswith(b"sshare: error: ")


def test_the_version_is_told() -> None:
    assert (0, b"slurm 22.05.8\n", b"") == sshare.answer(EMPTY, ["-V"])
