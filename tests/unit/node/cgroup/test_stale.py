# SPDX-License-Identifier: Apache-2.0
"""Check that stale cgroups are distinguished from running, new and ending ones."""

import shutil

import pytest

from slurmscope.node.cgroup.job import STALE_SECONDS
from slurmscope.node.job_use import JobKey
from tests.unit.node.cgroup.conftest import N1, N2, Machine, MakeMachine

SCOPE = "system.slice/n1_slurmstepd.scope"
V1_JOB = "slurm_n1/uid_1001/job_1"


def leave(machine: Machine, path: str) -> None:
    """Remove all processes from a folder and those below."""
    for file in (machine.cgroups / path).rglob("cgroup.procs"):
        file.write_text("")
    for file in (machine.cgroups / path).rglob("cgroup.events"):
        file.write_text("populated 0\nfrozen 0\n")


def test_job_that_was_empty_at_startup_is_stale(v2: Machine) -> None:
    leave(v2, f"{SCOPE}/job_1")
    assert {N2} == set(v2.tree.scan())
    assert (2, 1) == (v2.tree.scopes, v2.tree.stale)


def test_new_job_may_wait_for_its_first_process(v2: Machine) -> None:
    v2.tree.scan()
    v2.write(f"{SCOPE}/job_2/cgroup.events", "populated 0\n")
    assert JobKey(2, "n1") in v2.tree.scan()


def test_job_that_lost_its_last_process_is_kept_for_a_moment_only(v2: Machine) -> None:
    v2.tree.scan()
    leave(v2, f"{SCOPE}/job_1")
    v2.clock.now += 1
    assert {N1, N2} == set(v2.tree.scan())
    v2.clock.now += STALE_SECONDS
    assert {N2} == set(v2.tree.scan())
    assert 1 == v2.tree.stale


def test_stale_job_with_a_new_process_is_active_again(v2: Machine) -> None:
    leave(v2, f"{SCOPE}/job_1")
    v2.tree.scan()
    v2.write(f"{SCOPE}/job_1/cgroup.events", "populated 1\n")
    v2.clock.now += 200
    assert {N1, N2} == set(v2.tree.scan())
    assert (2, 0) == (v2.tree.scopes, v2.tree.stale)


@pytest.mark.parametrize("name", ["v1-slurm-22.05", "v2-slurm-22.05"])
def test_stale_job_keeps_no_descriptor(make_machine: MakeMachine, name: str) -> None:
    machine = make_machine(name, 1000)
    shutil.rmtree(machine.cgroups / "system.slice" / "n2_slurmstepd.scope", ignore_errors=True)
    job = machine.job()
    use = job.read()
    groups = job.read_groups(steps=True, tasks=True)
    leave(machine, ".")
    for _ in range(3):
        machine.clock.now += 200
        machine.tree.scan()
    assert (1, 1) == (machine.tree.scopes, machine.tree.stale)
    assert use == job.read()
    assert groups == job.read_groups(steps=True, tasks=True)


def test_v1_job_without_processes_is_stale(v1: Machine) -> None:
    leave(v1, ".")
    assert {} == v1.tree.scan()
    assert (1, 1) == (v1.tree.scopes, v1.tree.stale)


def test_v1_leftover_in_another_hierarchy_is_stale_at_once(v1: Machine) -> None:
    shutil.copytree(v1.cgroups / "memory" / V1_JOB, v1.cgroups / "memory" / "slurm_n1" / "uid_1001" / "job_7")
    leave(v1, "memory/slurm_n1/uid_1001/job_7")
    assert {N1} == set(v1.tree.scan())
    assert (1, 1) == (v1.tree.scopes, v1.tree.stale)


def test_v1_job_outside_the_freezer_is_found_if_it_has_processes(v1: Machine) -> None:
    shutil.rmtree(v1.cgroups / "freezer" / V1_JOB)
    assert {N1} == set(v1.tree.scan())
    assert (1, 0) == (v1.tree.scopes, v1.tree.stale)


def test_removed_v1_leftover_is_dropped(v1: Machine) -> None:
    leftover = v1.cgroups / "memory" / "slurm_n1" / "uid_1001" / "job_7"
    leftover.mkdir()
    v1.tree.scan()
    assert 1 == v1.tree.stale
    leftover.rmdir()
    v1.clock.now += 6
    v1.tree.scan()
    assert (1, 0) == (v1.tree.scopes, v1.tree.stale)
