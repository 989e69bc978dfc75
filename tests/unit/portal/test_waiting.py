# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from pathlib import Path

import pytest

from slurmscope.exporter.reading import SharedReading
from slurmscope.portal.live import KnownConfig, WaitingReadings, make_waiting_readings
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape, SimulatedCluster
from slurmscope.simulator.commands.executables import write_fake_commands
from slurmscope.slurm.command import SlurmCommands, SlurmSettings
from slurmscope.slurm.visibility import CONTROLLER, JobVisibility
from tests.fakes.slurm_scripts import make_commands


@pytest.fixture(scope="module")
def cluster() -> SimulatedCluster:
    return simulate(Shape(jobs=150, nodes=8), now=int(time.time()))


@pytest.fixture
def folder(tmp_path: Path, cluster: SimulatedCluster) -> Path:
    write_fake_commands(cluster, tmp_path / "bin")
    return tmp_path / "bin"


def open_commands(folder: Path) -> SlurmCommands:
    return SlurmCommands(SlurmSettings(bin_path=folder, timeout=60.0), {})


def open_readings(commands: SlurmCommands, jobs_error: bool = False) -> WaitingReadings:
    visibility = JobVisibility(commands.run, CONTROLLER)

    def read_jobs() -> object:
        return commands.run("missing", ()) if jobs_error else None

    jobs = SharedReading("jobs", read_jobs, interval_seconds=60.0)
    jobs.request()
    jobs.wait(time.monotonic() + 60.0)
    nodes = SharedReading("nodes", lambda: None, interval_seconds=60.0)
    readings = make_waiting_readings(commands.run, visibility, jobs, nodes, KnownConfig(commands.run))
    readings.readings[0].request()
    readings.readings[0].wait(time.monotonic() + 60.0)
    return readings


def test_one_command_serves_all_visitors(folder: Path, cluster: SimulatedCluster) -> None:
    commands = open_commands(folder)
    readings = open_readings(commands)
    queues = [readings.queue() for _ in range(50)]
    assert 1 == commands.runs["squeue"]
    queue = queues[-1]
    assert queue is not None
    pending = {job.id: job for job in cluster.jobs if job.state == "PENDING"}
    assert set(pending) == {job.job_id for job in queue.jobs}
    assert cluster.name == queue.cluster
    for job in queue.jobs:
        expected = pending[job.job_id]
        assert (expected.name, expected.reason, expected.priority) == (job.name, job.reason, job.priority)
        assert (expected.rows, expected.start_time) == (job.task_count, job.start_seconds)
        assert (expected.cpus, expected.gpus, expected.time_limit_seconds) == (
            job.cpus, job.gpus, job.time_limit_seconds,
        )  # fmt: skip


def test_failed_reading_is_reported_unless_no_job_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    alone = open_readings(open_commands(tmp_path / "empty"))
    assert alone.queue() is None
    (problem,) = alone.problems()
    assert problem.startswith("Pending jobs cannot be read: ")
    assert [] == list(open_readings(open_commands(tmp_path / "empty"), jobs_error=True).problems())


def test_facts_are_read_as_far_as_requested(folder: Path) -> None:
    commands = open_commands(folder)
    readings = open_readings(commands)
    facts = readings.facts(())
    assert (None, None, None) == (facts.limits, facts.licenses, facts.nodes)
    assert 0 == commands.runs["sdiag"]
    until = time.monotonic() + 60.0
    while readings.facts(("diag",)).diag is None and time.monotonic() < until:
        time.sleep(0.05)
    assert readings.facts(("diag",)).diag is not None
    assert 1 == commands.runs["sdiag"]


@pytest.mark.parametrize(("private_data", "is_shown"), [("none", True), ("jobs,usage", False)])
def test_limits_are_hidden_where_private_data_hides_usage(
    tmp_path: Path, folder: Path, private_data: str, is_shown: bool
) -> None:
    config = f"PrivateData             = {private_data}\\nSlurmUser               = slurm(64030)\\n"
    wrapped = make_commands(
        tmp_path / "wrapped",
        {
            "scontrol": f'[ "$2" = config ] && printf "{config}" && exit; exec {folder}/scontrol "$@"',
            "squeue": f'exec {folder}/squeue "$@"',
            "sacctmgr": "echo operator",
        },
    )
    readings = open_readings(open_commands(wrapped))
    assert readings.queue() is not None
    limits = next(reading for reading in readings.readings if reading.name == "limits")
    limits.request()
    assert limits.wait(time.monotonic() + 60.0).has_value
    assert is_shown == (readings.facts(("limits",)).limits is not None)
