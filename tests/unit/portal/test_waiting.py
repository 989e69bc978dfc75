# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from pathlib import Path

import pytest

from slurmscope.cluster.sinfo import Nodes
from slurmscope.cluster.squeue import Jobs, StartWindow
from slurmscope.core.errors import CommandMissing
from slurmscope.portal.live import LiveCluster
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape, SimulatedCluster
from slurmscope.simulator.commands.executables import write_fake_commands
from slurmscope.slurm.command import SlurmCommands, SlurmSettings
from tests.fakes.slurm_scripts import make_commands


@pytest.fixture(scope="module")
def cluster() -> SimulatedCluster:
    return simulate(Shape(jobs=150, nodes=8), now=int(time.time()))


@pytest.fixture
def folder(tmp_path: Path, cluster: SimulatedCluster) -> Path:
    write_fake_commands(cluster, tmp_path / "bin")
    return tmp_path / "bin"


class Backend:
    """Have no jobs and no nodes, or fail."""

    def __init__(self, error: CommandMissing | None) -> None:
        self._error = error

    def read_jobs(self, window: StartWindow, now_seconds: float, *, with_owners: bool = False) -> Jobs:
        if self._error:
            raise self._error
        return Jobs(groups=(), taken_at_seconds=now_seconds)

    def read_nodes(self) -> Nodes:
        raise CommandMissing(["sinfo"], "sinfo was not found")


def open_commands(folder: Path) -> SlurmCommands:
    return SlurmCommands(SlurmSettings(bin_path=folder, timeout=60.0), {})


def open_cluster(commands: SlurmCommands, jobs_error: CommandMissing | None = None) -> LiveCluster:
    live = LiveCluster(commands.run, Backend(jobs_error))
    for reading in live.readings[:3]:
        reading.request()
        reading.wait(time.monotonic() + 60.0)
    return live


def test_one_command_serves_all_visitors(folder: Path, cluster: SimulatedCluster) -> None:
    commands = open_commands(folder)
    live = open_cluster(commands)
    queues = [live.queue() for _ in range(50)]
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
    alone = open_cluster(open_commands(tmp_path / "empty"))
    assert alone.queue() is None
    missing = CommandMissing(["squeue"], "squeue was not found")
    (problem,) = alone.queue_problems()
    assert problem.startswith("Pending jobs cannot be read: ")
    assert [] == list(open_cluster(open_commands(tmp_path / "empty"), missing).queue_problems())


def test_facts_are_read_as_far_as_requested(folder: Path) -> None:
    commands = open_commands(folder)
    live = open_cluster(commands)
    facts = live.facts(())
    assert (None, None, None) == (facts.limits, facts.licenses, facts.nodes)
    assert 0 == commands.runs["sdiag"]
    until = time.monotonic() + 60.0
    while live.facts(("diag",)).diag is None and time.monotonic() < until:
        time.sleep(0.05)
    assert live.facts(("diag",)).diag is not None
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
    live = open_cluster(open_commands(wrapped))
    assert live.queue() is not None
    limits = next(reading for reading in live.readings if reading.name == "limits")
    limits.request()
    assert limits.wait(time.monotonic() + 60.0).has_value
    assert is_shown == (live.facts(("limits",)).limits is not None)
