# SPDX-License-Identifier: Apache-2.0
"""Our readers find in the responses of the simulated commands what the simulated cluster has."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pytest

from slurmscope.cluster import job_info, scontrol_nodes, shares, sinfo, squeue
from slurmscope.cluster import licenses as scontrol_licenses
from slurmscope.cluster import limits as scontrol_limits
from slurmscope.cluster import reservations as scontrol_reservations
from slurmscope.cluster.events import ALL_ARGUMENTS, parse_all_events, read_events
from slurmscope.cluster.limits import Limits
from slurmscope.cluster.shares import Shares
from slurmscope.jobs.pending import blockers
from slurmscope.jobs.pending.queue import read_pending
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import CPU_HOLDING_STATES, Shape, SimulatedCluster
from slurmscope.simulator.commands.executables import answer
from slurmscope.slurm.coordinators import read_coordinated, read_coordinators
from slurmscope.trace import owners

NOW = 1_800_000_000
SEPARATOR = "0123456789abcdef"
CLUSTER = simulate(Shape(jobs=400, users=12, accounts=4), now=NOW)
EMPTY = SimulatedCluster(
    name="empty", now=NOW, jobs=(), nodes=(), partitions=(), users=CLUSTER.users, accounts=CLUSTER.accounts, qos=()
)
RUNNING = [job for job in CLUSTER.jobs if job.state in CPU_HOLDING_STATES]


def ask(command: str, *argv: str, cluster: SimulatedCluster = CLUSTER) -> bytes:
    code, rows, complaint = answer(cluster, command, argv)
    assert (0, b"") == (code, complaint)
    return rows


def run(command: str, arguments: Sequence[str]) -> bytes:
    return ask(command, *arguments)


def read_limits() -> Limits:
    return scontrol_limits.parse_limits(ask("scontrol", *scontrol_limits.ARGUMENTS))


def read_shares(cluster: SimulatedCluster = CLUSTER) -> Shares:
    return shares.parse_shares(ask("sshare", *shares.ARGUMENTS, cluster=cluster))


@pytest.mark.parametrize("with_owners", [False, True])
def test_groups_of_jobs_add_up_to_the_queue(with_owners: bool) -> None:
    arguments = squeue.ARGUMENTS_WITH_IDS if with_owners else squeue.ARGUMENTS
    window = squeue.StartWindow(NOW - 3600, NOW)

    jobs = squeue.parse_jobs(ask("squeue", *arguments), taken_at_seconds=NOW, window=window, with_owners=with_owners)

    assert 0 == jobs.unreadable_rows
    expected, found = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for job in CLUSTER.jobs:
        expected[job.user.name, job.state] += job.rows
    for group in jobs.groups:
        found[group.user, group.state] += group.jobs
    assert expected == found
    assert not with_owners or {job.id for job in RUNNING} <= jobs.owners.keys()


def test_listed_jobs_are_those_of_the_queue() -> None:
    found = job_info.parse_job_list(ask("squeue", *job_info.arguments(SEPARATOR)), SEPARATOR)

    assert 0 == found.unreadable_rows
    assert {(str(job.id), job.name, job.state, job.cpus) for job in CLUSTER.jobs} == {
        (job.job_id, job.name, job.state, job.cpus) for job in found.jobs
    }


def test_traced_jobs_have_their_owners() -> None:
    found = owners.parse_owners(ask("squeue", *owners.OWNER_ARGUMENTS))

    traced = [job for job in CLUSTER.jobs if job.state in {"RUNNING", "SUSPENDED", "COMPLETING"}]
    assert {(job.id, job.user.uid, job.account or "", job.memory_bytes or None) for job in traced} == {
        (job.job_id, job.uid, job.account, job.memory_bytes) for job in found.values()
    }
    hosts = owners.parse_hosts(ask("sinfo", *owners.HOST_ARGUMENTS))
    assert {node.name: node.name for node in CLUSTER.nodes if node.base != "future"} == hosts


def test_pending_jobs_have_their_reasons() -> None:
    found = read_pending(run, SEPARATOR, now_seconds=NOW)

    assert 0 == found.unreadable_rows
    assert {(job.id, job.reason, job.rows) for job in CLUSTER.jobs if job.state == "PENDING"} == {
        (job.job_id, job.reason, job.task_count) for job in found.jobs
    }


@pytest.mark.parametrize("seed", [1, 2])
def test_nodes_of_scontrol_are_those_of_sinfo(seed: int) -> None:
    cluster = simulate(Shape(seed=seed, nodes=100, partitions=6), now=NOW)
    rows = ask("sinfo", *sinfo.arguments(SEPARATOR), cluster=cluster)

    shown = scontrol_nodes.parse_nodes(ask("scontrol", *scontrol_nodes.ARGUMENTS, cluster=cluster))

    assert 0 == shown.unreadable_rows
    listed = {node.name: node for node in sinfo.parse_nodes(rows, SEPARATOR).nodes}
    assert listed == {node.name: node for node in shown.nodes if node.partitions}


def test_use_of_accounts_is_that_of_their_jobs() -> None:
    limits = read_limits()

    assert 0 == limits.unreadable_rows
    found = {
        (association.account, limit.tres): limit
        for association in limits.associations
        for limit in association.limits
        if limit.name == "GrpTRES"
    }
    assert {(account, tres) for account in CLUSTER.accounts[:2] for tres in ("cpu", "mem")} <= found.keys()
    for (account, tres), limit in found.items():
        jobs = [job for job in RUNNING if job.account == account]
        assert sum(job.cpus if tres == "cpu" else job.memory_bytes for job in jobs) == limit.used
        assert limit.limit > (limit.used or 0)


def test_use_of_users_is_that_of_their_jobs() -> None:
    found = {
        (association.account, association.user): limit.used
        for association in read_limits().associations
        for limit in association.limits
        if limit.name == "MaxJobs"
    }

    assert {(account, user.name) for user in CLUSTER.users for account in user.accounts} == found.keys()
    for (account, user), used in found.items():
        assert sum(job.rows for job in RUNNING if (account, user) == (job.account, job.user.name)) == used


def test_every_quality_of_service_is_read() -> None:
    qos = read_limits().qos

    assert list(CLUSTER.qos) == [each.name for each in qos]
    assert [1000 * place for place in range(len(CLUSTER.qos))] == [each.priority for each in qos]


def test_licences_are_used_by_running_jobs() -> None:
    licenses = scontrol_licenses.parse_licenses(ask("scontrol", *scontrol_licenses.ARGUMENTS)).licenses

    entries = [entry for job in RUNNING for entry in (job.licenses or "").split(",") if entry.startswith("matlab")]
    matlab = next(each for each in licenses if each.name == "matlab")
    assert sum(int(entry.partition(":")[2] or 1) for entry in entries) == matlab.used
    assert all(each.total == each.used + each.free for each in licenses)


def test_reservations_are_read_with_their_nodes() -> None:
    course, maintenance = scontrol_reservations.parse_reservations(
        ask("scontrol", *scontrol_reservations.ARGUMENTS)
    ).reservations

    assert (True, False) == (course.is_active, maintenance.is_active)
    assert NOW - 3600 == course.start_timestamp
    assert {node.name for node in CLUSTER.nodes} == set(maintenance.nodes or ())
    assert sum(node.cpus for node in CLUSTER.nodes) == maintenance.core_count


def test_every_account_and_user_is_read() -> None:
    shares = read_shares()

    expected = {(name, user.name) for user in CLUSTER.users for name in user.accounts}
    expected |= {(name, "") for name in (*CLUSTER.accounts, "root")}
    assert expected == {(share.account, share.user) for share in shares.shares}
    assert 0 == shares.unreadable_rows


def test_accounts_have_used_what_their_jobs_have_used() -> None:
    shares = {share.account: share for share in read_shares().shares if not share.user}

    for account in CLUSTER.accounts:
        # A waiting job may have a start too, in the future: the expected one.
        starts = [(job, job.start_time or NOW) for job in CLUSTER.jobs if job.account == account]
        seconds = [job.cpus * (min(NOW, job.end_time or NOW) - start) for job, start in starts if start < NOW]
        assert sum(seconds) == shares[account].raw_usage_seconds
    assert math.isclose(1.0, sum(shares[name].norm_usage or 0.0 for name in CLUSTER.accounts), abs_tol=1e-4)


def test_the_factor_of_a_user_is_a_place_among_all() -> None:
    users = [share for share in read_shares().shares if share.user]

    places = sorted(share.fairshare or 0.0 for share in users)
    assert pytest.approx([(place + 1) / len(users) for place in range(len(users))], abs=1e-6) == places
    # A user who has used nothing of the account's share comes before all others of the account.
    idle = {share.account: share.fairshare or 0.0 for share in users if share.level == math.inf}
    busy = [share for share in users if share.account in idle and share.level != math.inf]
    assert busy
    assert all((share.fairshare or 0.0) < idle[share.account] for share in busy)


def test_a_cluster_without_jobs_has_used_nothing() -> None:
    shares = read_shares(EMPTY).shares

    assert {0.0} == {share.raw_usage_seconds for share in shares}
    assert {math.inf, None} == {share.level for share in shares}


def test_factors_add_up_to_the_priority_of_the_queue() -> None:
    found = blockers.parse_priorities(ask("sprio", *blockers.SPRIO_ARGUMENTS))
    waiting = {job.id: job for job in CLUSTER.jobs if job.state == "PENDING" and job.priority}
    assert 0 == found.unreadable_rows
    assert {(job.id, name) for job in waiting.values() for name in job.partitions} == {
        (one.job_id, one.partition) for one in found.priorities
    }
    for one in found.priorities:
        assert waiting[one.job_id].priority == one.total == sum(one.factors.values())


def test_node_that_is_down_has_one_event_with_its_whole_reason() -> None:
    down = [node for node in CLUSTER.nodes if node.reason]
    assert any("|" in (node.reason or "") for node in down)
    for node in down:
        (event,) = read_events(run, node.name, "2026-01-01")
        assert (node.reason_time, None) == (event.start_seconds, event.end_seconds)
        assert (node.reason or "").replace("\n", " ") == event.reason
    fine = next(node.name for node in CLUSTER.nodes if not node.reason)
    assert () == read_events(run, fine, "2026-01-01", CLUSTER.name)
    all_events = parse_all_events(ask("sacctmgr", *ALL_ARGUMENTS), 1_800_000_000).events
    assert [(node.name, *read_events(run, node.name, "2026-01-01")) for node in down] == list(all_events)


def test_first_user_coordinates_the_first_account() -> None:
    first, second, *_ = CLUSTER.users

    assert {CLUSTER.accounts[0]} == read_coordinated(run, first.name)
    assert frozenset() == read_coordinated(run, second.name)
    assert frozenset() == read_coordinated(run, "somebody-else")
    assert {CLUSTER.accounts[0]: (first.name,)} == read_coordinators(run)
