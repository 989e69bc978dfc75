# SPDX-License-Identifier: Apache-2.0
"""Check that every job of the node is found once, with its right key, and nothing else is."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from slurmscope.core.errors import SourceError
from slurmscope.node.cgroup.tree import CgroupLayout, CgroupTree, LayoutKind
from slurmscope.node.job_use import JobKey
from tests.fixtures.cgroup.make import unpack
from tests.unit.node.cgroup.conftest import N1, N2, Machine, MakeMachine, count_descriptors, no_descriptors_left

SCOPE = "system.slice/n1_slurmstepd.scope"
JOB = f"{SCOPE}/job_1"
V1_JOB = "slurm_n1/uid_1001/job_1"
NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")


def test_each_slurmd_has_its_own_jobs(v2: Machine) -> None:
    jobs = v2.tree.scan()
    assert [N1, N2] == list(jobs)
    assert [4242, 4242] == [job.uid for job in jobs.values()]
    assert (2, 0) == (v2.tree.scopes, v2.tree.stale)


def test_v1_job_has_its_user_from_its_path(v1: Machine) -> None:
    assert {N1: 1001} == {key: job.uid for key, job in v1.tree.scan().items()}
    assert (1, 0) == (v1.tree.scopes, v1.tree.stale)


def test_same_job_is_the_same_object_at_each_scan(v2: Machine) -> None:
    assert v2.tree.scan()[N1] is v2.tree.scan()[N1]


@pytest.mark.parametrize(
    "scope",
    [
        "slurmstepd.scope",
        "hpc.slice/hpc-jobs.slice/slurmstepd.scope",
        "kubepods.slice/burstable.slice/pod1.slice/containerd-1.scope/system.slice/slurmstepd.scope",
    ],
)
def test_scope_is_found_in_any_slice(v2: Machine, scope: str) -> None:
    (v2.cgroups / scope).parent.mkdir(parents=True, exist_ok=True)
    (v2.cgroups / SCOPE).rename(v2.cgroups / scope)
    assert {JobKey(1), N2} == set(v2.tree.scan())


def test_v1_folder_without_a_node_name_is_found(v1: Machine) -> None:
    for hierarchy in v1.cgroups.iterdir():
        (hierarchy / "slurm_n1").rename(hierarchy / "slurm")
    assert {JobKey(1): 1001} == {key: job.uid for key, job in v1.tree.scan().items()}


def test_v1_with_several_slurmd_has_the_jobs_of_each(v1: Machine) -> None:
    for hierarchy in v1.cgroups.iterdir():
        shutil.copytree(hierarchy / "slurm_n1", hierarchy / "slurm_n2")
    assert {N1, N2} == set(v1.tree.scan())


@needs_root
def test_scope_that_a_user_made_is_ignored(v2: Machine) -> None:
    fake = v2.cgroups / "user.slice" / "user-1000.slice" / "slurmstepd.scope"
    shutil.copytree(v2.cgroups / SCOPE, fake)
    os.chown(fake, 1000, 1000)
    assert {N1, N2} == set(v2.tree.scan())


def test_folders_that_are_no_jobs_are_left_out(v2: Machine) -> None:
    (v2.cgroups / SCOPE / "gpu_probe").mkdir()
    (v2.cgroups / SCOPE / "job_x").mkdir()
    assert {N1, N2} == set(v2.tree.scan())
    assert (2, 0) == (v2.tree.scopes, v2.tree.stale)


def test_v1_folders_that_are_no_jobs_are_left_out(v1: Machine) -> None:
    for hierarchy in v1.cgroups.iterdir():
        (hierarchy / "slurm_n1" / "something").mkdir()
        (hierarchy / "slurm_n1" / "system").mkdir()
        (hierarchy / "slurm_n1" / "uid_1001" / "else").mkdir()
    assert {N1} == set(v1.tree.scan())
    assert (1, 0) == (v1.tree.scopes, v1.tree.stale)


def test_ended_job_is_closed_and_dropped(v2: Machine) -> None:
    job = v2.job()
    shutil.rmtree(v2.cgroups / JOB)
    assert {N2} == set(v2.tree.scan())
    assert job.read() is None


def test_new_job_is_found_at_the_next_scan(v2: Machine) -> None:
    v2.tree.scan()
    v2.write(f"{SCOPE}/job_2/cgroup.events", "populated 1\n")
    assert {N1, N2, JobKey(2, "n1")} == set(v2.tree.scan())


def test_job_that_comes_back_is_another_object(v2: Machine) -> None:
    old = v2.job()
    shutil.copytree(v2.cgroups / JOB, v2.cgroups / "copy")
    (v2.cgroups / JOB).rename(v2.cgroups / "old")
    (v2.cgroups / "copy").rename(v2.cgroups / JOB)
    new = v2.job()
    assert new is not old
    assert old.read() is None
    assert new.read() is not None


def test_second_folder_of_a_job_is_left_out(v2: Machine) -> None:
    shutil.copytree(v2.cgroups / SCOPE, v2.cgroups / "other.slice" / "n1_slurmstepd.scope")
    assert {N1, N2} == set(v2.tree.scan())


def test_scope_that_appears_is_found_within_seconds(v2: Machine) -> None:
    for scope in ("n1", "n2"):
        (v2.cgroups / f"system.slice/{scope}_slurmstepd.scope").rename(v2.cgroups.parent / scope)
    assert {} == v2.tree.scan()
    assert (0, 0) == (v2.tree.scopes, v2.tree.stale)
    (v2.cgroups.parent / "n1").rename(v2.cgroups / SCOPE)
    v2.clock.now += 6
    assert {N1} == set(v2.tree.scan())


def test_scope_that_moved_is_searched_for_at_once(v2: Machine) -> None:
    v2.tree.scan()
    (v2.cgroups / SCOPE).rename(v2.cgroups / "n1_slurmstepd.scope")
    v2.tree.scan()
    assert {N1, N2} == set(v2.tree.scan())


def test_machine_without_cgroups_has_no_jobs(tmp_path: Path) -> None:
    tree = CgroupTree(CgroupLayout(kind=LayoutKind.UNSUPPORTED), tmp_path)
    assert {} == tree.scan()
    assert [] == tree.watch_paths()
    assert {} == tree.measures()
    assert (0, 0) == (tree.scopes, tree.stale)


def test_lack_of_descriptors_is_an_error_and_not_an_empty_node(v2: Machine) -> None:
    v2.tree.scan()
    with no_descriptors_left(), pytest.raises(SourceError, match="Too many open files"):
        v2.tree.scan()
    assert {N1, N2} == set(v2.tree.scan())


def test_lack_of_descriptors_leaves_the_known_processes(make_machine: MakeMachine) -> None:
    machine = make_machine("v2-slurm-22.05", 1000)
    job = machine.job()
    expected = job.members()
    machine.write(f"{JOB}/step_7/user/task_0/cgroup.procs", "9999\n")
    with no_descriptors_left():
        short = job.members()
    assert expected == short
    assert 9999 in job.members().user


@needs_root
def test_unreadable_folder_is_counted_and_affects_its_own_jobs_only() -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        machine = Machine(unpack("v2-slurm-22.05", Path(name)), 0)
        (machine.cgroups / "system.slice" / "n2_slurmstepd.scope").chmod(0o700)
        os.seteuid(NOBODY)
        try:
            jobs = machine.tree.scan()
        finally:
            os.seteuid(0)
    assert {N1} == set(jobs)
    assert machine.tree.refusals["folder"] >= 1


def test_paths_to_watch_are_where_jobs_and_steps_come_and_go(v2: Machine) -> None:
    shutil.rmtree(v2.cgroups / "system.slice" / "n2_slurmstepd.scope")
    v2.tree.scan()
    expected = ["system.slice", SCOPE, JOB, f"{JOB}/cgroup.events"]
    assert expected == [str(path.relative_to(v2.cgroups)) for path in v2.tree.watch_paths()]


def test_paths_to_watch_on_v1_are_those_of_the_freezer(v1: Machine) -> None:
    v1.tree.scan()
    expected = ["freezer", "freezer/slurm_n1", "freezer/slurm_n1/uid_1001", f"freezer/{V1_JOB}"]
    assert expected == [str(path.relative_to(v1.cgroups)) for path in v1.tree.watch_paths()]


def test_available_measurements_are_reported(v1: Machine, v2: Machine) -> None:
    v1.tree.scan()
    v2.tree.scan()
    no_io = {"cpu": True, "cpuset": True, "memory": True, "io": False, "pids": False}
    assert no_io | {"pressure": True} == v2.tree.measures()
    assert no_io | {"pressure": False} == v1.tree.measures()


def test_close_closes_every_descriptor(make_machine: MakeMachine) -> None:
    before = count_descriptors()
    for name in ("v1-slurm-22.05", "v2-slurm-22.05"):
        machine = make_machine(name, 1000)
        job = machine.job()
        job.read()
        job.read_groups(steps=True, tasks=True)
        job.members()
        machine.tree.scan()
        assert count_descriptors() > before
        machine.close()
        assert before == count_descriptors()
