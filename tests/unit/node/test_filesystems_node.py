# SPDX-License-Identifier: Apache-2.0
"""Check that use of file systems is added to the job that is alone on the node."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path

from slurmscope.cli.roles import all_collectors
from slurmscope.exporter.collector import Role
from slurmscope.node import filesystems
from slurmscope.node.filesystems import MAX_MOUNTS, FilesystemReader
from slurmscope.node.job_use import JobKey, Roster
from slurmscope.node.mounts import ClientUse, Mount, MountedFilesystem, NodeFilesystems
from tests.fakes.exporters import load_role, open_role

HOME = MountedFilesystem("nfs1:/home", "nfs4")
ONE, TWO = JobKey(1), JobKey(2)
NO_JOB = Roster()
FIRST = Roster(begun=1, running=1, last=ONE, alone=ONE)
BOTH = Roster(begun=2, running=2, last=TWO)
SECOND = Roster(begun=2, running=1, last=TWO, alone=TWO)


class FakeNode:
    """Hold one mount, the roster and the time; list the processes for which mounts were requested."""

    def __init__(self) -> None:
        self.now = 0.0
        self.bytes = 1000
        self.roster = NO_JOB
        self.mounts = 1
        self.while_reading: Callable[[], None] = lambda: None
        self.pids: list[Collection[int]] = []
        self.reader = FilesystemReader(
            self.read_mounts, lambda: self.roster, lambda key: {key.job_id * 10}, lambda: self.now
        )

    def read_mounts(self, pids: Collection[int]) -> list[Mount]:
        self.pids.append(pids)
        self.while_reading()
        use = ClientUse(self.bytes, 0, 0)
        return [
            Mount(filesystem=HOME._replace(name=HOME.name + "x" * n), age_seconds=100 + int(self.now), use=use)
            for n in range(self.mounts)
        ]

    def read(self, roster: Roster, more: int = 0) -> NodeFilesystems:
        self.now += 10
        self.bytes += more
        self.roster = roster
        return self.reader.read()


def read_bytes(found: NodeFilesystems) -> dict[JobKey, int | None]:
    return {key: uses[HOME].read_bytes for key, uses in found.jobs.items()}


def test_use_belongs_to_a_job_while_it_is_alone() -> None:
    node = FakeNode()

    assert {} == read_bytes(node.read(NO_JOB))
    assert {} == read_bytes(node.read(NO_JOB, more=500))
    assert {ONE: 7} == read_bytes(node.read(FIRST, more=7))
    assert {ONE: 10} == read_bytes(node.read(FIRST, more=3))
    assert {ONE: 10} == read_bytes(node.read(BOTH, more=100)), "another job began meanwhile"
    assert {ONE: 10} == read_bytes(node.read(SECOND, more=100)), "both ran for a part of the time"
    assert {ONE: 10, TWO: 4} == read_bytes(node.read(SECOND, more=4))
    assert {ONE: 10, TWO: 5} == read_bytes(node.read(Roster(begun=2, last=TWO), more=1))
    assert {ONE: 10, TWO: 5} == read_bytes(node.read(Roster(begun=2, last=TWO), more=50))


def test_job_that_was_never_alone_has_nothing() -> None:
    node = FakeNode()
    node.read(BOTH)

    assert {} == node.read(BOTH, more=5).jobs


def test_job_that_ends_while_mounts_are_read_still_ran() -> None:
    node = FakeNode()
    node.roster = BOTH

    def end_one() -> None:
        node.roster = SECOND

    node.while_reading = end_one
    node.read(BOTH)

    assert {} == node.read(SECOND, more=5).jobs


def test_job_that_begins_while_mounts_are_read_already_ran() -> None:
    node = FakeNode()
    node.read(FIRST)

    def begin_another() -> None:
        node.roster = BOTH

    node.while_reading = begin_another

    assert {} == node.read(FIRST, more=5).jobs


def test_mounts_are_those_of_the_host_and_of_the_only_job() -> None:
    node = FakeNode()
    for roster in (NO_JOB, FIRST, BOTH):
        node.read(roster)

    assert [(), {10}, ()] == node.pids


def test_without_mounts_nothing_is_kept() -> None:
    node = FakeNode()
    node.mounts = 0
    node.read(FIRST)

    assert NodeFilesystems() == node.read(FIRST)


def test_mounts_above_the_limit_are_left_out() -> None:
    node = FakeNode()
    node.mounts = MAX_MOUNTS + 3

    found = node.read(FIRST)

    assert (MAX_MOUNTS, 3) == (len(found.mounts), found.left_out)


def test_totals_of_few_ended_jobs_are_kept() -> None:
    node = FakeNode()
    node.read(NO_JOB)
    for number in range(1, filesystems.KEPT_JOBS + 3):
        key = JobKey(number)
        node.read(Roster(begun=number, running=1, last=key, alone=key), more=1)
        found = node.read(Roster(begun=number, last=key), more=1)

    assert (filesystems.KEPT_JOBS, False, True) == (len(found.jobs), JobKey(2) in found.jobs, JobKey(3) in found.jobs)


def test_agent_adds_up_the_mounts_below_its_procfs(tmp_path: Path) -> None:
    job = tmp_path / "cgroup" / "system.slice" / "slurmstepd.scope" / "job_7"
    (job / "step_batch" / "user" / "task_0").mkdir(parents=True)
    (tmp_path / "cgroup" / "cgroup.controllers").write_text("cpu memory pids")
    for folder in (job, *job.rglob("*")):
        (folder / "cgroup.procs").write_text("")
        (folder / "cpu.stat").write_text("usage_usec 1000\n")
    (job / "step_batch" / "user" / "task_0" / "cgroup.procs").write_text("77\n")
    (tmp_path / "1").mkdir()
    flags = {
        "path.procfs": str(tmp_path),
        "path.cgroup": str(tmp_path / "cgroup"),
        "node.interval": "0",
        "node.name": "n1",
    }
    with closing(open_role("node", load_role("node", flags))) as readings:
        readings.require(all_collectors(Role.NODE))
        for count in (1000, 1025):
            head = "device nfs1:/home mounted on /m with fstype nfs4 statvers=1.1"
            (tmp_path / "1" / "mountstats").write_text(f"{head}\n\tage:\t9\n\tbytes:\t0 0 0 0 {count} 0 0 0 \n")
            for name in ("node_jobs", "filesystems"):
                found = readings.read([name], time.monotonic() + 30)[name]
                assert found.error is None

    assert isinstance(found.value, NodeFilesystems)
    assert {JobKey(7): {HOME: ClientUse(25, 0, None)}} == found.value.jobs
