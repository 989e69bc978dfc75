# SPDX-License-Identifier: Apache-2.0
"""Check the values of cgroup v1, with all or only some of the hierarchies."""

import contextlib
import os
import shutil

import pytest

from slurmscope.node.cgroup.folders import Members
from slurmscope.node.cgroup.tree import CgroupTree, detect_layout
from slurmscope.node.job_use import BlockUse, CpuUse, GroupKey, JobKey, MemoryUse
from tests.unit.node.cgroup.conftest import N1, Machine, MakeMachine, count_descriptors

JOB = "slurm_n1/uid_1001/job_1"
UNLIMITED = "9223372036854771712\n"


def test_captured_job_has_the_numbers_of_its_files(v1: Machine) -> None:
    use = v1.job().read()
    assert use is not None
    ticks = v1.lines(f"cpuacct/{JOB}/cpuacct.stat")
    nanoseconds = v1.number(f"cpuacct/{JOB}/cpuacct.usage")
    assert use.cpu == CpuUse(
        total_seconds=nanoseconds / 1e9,
        user_seconds=ticks["user"] / os.sysconf("SC_CLK_TCK"),
        system_seconds=ticks["system"] / os.sysconf("SC_CLK_TCK"),
        core_seconds={0: nanoseconds / 1e9},
        cores=(0,),
    )
    stat = v1.lines(f"memory/{JOB}/memory.stat")
    assert use.memory == MemoryUse(
        current_bytes=v1.number(f"memory/{JOB}/memory.usage_in_bytes"),
        anon_bytes=stat["total_rss"],
        file_bytes=stat["total_cache"],
        shmem_bytes=stat["total_shmem"],
        kernel_bytes=v1.number(f"memory/{JOB}/memory.kmem.usage_in_bytes"),
        mapped_file_bytes=stat["total_mapped_file"],
        swap_bytes=stat["total_swap"],
        peak_bytes=v1.number(f"memory/{JOB}/memory.max_usage_in_bytes"),
        limit_bytes=200 << 20,
        events={"max": 0, "oom_kill": 0},
        refaults={name: stat[f"total_workingset_refault_{name}"] for name in ("anon", "file")},
    )
    assert {} == use.pressure_seconds
    assert {} == use.unreadable


def test_processes_below_the_job_count_for_it(v1: Machine) -> None:
    stat = v1.lines(f"memory/{JOB}/memory.stat")
    assert stat["rss"] < stat["total_rss"]  # why the keys with "total" are taken


def test_steps_and_tasks_are_read_where_they_are(v1: Machine) -> None:
    uses = v1.job().read_groups(steps=True, tasks=True)
    paths = {GroupKey(step): f"step_{step}" for step in ("0", "batch", "extern")}
    paths |= {GroupKey(step, "0"): f"step_{step}/task_0" for step in ("0", "batch", "extern")}
    expected = {key: v1.number(f"cpuacct/{JOB}/{path}/cpuacct.usage") / 1e9 for key, path in paths.items()}
    assert expected == {key: use.cpu.total_seconds for key, use in uses.items()}


def test_unlimited_task_has_the_limit_of_its_step(v1: Machine) -> None:
    assert UNLIMITED == (v1.cgroups / "memory" / JOB / "step_0" / "task_0" / "memory.limit_in_bytes").read_text()
    uses = v1.job().read_groups(steps=True, tasks=True)
    assert 50 << 20 == uses[GroupKey("0", "0")].memory.limit_bytes
    assert 200 << 20 == uses[GroupKey("batch", "0")].memory.limit_bytes


def test_unlimited_job_has_the_limit_of_a_folder_above_or_none(v1: Machine) -> None:
    v1.write(f"memory/{JOB}/memory.limit_in_bytes", UNLIMITED)
    first = v1.job().read()
    v1.write("memory/slurm_n1/memory.limit_in_bytes", "123456\n")
    v1.clock.now += 100
    second = v1.job().read()
    assert first is not None
    assert second is not None
    assert (None, 123456) == (first.memory.limit_bytes, second.memory.limit_bytes)


@pytest.mark.parametrize(
    ("memory", "both", "expected"),
    [("1000\n", "1500\n", 500), ("1000\n", "1000\n", 0), ("1000\n", UNLIMITED, None), (UNLIMITED, "1500\n", None)],
)
def test_limit_of_swap_is_what_both_have_more_than_memory(
    v1: Machine, memory: str, both: str, expected: int | None
) -> None:
    v1.write(f"memory/{JOB}/memory.limit_in_bytes", memory)
    v1.write(f"memory/{JOB}/memory.memsw.limit_in_bytes", both)
    use = v1.job().read()
    assert use is not None
    assert expected == use.memory.swap_limit_bytes


def test_cores_of_an_old_kernel_are_the_configured_ones(v1: Machine) -> None:
    (v1.cgroups / "cpuset" / JOB / "cpuset.effective_cpus").unlink()
    v1.write(f"cpuset/{JOB}/cpuset.cpus", "0-1\n")
    use = v1.job().read()
    assert use is not None
    assert (0, 1) == use.cpu.cores
    assert {0, 1} == set(use.cpu.core_seconds)


def test_job_that_is_not_bound_to_cores_has_none(v1: Machine) -> None:
    shutil.rmtree(v1.cgroups / "cpuset" / "slurm_n1")
    use = v1.job().read()
    assert use is not None
    assert use.cpu.cores is None
    assert {0} == set(use.cpu.core_seconds)


def test_hierarchies_without_the_job_are_not_measured(v1: Machine) -> None:
    shutil.rmtree(v1.cgroups / "memory")
    use = v1.job().read()
    assert use is not None
    assert MemoryUse() == use.memory
    assert use.cpu.total_seconds is not None


def test_further_controllers_are_measured_where_they_have_the_job(v1: Machine) -> None:
    mounts = v1.procfs / "self" / "mounts"
    for name in ("cpu", "blkio", "pids"):
        assert f"/sys/fs/cgroup/{name} " in mounts.read_text()
    v1.write(f"cpu/{JOB}/cpu.stat", "nr_periods 10\nnr_throttled 3\nthrottled_time 2500000000\n")
    v1.write(f"blkio/{JOB}/blkio.throttle.io_service_bytes_recursive", "8:0 Read 1\n8:0 Write 2\n")
    v1.write(f"blkio/{JOB}/blkio.throttle.io_serviced_recursive", "8:0 Read 3\n8:0 Write 4\n")
    v1.write(f"pids/{JOB}/pids.current", "7\n")
    v1.write(f"pids/{JOB}/pids.max", "max\n")
    use = v1.job().read()
    assert use is not None
    assert (10, 3, 2.5) == (use.cpu.periods, use.cpu.throttled_periods, use.cpu.throttled_seconds)
    assert {"8:0": BlockUse(read_bytes=1, write_bytes=2, reads=3, writes=4)} == use.block
    assert (7, None) == (use.pids, use.pids_limit)


def test_hierarchy_that_gets_the_job_later_is_read_soon(v1: Machine) -> None:
    shutil.move(v1.cgroups / "memory" / JOB, v1.cgroups / "aside")
    job = v1.job()
    early = job.read()
    shutil.move(v1.cgroups / "aside", v1.cgroups / "memory" / JOB)
    v1.clock.now += 0.2
    late = job.read()
    assert early is not None
    assert late is not None
    expected = v1.number(f"memory/{JOB}/memory.usage_in_bytes")
    assert (None, expected) == (early.memory.current_bytes, late.memory.current_bytes)


def test_events_of_steps_and_tasks_count_for_the_job(v1: Machine) -> None:
    killed = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"
    v1.write(f"memory/{JOB}/step_0/task_0/memory.oom_control", killed)
    v1.write(f"memory/{JOB}/step_0/memory.failcnt", "126\n")
    v1.write(f"memory/{JOB}/memory.failcnt", "4\n")
    use = v1.job().read()
    groups = v1.job().read_groups(steps=True, tasks=True)
    assert use is not None
    assert {"max": 130, "oom_kill": 2} == use.memory.events
    assert {"max": 126, "oom_kill": 2} == groups[GroupKey("0")].memory.events
    assert {"max": 0, "oom_kill": 2} == groups[GroupKey("0", "0")].memory.events
    assert {"max": 0, "oom_kill": 0} == groups[GroupKey("batch")].memory.events


def test_events_of_an_ended_step_are_kept(v1: Machine) -> None:
    v1.write(f"memory/{JOB}/step_0/task_0/memory.oom_control", "oom_kill 2\n")
    v1.write(f"memory/{JOB}/step_0/memory.failcnt", "126\n")
    job = v1.job()
    job.read()
    for name in ("memory", "cpuacct"):
        shutil.rmtree(v1.cgroups / name / JOB / "step_0")
    v1.write(f"memory/{JOB}/step_1/memory.failcnt", "1\n")
    v1.write(f"memory/{JOB}/step_1/memory.oom_control", "oom_kill 0\n")
    v1.write(f"cpuacct/{JOB}/cpuacct.usage", f"{v1.number(f'cpuacct/{JOB}/cpuacct.usage') + 1}\n")
    use = job.read()
    assert use is not None
    assert {"max": 127, "oom_kill": 2} == use.memory.events


def test_files_that_only_processes_change_are_read_when_one_ran(v1: Machine) -> None:
    job = v1.job()
    before = job.read()
    v1.write(f"memory/{JOB}/memory.usage_in_bytes", "4096\n")  # the kernel reclaims memory of those that sleep
    v1.write(f"cpuacct/{JOB}/cpuacct.stat", "user 77700\nsystem 0\n")
    asleep = job.read()
    v1.write(f"cpuacct/{JOB}/cpuacct.usage", f"{v1.number(f'cpuacct/{JOB}/cpuacct.usage') + 1}\n")
    moved = job.read()

    assert before is not None
    assert asleep is not None
    assert moved is not None
    assert (4096, before.cpu) == (asleep.memory.current_bytes, asleep.cpu)
    assert 777.0 == moved.cpu.user_seconds


def test_kernel_that_does_not_count_kills_has_no_such_count(v1: Machine) -> None:
    for file in (v1.cgroups / "memory" / JOB).rglob("memory.oom_control"):
        file.write_text("oom_kill_disable 0\nunder_oom 0\n")
    use = v1.job().read()
    assert use is not None
    assert {"max": 0} == use.memory.events


def test_unreadable_file_is_reported(v1: Machine) -> None:
    (v1.cgroups / "cpuacct" / JOB / "cpuacct.usage").unlink()
    (v1.cgroups / "cpuacct" / JOB / "cpuacct.usage").mkdir()
    use = v1.job().read()
    assert use is not None
    assert {"cpuacct.usage": "Is a directory"} == use.unreadable
    assert use.cpu.total_seconds is None
    assert use.cpu.user_seconds is not None


def test_job_is_gone_when_it_is_gone_from_every_hierarchy(v1: Machine) -> None:
    job = v1.job()
    assert job.read() is not None
    shutil.rmtree(v1.cgroups / "cpuacct" / JOB)
    shutil.rmtree(v1.cgroups / "cpuset" / JOB)
    half = job.read()
    assert half is not None
    assert half.cpu.total_seconds is None
    assert half.memory.current_bytes is not None
    shutil.rmtree(v1.cgroups / "memory" / JOB)
    assert job.read() is None


def test_closed_job_reads_nothing(v1: Machine) -> None:
    job = v1.job()
    job.close()
    assert job.read() is None
    assert {} == job.read_groups(steps=True, tasks=True)
    assert Members() == job.members()


def test_numbers_do_not_depend_on_the_descriptors_that_stay_open(make_machine: MakeMachine) -> None:
    few, many = make_machine("v1-slurm-22.05", 5), make_machine("v1-slurm-22.05", 1000)
    key = JobKey(1, "n1")
    for _ in range(3):
        before = count_descriptors()
        read = few.job(key).read(), few.job(key).read_groups(steps=True, tasks=True)
        assert count_descriptors() - before <= 5
        assert (many.job(key).read(), many.job(key).read_groups(steps=True, tasks=True)) == read


def test_memory_on_numa_nodes_of_other_cores_is_remote(v1: Machine) -> None:
    # As the kernel writes it: the first line counts this folder only, in pages.
    text = "anon=1 N0=1 N1=0\nhierarchical_file=5 N0=2 N1=3\nhierarchical_anon=30 N0=10 N1=20\n"
    v1.write(f"memory/{JOB}/memory.numa_stat", text)
    layout = detect_layout(v1.cgroups, v1.procfs)
    tree = CgroupTree(layout, v1.procfs, numa_nodes={0: 0, 1: 1}, clock=v1.clock)
    with contextlib.closing(tree):
        use = tree.scan()[N1].read()
    assert use is not None
    page = os.sysconf("SC_PAGE_SIZE")
    assert {"local": 12 * page, "remote": 23 * page} == use.memory.numa_bytes
