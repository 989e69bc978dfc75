# SPDX-License-Identifier: Apache-2.0
"""The simulated sacct and sacctmgr answer the accounting reader, and give the same answer twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from slurmscope.accounting.sacct import SacctAccounting
from slurmscope.jobs.record import JobRecord
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape, SimulatedCluster
from slurmscope.simulator.commands import sacct, sacctmgr
from slurmscope.simulator.commands.executables import write_fake_commands
from slurmscope.slurm.command import SlurmCommands, SlurmSettings
from slurmscope.slurm.coordinators import read_coordinated

NOW = 1_800_000_000
CLUSTER = simulate(Shape(jobs=400, users=12, accounts=4), now=NOW)


class Commands:
    """Run simulated commands in this process, at a moment of its own."""

    def __init__(self, cluster: SimulatedCluster = CLUSTER) -> None:
        self._cluster = cluster

    def run(self, name: str, arguments: Sequence[str]) -> bytes:
        if name == "sacctmgr":
            code, answer, complaints = sacctmgr.answer(self._cluster, arguments)
        else:
            code, answer, complaints = sacct.respond(
                lambda column: sacct.column(self._cluster, column),
                arguments,
                {"SLURM_TIME_FORMAT": "%s"},
                wall_clock=lambda: NOW,
            )
        assert (0, b"") == (code, complaints)
        return answer


@pytest.fixture(scope="module")
def ended() -> list[JobRecord]:
    return list(SacctAccounting(Commands().run).read_ended(NOW - 4 * 3600, NOW))


def test_every_ended_job_can_be_asked_for_by_its_number(ended: list[JobRecord]) -> None:
    some = ended[::29]

    found = SacctAccounting(Commands().run).read_jobs([record.job_id for record in some])

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
    current = list(SacctAccounting(Commands().run).read_current())

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

    (record,) = SacctAccounting(Commands().run).read_jobs([running.id])

    assert (running.user.name, running.cpus, running.node_names) == (record.user, record.cpus, record.nodes)
    assert [("batch", None)] == [(step.name, step.cpu_seconds) for step in record.steps]


def test_first_user_coordinates_the_first_account() -> None:
    first, second, *_ = CLUSTER.users

    assert {CLUSTER.accounts[0]} == read_coordinated(Commands().run, first.name)
    assert frozenset() == read_coordinated(Commands().run, second.name)
    assert frozenset() == read_coordinated(Commands().run, "somebody-else")


@pytest.mark.parametrize(
    "words", [["show", "user"], ["show", "user", "name=x", "format=User"], ["delete", "user", "x"]]
)
def test_other_questions_to_sacctmgr_are_refused(words: list[str]) -> None:
    code, answer, complaints = sacctmgr.answer(CLUSTER, words)

    assert (1, b"") == (code, answer)
    assert complaints.startswith(b"sacctmgr: error: ")


def test_fake_command_answer(tmp_path: Path) -> None:
    write_fake_commands(CLUSTER, tmp_path)
    accounting = SacctAccounting(SlurmCommands(SlurmSettings(bin_path=tmp_path, timeout=60.0), {}).run)

    assert list(accounting.read_current()) == list(SacctAccounting(Commands().run).read_current())
    assert list(SacctAccounting(Commands().run).read_ended(NOW - 200_000_000, NOW - 199_999_700)) == list(
        accounting.read_ended(NOW - 200_000_000, NOW - 199_999_700)
    )
