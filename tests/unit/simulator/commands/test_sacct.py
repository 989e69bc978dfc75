# SPDX-License-Identifier: Apache-2.0
"""The simulated sacct reports jobs that end at a steady pace, and our parser reads them all."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from slurmscope.cluster.completions import STATES, EndedJob, arguments, parse_ended_jobs
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape, SimulatedCluster
from slurmscope.simulator.commands import sacct
from slurmscope.simulator.commands.executables import write_fake_commands

NOW = 1_800_000_000
CLUSTER = simulate(Shape(jobs=300, users=12, accounts=4), now=NOW)
EMPTY = SimulatedCluster(name="empty", now=NOW, jobs=(), nodes=(), partitions=(), users=(), accounts=(), qos=())


def respond(*argv: str, cluster: SimulatedCluster = CLUSTER, now: float = NOW) -> tuple[int, bytes, bytes]:
    return sacct.respond(
        lambda name: sacct.column(cluster, name), argv, {"SLURM_TIME_FORMAT": "%s"}, wall_clock=lambda: now
    )


def read(start: int, end: int, cluster: SimulatedCluster = CLUSTER, now: float = NOW) -> tuple[EndedJob, ...]:
    """Ask as the exporter does."""
    code, answer, complaints = respond(*arguments(start, end, "c0ffee"), cluster=cluster, now=now)
    assert (0, b"") == (code, complaints)
    jobs, unreadable_rows = parse_ended_jobs(answer, "c0ffee")
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


def test_states_that_were_not_asked_for_are_left_out() -> None:
    code, answer, _ = respond("-nP", "-S", f"uts{NOW - 3600}", "-E", f"uts{NOW}", "-s", "failed,TO", "-o", "State%20")

    assert 0 == code
    assert {b"FAILED", b"TIMEOUT"} == set(answer.splitlines())


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("-nP", "-S", "now", "-E", "uts1800000000", "-s", "CD"),
        ("-nP", "-S", "uts1800000000", "-E", "uts1800000000"),
        ("-nP", "-S", "uts1799999000", "-E", "uts1800000000", "-s", "CD", "-o", "Comment"),
        ("-nP", "-j", "1_2"),
        ("-j", "1"),
        ("--what",),
    ],
)
def test_other_questions_are_refused(argv: tuple[str, ...]) -> None:
    code, answer, complaints = respond(*argv)

    assert (1, b"") == (code, answer)
    assert complaints.startswith(b"sacct: error: ")


def test_version_is_told() -> None:
    assert (0, b"slurm 22.05.8\n", b"") == respond("--version")


def test_fake_command_answers(tmp_path: Path) -> None:
    write_fake_commands(CLUSTER, tmp_path)
    window = 1_700_000_000, 1_700_003_600

    done = subprocess.run(
        [tmp_path / "sacct", *arguments(*window, "c0ffee")],
        env={"SLURM_TIME_FORMAT": "%s"},
        capture_output=True,
        timeout=60,
        check=True,
    )

    assert read(*window) == parse_ended_jobs(done.stdout, "c0ffee")[0]
