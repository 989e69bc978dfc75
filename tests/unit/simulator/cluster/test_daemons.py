# SPDX-License-Identifier: Apache-2.0
"""Simulated daemons speak of themselves as real ones do."""

from __future__ import annotations

import re
from pathlib import Path

from slurmscope.cluster.dbd import parse_dbd
from slurmscope.cluster.scheduler import parse_diag
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape, SimulatedCluster
from slurmscope.simulator.cluster.statistics import make_database_report, make_diag

FIXTURES = Path(__file__).parents[3] / "fixtures" / "slurm-22.05"
MIDNIGHT = 1_800_000_000 - 1_800_000_000 % 86_400
NOON = MIDNIGHT + 43_200


def cluster(now: int = NOON) -> SimulatedCluster:
    """Make the usual cluster at a moment."""
    return simulate(Shape(), now=now)


def skeleton(answer: bytes) -> list[bytes]:
    """Strip an answer of its tables, numbers, times and names, down to its lines of text."""
    lines = [line for line in answer.splitlines() if b"count:" not in line]
    return [re.sub(rb" [A-Z][a-z]{2} [A-Z].*|'.*'|\d+", b"", line).rstrip() for line in lines]


def test_sdiag_prints_the_lines_of_a_real_one() -> None:
    real = (FIXTURES / "sdiag-busy.txt").read_bytes()

    assert skeleton(real) == skeleton(make_diag(cluster()).encode())


def test_sacctmgr_prints_the_lines_of_a_real_one() -> None:
    real = (FIXTURES / "sacctmgr-stats.txt").read_bytes()
    # Rollups are not tested here, and the first of the month is far.
    real = re.sub(rb"User RPC rollup.*\n(\t.*\n)+\n", b"", real)
    real = re.sub(rb"Month last ran.*\n(\t.*\n)+", b"", real)

    assert skeleton(real) == skeleton(make_database_report(cluster()).encode())


def test_jobs_are_those_of_the_queue() -> None:
    made = cluster()
    statistics = parse_diag(make_diag(made).encode()).daemon
    pending = statistics.number("Jobs pending")

    assert sum(job.rows for job in made.jobs if job.state == "RUNNING") == statistics.number("Jobs running")
    assert pending is not None
    assert pending >= sum(job.rows for job in made.jobs if job.state == "PENDING") > 0


def test_requests_of_users_add_up_to_those_of_messages() -> None:
    diag = parse_diag(make_diag(cluster()).encode())
    dbd = parse_dbd(make_database_report(cluster()).encode())

    for found in (diag, dbd):
        assert sum(row.requests for row in found.messages) == sum(row.requests for row in found.users) > 0
    assert {"root", *(user.name for user in cluster().users)} == {row.user for row in diag.users}


def test_totals_rise_until_midnight() -> None:
    moments = [MIDNIGHT + 1, MIDNIGHT + 100, NOON, MIDNIGHT + 86_399]
    found = [parse_diag(make_diag(cluster(now)).encode()) for now in moments]

    for totals in (
        [diag.main.number("Total cycles") or 0 for diag in found],
        [diag.backfill.number("Total cycles") or 0 for diag in found],
        [diag.daemon.number("Jobs submitted") or 0 for diag in found],
        [diag.users[1].requests for diag in found],
    ):
        assert sorted(totals) == totals
        assert totals[0] < totals[-1]
    assert {MIDNIGHT} == {diag.daemon.timestamp("Data since") for diag in found}


def test_a_daemon_that_just_began_has_no_rollups() -> None:
    fresh = 1_800_000_000 - 1_800_000_000 % (30 * 86_400)

    assert () == parse_dbd(make_database_report(cluster(fresh)).encode()).rollups
