# SPDX-License-Identifier: Apache-2.0
"""The simulated scontrol reports the same jobs and nodes as squeue and sinfo, and our parsers read it whole."""

from __future__ import annotations

from datetime import datetime

import pytest

from slurmscope.cluster import licenses as scontrol_licenses
from slurmscope.cluster import limits as scontrol_limits
from slurmscope.cluster import reservations as scontrol_reservations
from slurmscope.cluster import scontrol_nodes, sinfo
from slurmscope.cluster.limits import Limits
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.job_states import CPU_HOLDING_STATES
from slurmscope.simulator.cluster.records import Shape, SimulatedCluster
from slurmscope.simulator.commands import scontrol
from slurmscope.simulator.commands import sinfo as simulated_sinfo

NOW = 1_800_000_000
EPOCH = {"SLURM_TIME_FORMAT": "%s"}
CLUSTER = simulate(Shape(jobs=300, users=12, accounts=4), now=NOW)
EMPTY = SimulatedCluster(
    name="empty", now=NOW, jobs=(), nodes=(), partitions=(), users=CLUSTER.users, accounts=(), qos=("normal",)
)
RUNNING = [job for job in CLUSTER.jobs if job.state in CPU_HOLDING_STATES]


def ask(*argv: str, cluster: SimulatedCluster = CLUSTER) -> bytes:
    """Ask with the exporter's own environment."""
    code, answer, complaints = scontrol.answer(cluster, argv, EPOCH)
    assert (0, b"") == (code, complaints)
    return answer


def read_limits(cluster: SimulatedCluster = CLUSTER) -> Limits:
    """Ask for the limits as the exporter does."""
    return scontrol_limits.parse_limits(ask(*scontrol_limits.ARGUMENTS, cluster=cluster))


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
    licenses = scontrol_licenses.parse_licenses(ask(*scontrol_licenses.ARGUMENTS)).licenses

    entries = [entry for job in RUNNING for entry in (job.licenses or "").split(",") if entry.startswith("matlab")]
    matlab = next(each for each in licenses if each.name == "matlab")
    assert sum(int(entry.partition(":")[2] or 1) for entry in entries) == matlab.used
    assert all(each.total == each.used + each.free for each in licenses)


def test_reservations_are_read_with_their_nodes() -> None:
    course, maintenance = scontrol_reservations.parse_reservations(ask(*scontrol_reservations.ARGUMENTS)).reservations

    assert (True, False) == (course.is_active, maintenance.is_active)
    assert NOW - 3600 == course.start_timestamp
    assert {node.name for node in CLUSTER.nodes} == set(maintenance.nodes or ())
    assert sum(node.cpus for node in CLUSTER.nodes) == maintenance.core_count


def test_times_are_of_the_zone_unless_asked_otherwise() -> None:
    _, answer, _ = scontrol.answer(CLUSTER, ["-o", "show", "res"])

    text = answer.decode().partition("StartTime=")[2].partition(" ")[0]
    assert NOW - 3600 == datetime.fromisoformat(text).astimezone().timestamp()


def test_only_the_records_that_were_asked_for_are_shown() -> None:
    answer = ask("show", "assoc_mgr", "flags=qos", cluster=EMPTY)

    assert [b"Current Association Manager state", b"QOS Records"] == answer.split(b"\n")[:2]
    assert b" Account Limits=No Accounts User Limits=No Users\n" in answer
    assert b"QOS" not in ask("show", "assoc_mgr", "flags=assoc", cluster=EMPTY)


def test_the_controller_is_up() -> None:
    assert b"Slurmctld(primary) at simulated-ctl is UP\n" == ask("ping")


@pytest.mark.parametrize("argv", [[], ["show"], ["show", "bogus"], ["shutdown"], ["--bogus"]])
def test_wrong_usage_is_refused(argv: list[str]) -> None:
    code, answer, complaints = scontrol.answer(EMPTY, argv)

    assert (1, b"") == (code, answer)
    assert complaints.startswith(b"scontrol: error: ")


def test_the_version_is_told() -> None:
    assert (0, b"slurm 22.05.8\n", b"") == scontrol.answer(EMPTY, ["--version"])


@pytest.mark.parametrize("seed", [1, 2])
def test_nodes_are_those_of_sinfo(seed: int) -> None:
    cluster = simulate(Shape(seed=seed, nodes=100, partitions=6), now=NOW)
    _, rows, _ = simulated_sinfo.answer(cluster, sinfo.arguments("5eparat0r"), EPOCH)

    shown = scontrol_nodes.parse_nodes(ask(*scontrol_nodes.ARGUMENTS, cluster=cluster))

    assert 0 == shown.unreadable_rows
    listed = {node.name: node for node in sinfo.parse_nodes(rows, "5eparat0r").nodes}
    assert listed == {node.name: node for node in shown.nodes if node.partitions}
