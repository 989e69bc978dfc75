# SPDX-License-Identifier: Apache-2.0
"""Check that user processes are distinguished from slurmstepd in every hierarchy."""

import shutil
from pathlib import Path

import pytest

from slurmscope.node.cgroup.folders import Members, read_numa_nodes
from tests.unit.node.cgroup.conftest import N2, Machine, MakeMachine, no_descriptors_left

JOB = "slurm_n1/uid_1001/job_1"
V2_JOB = "system.slice/n1_slurmstepd.scope/job_1"
# What ps showed on the captured machines.
V1_STEPD = (13524, 13535, 13555)
V1_USER = (13529, 13543, 13544, 13545, 13548, 13560)


def test_v2_processes_are_distinguished_by_their_folder(v2: Machine) -> None:
    assert Members(stepd=(248, 276), user=(255, 259, 263, 289)) == v2.job().members()
    assert Members(stepd=(275,), user=(287,)) == v2.job(N2).members()


def test_process_in_a_folder_that_a_user_made_belongs_to_the_job(v2: Machine) -> None:
    v2.write(f"{V2_JOB}/step_0/user/task_0/container/init/cgroup.procs", "9999\n")
    assert 9999 in v2.job().members().user


def test_folder_called_slurm_that_a_user_made_is_not_slurms(v2: Machine) -> None:
    v2.write(f"{V2_JOB}/step_0/user/task_0/slurm/cgroup.procs", "9999\n")
    job = v2.job()
    assert 9999 in job.members().user
    assert 9999 not in job.members().stepd


@pytest.mark.parametrize("only", ["freezer", "memory", "devices", "cpuset"])
def test_v1_processes_are_distinguished_in_every_hierarchy(v1: Machine, only: str) -> None:
    for name in ("freezer", "cpuacct", "memory", "devices", "cpuset"):
        if name != only:
            shutil.rmtree(v1.cgroups / name)
    # Nobody packed the title of this one: it is the slurmstepd of the extern step.
    (v1.procfs / "13524").mkdir(exist_ok=True)
    (v1.procfs / "13524" / "cmdline").write_bytes(b"slurmstepd: [1.extern]\0")
    assert Members(stepd=V1_STEPD, user=V1_USER) == v1.job().members()


def test_list_without_descriptors_left_is_not_complete(v1: Machine) -> None:
    job = v1.job()
    assert job.members().is_complete
    with no_descriptors_left():
        found = job.members()
    assert Members(is_complete=False) == found
    assert Members(stepd=V1_STEPD, user=V1_USER) == job.members()


def test_v1_accounting_alone_shows_no_slurmstepd(v1: Machine) -> None:
    for name in ("freezer", "memory", "devices", "cpuset"):
        shutil.rmtree(v1.cgroups / name)
    assert Members(user=V1_USER) == v1.job().members()


def test_freezer_is_used_as_soon_as_the_job_is_in_it(v1: Machine) -> None:
    shutil.move(v1.cgroups / "freezer" / JOB, v1.cgroups / "aside")
    job = v1.job()
    job.members()
    shutil.move(v1.cgroups / "aside", v1.cgroups / "freezer" / JOB)
    (v1.cgroups / "memory" / JOB / "step_0" / "cgroup.procs").write_text("")
    v1.clock.now += 0.2
    assert Members(stepd=V1_STEPD, user=V1_USER) == job.members()


def test_list_of_many_processes_is_complete(v2: Machine) -> None:
    pids = list(range(100000, 120000))
    v2.write(f"{V2_JOB}/step_0/user/task_0/cgroup.procs", "".join(f"{pid}\n" for pid in pids))
    assert (255, 259, 263, *pids) == v2.job().members().user


def test_processes_of_a_step_that_came_later_are_found(make_machine: MakeMachine) -> None:
    machine = make_machine("v2-slurm-22.05", 1000)
    job = machine.job()
    job.members()
    machine.write(f"{V2_JOB}/step_7/user/task_0/cgroup.procs", "9999\n")
    assert 9999 in job.members().user


def test_emptied_job_has_no_processes(v1: Machine) -> None:
    job = v1.job()
    assert job._folders.has_processes()
    for file in v1.cgroups.rglob("cgroup.procs"):
        file.write_text("")
    assert not job._folders.has_processes()
    assert Members() == job.members()


def test_v2_without_its_events_file_is_walked(v2: Machine) -> None:
    (v2.cgroups / V2_JOB / "cgroup.events").unlink()
    assert v2.job()._folders.has_processes()


def test_numa_nodes_are_known_by_core_if_there_are_several(tmp_path: Path) -> None:
    nodes = tmp_path / "devices" / "system" / "node"
    for number, cores in enumerate(("0-1,4", "2-3", "")):  # the last one has memory only
        (nodes / f"node{number}").mkdir(parents=True)
        (nodes / f"node{number}" / "cpulist").write_text(f"{cores}\n")
    several = read_numa_nodes(tmp_path)
    (nodes / "node1" / "cpulist").unlink()

    assert {0: 0, 1: 0, 4: 0, 2: 1, 3: 1} == several
    assert {} == read_numa_nodes(tmp_path) == read_numa_nodes(tmp_path / "none")
