# SPDX-License-Identifier: Apache-2.0
"""The simulated sacct reports jobs that end at a steady pace, and our readers find them all, again and again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from slurmscope.accounting.sacct import SacctAccounting
from slurmscope.cluster.completions import STATES, EndedJob, arguments, parse_ended_jobs
from slurmscope.jobs.record import JobRecord
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape, SimulatedCluster
from slurmscope.simulator.commands.executables import answer, write_fake_commands
from slurmscope.slurm.command import SlurmCommands, SlurmSettings

NOW = 1_800_000_000
SEPARATOR = "00c0ffee00c0ffee"
CLUSTER = simulate(Shape(jobs=400, users=12, accounts=4), now=NOW)
EMPTY = SimulatedCluster(name="empty", now=NOW, jobs=(), nodes=(), partitions=(), users=(), accounts=(), qos=())


def run(command: str, argv: Sequence[str], cluster: SimulatedCluster = CLUSTER, now: float = NOW) -> bytes:
    code, rows, complaint = answer(cluster, command, argv, now=now)
    assert (0, b"") == (code, complaint)
    return rows


def read(start: int, end: int, cluster: SimulatedCluster = CLUSTER, now: float = NOW) -> tuple[EndedJob, ...]:
    """Ask as the exporter does."""
    jobs, unreadable_rows = parse_ended_jobs(run("sacct", arguments(start, end, SEPARATOR), cluster, now), SEPARATOR)
    assert 0 == unreadable_rows
    return jobs


def test_adjacent_windows_hold_together_what_one_holds() -> None:
    whole = read(NOW - 3600, NOW)
    parts = [read(start, min(start + 699, NOW)) for start in range(NOW - 3600, NOW + 1, 700)]

    assert whole == tuple(job for part in parts for job in part)
    assert len({job.identity for job in whole}) == len(whole)
    assert all(NOW - 3600 <= job.end_time <= NOW for job in whole)


def test_more_jobs_end_where_there_are_more() -> None:
    few, many = (simulate(Shape(jobs=jobs), now=NOW) for jobs in (120, 1200))

    assert 8 < len(read(NOW - 3600, NOW, many)) / len(read(NOW - 3600, NOW, few)) < 20


def test_jobs_end_in_many_ways_and_have_the_cluster_s_names() -> None:
    jobs = read(NOW - 12 * 3600, NOW)

    assert set(STATES) - {"DEADLINE"} == {job.state for job in jobs}
    assert {partition.name for partition in CLUSTER.partitions} >= {job.partition for job in jobs}
    assert {*CLUSTER.accounts, ""} >= {job.account for job in jobs}
    assert {"ok", "error", "signal", "none"} == {job.exit_class for job in jobs}
    assert any(job.gpus for job in jobs)
    assert {5} == {job.tasks for job in jobs if job.elapsed_seconds is None}
    assert {1} == {job.tasks for job in jobs if job.elapsed_seconds is not None}


def test_nothing_ends_in_the_future() -> None:
    assert () == read(NOW + 1, NOW + 3600)
    assert NOW >= max(job.end_time for job in read(NOW - 600, NOW + 3600))
    assert NOW < max(job.end_time for job in read(NOW - 600, NOW + 3600, now=NOW + 3600))


def test_no_job_ends_on_a_cluster_without_jobs() -> None:
    assert () == read(NOW - 3600, NOW, EMPTY)


@pytest.fixture(scope="module")
def ended() -> list[JobRecord]:
    return list(SacctAccounting(run).read_ended(NOW - 4 * 3600, NOW))


def test_every_ended_job_can_be_asked_for_by_its_number(ended: list[JobRecord]) -> None:
    some = ended[::29]

    found = SacctAccounting(run).read_jobs([record.job_id for record in some])

    assert sorted(some, key=lambda record: record.job_id) == list(found)


def test_ended_jobs_have_people_nodes_and_use(ended: list[JobRecord]) -> None:
    started = [record for record in ended if record.start_seconds is not None]

    assert {user.name: user.uid for user in CLUSTER.users}.items() >= {(r.user, r.uid) for r in ended}
    assert {node.name for node in CLUSTER.nodes} >= {name for record in started for name in record.nodes}
    assert all(len(record.nodes) == record.node_count and record.cpus for record in started)
    assert {"batch"} == {step.name for record in started for step in record.steps}
    for record in started:
        assert record.end_seconds is not None
        assert record.start_seconds is not None
        assert record.cpu_seconds is None or record.cpu_seconds <= (record.cpus or 0) * (
            record.end_seconds - record.start_seconds
        )
        peak = record.steps[0].max_rss_bytes
        assert peak is None or record.memory_bytes is None or peak < record.memory_bytes


def test_current_jobs_are_those_of_the_cluster() -> None:
    current = list(SacctAccounting(run).read_current())

    waiting = {job.id for job in CLUSTER.jobs if job.state == "PENDING"}
    running = {job.id for job in CLUSTER.jobs if job.state == "RUNNING"}
    assert waiting <= {record.job_id for record in current if record.state == "PENDING"}
    assert running <= {record.job_id for record in current if record.is_running}
    assert {"PENDING", "RUNNING", "SUSPENDED"} == {record.state for record in current}
    assert {job.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for job in CLUSTER.jobs} >= {
        record.name for record in current
    }


def test_job_that_runs_is_found_by_its_number() -> None:
    running = next(job for job in CLUSTER.jobs if job.state == "RUNNING" and job.array_id is None and not job.het_id)

    (record,) = SacctAccounting(run).read_jobs([running.id])

    assert (running.user.name, running.cpus, running.node_names) == (record.user, record.cpus, record.nodes)
    assert [("batch", None)] == [(step.name, step.cpu_seconds) for step in record.steps]


def test_jobs_of_a_user_are_those_that_ended_or_are_in_the_queue(ended: list[JobRecord]) -> None:
    accounting = SacctAccounting(run)
    user = CLUSTER.users[0].name

    found = list(accounting.read_user(user, NOW - 4 * 3600, NOW))

    expected = [*ended, *accounting.read_current()]
    assert [record for record in expected if record.user == user] == found
    assert [] == list(accounting.read_user("nobody", NOW - 4 * 3600, NOW))


def test_fake_commands_answer(tmp_path: Path) -> None:
    write_fake_commands(CLUSTER, tmp_path)
    accounting = SacctAccounting(SlurmCommands(SlurmSettings(bin_path=tmp_path, timeout=60.0), {}).run)

    assert list(accounting.read_current()) == list(SacctAccounting(run).read_current())
    window = NOW - 200_000_000, NOW - 199_999_700
    assert list(SacctAccounting(run).read_ended(*window)) == list(accounting.read_ended(*window))
