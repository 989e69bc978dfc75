# SPDX-License-Identifier: Apache-2.0
"""Check the values of cgroup v2, and that missing files are not measured."""

import contextlib
import shutil
import subprocess

import pytest

from slurmscope.node.cgroup.folders import Members
from slurmscope.node.cgroup.tree import CgroupLayout, CgroupTree, LayoutKind
from slurmscope.node.job_use import BlockUse, CpuUse, GroupKey, JobKey, MemoryUse
from tests.unit.node.cgroup.conftest import N1, N2, Clock, Machine, MakeMachine, count_descriptors
from tests.unit.node.own_cgroup import own_cgroup

SCOPE = "system.slice/n1_slurmstepd.scope"
JOB = f"{SCOPE}/job_1"


def test_captured_job_has_the_numbers_of_its_files(v2: Machine) -> None:
    use = v2.job().read()
    assert use is not None
    stat, memory = v2.lines(f"{JOB}/cpu.stat"), v2.lines(f"{JOB}/memory.stat")
    assert use.cpu == CpuUse(
        total_seconds=stat["usage_usec"] / 1e6,
        user_seconds=stat["user_usec"] / 1e6,
        system_seconds=stat["system_usec"] / 1e6,
        cores=(0,),
        periods=stat["nr_periods"],
        throttled_periods=stat["nr_throttled"],
        throttled_seconds=stat["throttled_usec"] / 1e6,
    )
    assert use.memory == MemoryUse(
        current_bytes=v2.number(f"{JOB}/memory.current"),
        anon_bytes=memory["anon"],
        file_bytes=memory["file"],
        shmem_bytes=memory["shmem"],
        kernel_bytes=memory["kernel"],
        mapped_file_bytes=memory["file_mapped"],
        swap_bytes=v2.number(f"{JOB}/memory.swap.current"),
        peak_bytes=v2.number(f"{JOB}/memory.peak"),
        limit_bytes=256 << 20,
        events=v2.lines(f"{JOB}/memory.events"),
        refaults={"anon": memory["workingset_refault_anon"], "file": memory["workingset_refault_file"]},
    )
    assert {} == use.unreadable


def test_pressure_is_by_resource_and_kind(v2: Machine) -> None:
    v2.write(f"{JOB}/cpu.pressure", "some avg10=1.00 avg60=0.10 avg300=0.01 total=1500000\n")
    v2.write(f"{JOB}/io.pressure", "some avg10=0 avg60=0 avg300=0 total=7\nfull avg10=0 avg60=0 avg300=0 total=5\n")
    (v2.cgroups / JOB / "memory.pressure").unlink()
    use = v2.job().read()
    assert use is not None
    expected = {("cpu", "some"): 1.5, ("io", "some"): 7e-6, ("io", "full"): 5e-6}
    assert expected == use.pressure_seconds


def test_controllers_that_are_off_are_not_measured(v2: Machine) -> None:
    use = v2.job().read()
    assert use is not None
    assert {} == use.block
    assert (None, None) == (use.pids, use.pids_limit)


def test_controllers_enabled_in_slurm_are_measured(v2: Machine) -> None:
    v2.write(f"{JOB}/io.stat", "254:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n")
    v2.write(f"{JOB}/pids.current", "12\n")
    v2.write(f"{JOB}/pids.max", "500\n")
    use = v2.job().read()
    assert use is not None
    assert {"254:0": BlockUse(read_bytes=1, write_bytes=2, reads=3, writes=4)} == use.block
    assert (12, 500) == (use.pids, use.pids_limit)


def test_cgroup_without_memory_controller_has_cpu_only(v2: Machine) -> None:
    for file in (v2.cgroups / JOB).glob("memory.*"):
        file.unlink()
    use = v2.job().read()
    assert use is not None
    assert MemoryUse() == use.memory
    assert v2.lines(f"{JOB}/cpu.stat")["usage_usec"] / 1e6 == use.cpu.total_seconds


def test_older_kernel_without_peak_and_kernel_keys_leaves_them_out(v2: Machine) -> None:
    (v2.cgroups / JOB / "memory.peak").unlink()
    v2.write(f"{JOB}/memory.stat", "anon 10\nfile 20\nkernel_stack 30\n")
    use = v2.job().read()
    assert use is not None
    assert (10, 20, None) == (use.memory.anon_bytes, use.memory.file_bytes, use.memory.kernel_bytes)
    assert use.memory.peak_bytes is None


def test_steps_and_tasks_are_read_where_they_are(v2: Machine) -> None:
    uses = v2.job().read_groups(steps=True, tasks=True)
    paths = {
        GroupKey("batch"): "step_batch",
        GroupKey("batch", "0"): "step_batch/user/task_0",
        GroupKey("0"): "step_0",
        GroupKey("0", "0"): "step_0/user/task_0",
    }
    expected = {key: v2.number(f"{JOB}/{path}/memory.current") for key, path in paths.items()}
    assert expected == {key: use.memory.current_bytes for key, use in uses.items()}


def test_task_that_stayed_empty_is_a_task(v2: Machine) -> None:
    uses = v2.job(N2).read_groups(steps=False, tasks=True)
    assert {GroupKey("0", "0"), GroupKey("0", "1")} == set(uses)


@pytest.mark.parametrize(("steps", "tasks", "expected"), [(True, False, 2), (False, True, 2), (False, False, 0)])
def test_only_requested_groups_are_read(v2: Machine, steps: bool, tasks: bool, expected: int) -> None:
    assert expected == len(v2.job().read_groups(steps=steps, tasks=tasks))


def test_unusual_steps_and_tasks_keep_their_names(v2: Machine) -> None:
    for path in ("step_0+1/user/task_special", "step_interactive/user/task_0", "step_TBD/user/task_0"):
        v2.write(f"{JOB}/{path}/cpu.stat", "usage_usec 5000000\n")
    v2.write(f"{JOB}/gpu_probe/cpu.stat", "usage_usec 1\n")
    uses = v2.job().read_groups(steps=False, tasks=True)
    odd = {GroupKey("0+1", "special"), GroupKey("interactive", "0"), GroupKey("TBD", "0")}
    assert odd == {key for key, use in uses.items() if use.cpu.total_seconds == 5.0}


def test_step_that_comes_later_is_found(v2: Machine) -> None:
    job = v2.job()
    job.read_groups(steps=True, tasks=False)
    v2.write(f"{JOB}/step_7/cpu.stat", "usage_usec 5000000\n")
    assert GroupKey("7") in job.read_groups(steps=True, tasks=False)


def test_step_that_is_replaced_by_another_is_left_out_at_once(v2: Machine) -> None:
    job = v2.job()
    job.read_groups(steps=True, tasks=False)
    shutil.rmtree(v2.cgroups / JOB / "step_0")
    v2.write(f"{JOB}/step_7/cpu.stat", "usage_usec 5000000\n")
    job.read_groups(steps=True, tasks=False)
    assert {GroupKey("batch"), GroupKey("7")} == set(job.read_groups(steps=True, tasks=False))


def test_limit_of_a_task_is_that_of_the_nearest_folder_above(v2: Machine) -> None:
    assert "max\n" == (v2.cgroups / JOB / "step_0" / "user" / "task_0" / "memory.max").read_text()
    v2.write(f"{JOB}/step_0/user/memory.max", "1000000\n")
    uses = v2.job().read_groups(steps=True, tasks=True)
    assert 1000000 == uses[GroupKey("0", "0")].memory.limit_bytes
    assert 256 << 20 == uses[GroupKey("batch", "0")].memory.limit_bytes


def test_job_without_a_limit_has_that_of_its_slice(v2: Machine) -> None:
    v2.write(f"{JOB}/memory.max", "max\n")
    v2.write("system.slice/memory.max", "5000000\n")
    v2.write("system.slice/memory.swap.max", "0\n")
    use = v2.job().read()
    assert use is not None
    assert (5000000, 0) == (use.memory.limit_bytes, use.memory.swap_limit_bytes)


def test_no_limit_anywhere_is_none(v2: Machine) -> None:
    v2.write(f"{JOB}/memory.max", "max\n")
    use = v2.job().read()
    assert use is not None
    assert use.memory.limit_bytes is None


def test_limit_of_a_slice_is_no_limit_of_a_job_without_that_controller(v2: Machine) -> None:
    v2.write("system.slice/pids.max", "1000\n")
    use = v2.job().read()
    assert use is not None
    assert use.pids_limit is None


def test_limit_that_is_set_a_moment_after_the_folder_is_seen_soon(v2: Machine) -> None:
    v2.write(f"{JOB}/memory.max", "max\n")
    job = v2.job()
    job.read()
    v2.write(f"{JOB}/memory.max", "5000\n")
    v2.clock.now += 0.2
    use = job.read()
    assert use is not None
    assert 5000 == use.memory.limit_bytes


def test_limit_of_an_old_job_is_read_again_within_two_minutes(v2: Machine) -> None:
    job = v2.job()
    job.read()
    v2.clock.now += 1000
    job.read()
    v2.write(f"{JOB}/memory.max", "5000\n")
    v2.clock.now += 1
    early = job.read()
    v2.clock.now += 90
    late = job.read()
    assert early is not None
    assert late is not None
    assert (256 << 20, 5000) == (early.memory.limit_bytes, late.memory.limit_bytes)


def test_cores_are_the_effective_ones(v2: Machine) -> None:
    v2.write(f"{JOB}/cpuset.cpus", "0-3\n")
    v2.write(f"{JOB}/cpuset.cpus.effective", "0-1,3\n")
    use = v2.job().read()
    assert use is not None
    assert (0, 1, 3) == use.cpu.cores


def test_job_that_is_not_bound_to_cores_has_none(v2: Machine) -> None:
    v2.write(f"{JOB}/cpuset.cpus", "\n")
    v2.write(f"{JOB}/cpuset.cpus.effective", "0-127\n")
    use = v2.job().read()
    assert use is not None
    assert use.cpu.cores is None


def test_task_has_the_cores_of_its_job(v2: Machine) -> None:
    assert "\n" == (v2.cgroups / JOB / "step_0" / "user" / "task_0" / "cpuset.cpus").read_text()
    assert (0,) == v2.job().read_groups(steps=False, tasks=True)[GroupKey("0", "0")].cpu.cores


def test_unreadable_file_is_reported_and_affects_its_own_value_only(v2: Machine) -> None:
    (v2.cgroups / JOB / "memory.current").unlink()
    (v2.cgroups / JOB / "memory.current").mkdir()
    use = v2.job().read()
    assert use is not None
    assert {"memory.current": "Is a directory"} == use.unreadable
    assert use.memory.current_bytes is None
    assert v2.number(f"{JOB}/memory.peak") == use.memory.peak_bytes


def test_removed_job_is_gone(v2: Machine) -> None:
    job = v2.job()
    assert job.read() is not None
    shutil.rmtree(v2.cgroups / JOB)
    assert job.read() is None
    assert {} == job.read_groups(steps=True, tasks=True)
    assert Members() == job.members()


def test_new_folder_of_the_same_name_is_not_read_for_the_old_one(v2: Machine) -> None:
    job = v2.job()
    (v2.cgroups / JOB).rename(v2.cgroups / "old")
    v2.write(f"{JOB}/memory.stat", "anon 1\n")
    assert job.read() is None


def test_closed_job_reads_nothing(v2: Machine) -> None:
    job = v2.job()
    job.close()
    assert job.read() is None
    assert {} == job.read_groups(steps=True, tasks=True)


@pytest.mark.parametrize("descriptors", [0, 3, 20, 1000])
def test_numbers_do_not_depend_on_the_descriptors_that_stay_open(make_machine: MakeMachine, descriptors: int) -> None:
    few, many = make_machine("v2-slurm-22.05", descriptors), make_machine("v2-slurm-22.05", 1000)
    for _ in range(3):
        before = count_descriptors()
        read = few.job().read(), few.job().read_groups(steps=True, tasks=True)
        assert count_descriptors() - before <= descriptors
        assert (many.job().read(), many.job().read_groups(steps=True, tasks=True)) == read


def test_pressure_file_without_content_is_no_pressure(v2: Machine) -> None:
    v2.job()
    assert v2.tree.measures()["pressure"]
    for scope in (v2.cgroups / "system.slice").glob("*.scope"):
        (scope / "cpu.pressure").write_text("")
    assert not v2.tree.measures()["pressure"]


def test_processes_in_a_folder_that_was_made_late_are_listed_at_once() -> None:
    """As pam_slurm_adopt does: the first login into a job gets a folder below a step that is long settled."""
    with (
        own_cgroup("v2") as root,
        subprocess.Popen(["sleep", "60"]) as stepd,
        subprocess.Popen(["sleep", "60"]) as login,
        contextlib.ExitStack() as stack,
    ):
        for process in (stepd, login):
            stack.callback(process.wait)
            stack.callback(process.kill)
        extern, clock = root / "slurmstepd.scope" / "job_7" / "step_extern", Clock()
        for folder in (extern / "slurm", extern / "user"):
            folder.mkdir(parents=True)
        (extern / "slurm" / "cgroup.procs").write_text(str(stepd.pid))
        tree = CgroupTree(CgroupLayout(kind=LayoutKind.V2, unified=root), clock=clock, descriptors=100)
        stack.callback(tree.close)
        for _ in range(5):
            clock.now += 1000
            assert Members(stepd=(stepd.pid,)) == tree.scan()[JobKey(7)].members()
        late = extern / "user" / "task_special"
        late.mkdir()
        (late / "cgroup.procs").write_text(str(login.pid))
        clock.now += 1
        assert Members(stepd=(stepd.pid,), user=(login.pid,)) == tree.scan()[JobKey(7)].members()


def test_memory_on_numa_nodes_of_other_cores_is_remote(v2: Machine) -> None:
    text = "anon N0=4096 N1=8192\nfile N0=100 N1=10\nkernel_stack N0=7 N1=7\nanon_thp N0=9 N1=9\n"
    v2.write(f"{JOB}/memory.numa_stat", text)
    nodes = {0: 0, 1: 1}
    tree = CgroupTree(CgroupLayout(kind=LayoutKind.V2, unified=v2.cgroups), numa_nodes=nodes, clock=v2.clock)
    with contextlib.closing(tree):
        use = tree.scan()[N1].read()
    assert use is not None
    assert (0,) == use.cpu.cores
    assert {"local": 4196, "remote": 8202} == use.memory.numa_bytes


def test_memory_of_a_job_without_cores_of_its_own_is_neither_local_nor_remote(v2: Machine) -> None:
    v2.write(f"{JOB}/memory.numa_stat", "anon N0=4096 N1=8192\n")
    v2.write(f"{JOB}/cpuset.cpus", "\n")
    tree = CgroupTree(CgroupLayout(kind=LayoutKind.V2, unified=v2.cgroups), numa_nodes={0: 0, 1: 1}, clock=v2.clock)
    with contextlib.closing(tree):
        use = tree.scan()[N1].read()
    assert use is not None
    assert {} == use.memory.numa_bytes
