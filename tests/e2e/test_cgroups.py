# SPDX-License-Identifier: Apache-2.0
"""Prove against a real kernel and a real Slurm that cgroups are read rightly, also while they go."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lab import ALICE, SlurmLab
from lab.cgroups import has_cgroup_v1
from lab.users import find_user
from lab.waiting import wait_until
from slurmscope.node.cgroup.folders import Members
from slurmscope.node.cgroup.job import JobCgroup
from slurmscope.node.cgroup.tree import CgroupLayout, CgroupTree, LayoutKind, detect_layout
from slurmscope.node.job_use import CgroupUse, GroupKey, JobKey

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ("freezer", "cpuacct", "memory")
JOB = "slurm/uid_1001/job_42"
KEY = JobKey(42)
MEBIBYTE = 1 << 20
WAIT_SECONDS = 20.0
names = itertools.count()
can_make_v1 = pytest.mark.skipif(
    os.geteuid() != 0 or not has_cgroup_v1(), reason="needs root and cgroup v1 to make cgroups in"
)
can_make_v2 = pytest.mark.skipif(
    os.geteuid() != 0 or detect_layout(ROOT, Path("/proc")).unified is None, reason="needs root and a cgroup v2 tree"
)

# Moves itself into the given cgroups, says so, then does what it was told.
PROGRAM = """
import os, sys, time
for folder in sys.argv[2:]:
    with open(folder + "/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))
print("here", flush=True)
exec(sys.argv[1])
"""


DONE = "print('done', flush=True); time.sleep(600)"


def wait_done(process: subprocess.Popen[bytes]) -> None:
    """Wait until a program has done its work and sleeps."""
    assert process.stdout is not None
    assert b"done\n" == process.stdout.readline()


class Sandbox:
    """Be a small Slurm tree in folders of our own, at the top of real hierarchies."""

    def __init__(self, roots: dict[str, Path]) -> None:
        self.roots = roots
        self._processes: list[subprocess.Popen[bytes]] = []

    def make(self, relative: str, *controllers: str) -> None:
        """Make a folder in each hierarchy, or in those that are named."""
        for name in controllers or self.roots:
            (self.roots[name] / relative).mkdir(parents=True)

    def remove(self, relative: str) -> None:
        """Remove a folder and all below it from every hierarchy."""
        for root in self.roots.values():
            gone = functools.partial(_remove, root / relative)
            wait_until(gone, f"the removal of {relative}", timeout_seconds=WAIT_SECONDS)

    def run(self, code: str, *folders: Path) -> subprocess.Popen[bytes]:
        """Start a Python program in these cgroups and wait until it is there."""
        argv = [sys.executable, "-c", PROGRAM, code, *map(str, folders)]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE)
        self._processes.append(process)
        assert process.stdout is not None
        assert b"here\n" == process.stdout.readline()
        return process

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """End a program and wait until the kernel has let it go."""
        process.kill()
        process.wait(WAIT_SECONDS)
        if process.stdout:
            process.stdout.close()
        self._processes.remove(process)

    def clear(self) -> None:
        """End all programs and remove all folders."""
        for process in list(self._processes):
            self.end(process)
        self.remove(".")


def _remove(top: Path) -> bool:
    for folder, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()
    return not top.exists()


@pytest.fixture
def v1() -> Iterator[Sandbox]:
    """Give an empty tree of cgroup v1."""
    mounted = detect_layout(ROOT, Path("/proc")).hierarchies
    name = f"slurmscope-test-{os.getpid()}-{next(names)}"
    sandbox = Sandbox({controller: mounted[controller] / name for controller in CONTROLLERS})
    sandbox.make("slurm")
    yield sandbox
    sandbox.clear()


@pytest.fixture
def v2() -> Iterator[Sandbox]:
    """Give an empty tree of cgroup v2; on a hybrid machine it has no controllers, but counts CPU time and processes."""
    unified = detect_layout(ROOT, Path("/proc")).unified
    assert unified is not None
    sandbox = Sandbox({"": unified / f"slurmscope-test-{os.getpid()}-{next(names)}"})
    sandbox.make(".")
    yield sandbox
    sandbox.clear()


@contextlib.contextmanager
def open_tree(sandbox: Sandbox, descriptors: int = 500) -> Iterator[CgroupTree]:
    """Open what a sandbox has as if it were the whole machine; jobs that come later are young ones."""
    if "" in sandbox.roots:
        layout = CgroupLayout(kind=LayoutKind.V2, unified=sandbox.roots[""])
    else:
        layout = CgroupLayout(kind=LayoutKind.V1, hierarchies=sandbox.roots)
    tree = CgroupTree(layout, descriptors=descriptors)
    try:
        tree.scan()
        yield tree
    finally:
        tree.close()


def read(job: JobCgroup) -> CgroupUse:
    """Read a job that is there."""
    use = job.read()
    assert use is not None
    return use


def count_descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


@can_make_v1
def test_numbers_are_those_of_the_kernel(v1: Sandbox) -> None:
    task = f"{JOB}/step_batch/task_0"
    v1.make(task)
    memory, cpu = v1.roots["memory"] / JOB, v1.roots["cpuacct"] / JOB
    (memory / "memory.limit_in_bytes").write_text(str(200 * MEBIBYTE))
    process = v1.run(f"x = bytearray({50 * MEBIBYTE})\n{DONE}", *(root / task for root in v1.roots.values()))
    wait_done(process)
    psutil.Process(process.pid).suspend()  # so that nothing changes while we compare
    wait_until(lambda: psutil.Process(process.pid).status() == "stopped", "the stop", timeout_seconds=WAIT_SECONDS)
    with open_tree(v1) as tree:
        job = tree.scan()[KEY]
        use = read(job)
        stat = dict(line.split() for line in (memory / "memory.stat").read_text().splitlines())
        assert use.memory.current_bytes == int((memory / "memory.usage_in_bytes").read_text())
        assert use.memory.anon_bytes == int(stat["total_rss"])
        assert use.memory.file_bytes == int(stat["total_cache"])
        assert use.memory.peak_bytes == int((memory / "memory.max_usage_in_bytes").read_text())
        assert use.cpu.total_seconds == int((cpu / "cpuacct.usage").read_text()) / 1e9
        assert 200 * MEBIBYTE == use.memory.limit_bytes
        assert 1001 == job.uid
        assert Members(user=(process.pid,)) == job.members()
        # What the interpreter had before it came into the cgroup is charged elsewhere.
        assert 50 * MEBIBYTE <= use.memory.anon_bytes <= psutil.Process(process.pid).memory_full_info().uss
        assert use == read(job)


@can_make_v1
def test_cpu_seconds_are_those_of_the_process(v1: Sandbox) -> None:
    with open_tree(v1) as tree:
        v1.make(JOB)
        job = tree.scan()[KEY]
        before = read(job)
        code = f"end = time.process_time() + 0.5\nwhile time.process_time() < end: pass\n{DONE}"
        process = v1.run(code, *(root / JOB for root in v1.roots.values()))
        wait_done(process)
        after = read(job)
        times = psutil.Process(process.pid).cpu_times()
    assert 0.0 == before.cpu.total_seconds
    assert after.cpu.total_seconds is not None
    # The process had some start-up before it joined.
    assert 0.5 <= after.cpu.total_seconds <= times.user + times.system + 0.1
    assert sum(after.cpu.core_seconds.values()) == pytest.approx(after.cpu.total_seconds, abs=0.01)


@can_make_v1
def test_kill_in_a_task_is_counted_for_the_job_and_outlives_the_step(v1: Sandbox) -> None:
    step = f"{JOB}/step_0"
    v1.make(f"{step}/task_0")
    v1.make(f"{JOB}/step_batch")
    memory = v1.roots["memory"]
    (memory / step / "memory.limit_in_bytes").write_text(str(30 * MEBIBYTE))
    v1.run("time.sleep(600)", v1.roots["freezer"] / JOB)
    with open_tree(v1) as tree:
        job = tree.scan()[KEY]
        assert 0 == read(job).memory.events["oom_kill"]
        victim = v1.run(f"x = bytearray({100 * MEBIBYTE})", memory / step / "task_0")
        assert -9 == victim.wait(WAIT_SECONDS)
        assert 1 == read(job).memory.events["oom_kill"]
        full = read(job).memory.events["max"]
        assert full >= 1
        assert 1 == job.read_groups(steps=True, tasks=False)[GroupKey("0")].memory.events["oom_kill"]
        v1.remove(step)
        events = read(job).memory.events
    assert {"oom_kill": 1, "max": full} == events


@can_make_v1
def test_list_of_processes_is_never_an_old_one(v1: Sandbox) -> None:
    with open_tree(v1) as tree:
        v1.make(f"{JOB}/step_0")
        job = tree.scan()[KEY]
        assert Members() == job.members()
        process = v1.run("time.sleep(600)", v1.roots["freezer"] / JOB / "step_0")
        assert Members(user=(process.pid,)) == job.members()
        v1.end(process)
        assert Members() == job.members()


@can_make_v1
@pytest.mark.parametrize("descriptors", [0, 500])
def test_removed_job_is_gone_and_a_new_one_of_that_name_is_another(v1: Sandbox, descriptors: int) -> None:
    with open_tree(v1, descriptors) as tree:
        v1.make(JOB)
        old = tree.scan()[KEY]
        read(old)
        v1.remove(JOB)
        v1.make(JOB)
        assert old.read() is None
        new = tree.scan()[KEY]
        assert new is not old
        read(new)


@can_make_v1
def test_jobs_that_come_and_go_while_they_are_read_do_no_harm(v1: Sandbox) -> None:
    stop = threading.Event()
    rounds = itertools.count()

    def come_and_go() -> None:
        while not stop.is_set():
            relative = f"slurm/uid_1001/job_{next(rounds) % 3}"
            v1.make(f"{relative}/step_0/task_0")
            v1.remove(relative)

    seen = 0
    before = count_descriptors()
    maker = threading.Thread(target=come_and_go)
    with open_tree(v1) as tree:
        maker.start()
        deadline = time.monotonic() + 3.0
        while time.monotonic() < deadline:
            for job in tree.scan().values():
                use = job.read()
                groups = job.read_groups(steps=True, tasks=True)
                job.members()
                seen += use is not None
                for found in [*groups.values(), *([use] if use else [])]:
                    assert {} == found.unreadable
        stop.set()
        maker.join(WAIT_SECONDS)
        v1.remove("slurm")
        tree.scan()
    assert before == count_descriptors()
    assert next(rounds) > 3
    assert seen > 0


@can_make_v2
def test_v2_job_is_read_until_it_goes(v2: Sandbox) -> None:
    scope = "system.slice/slurmstepd.scope"
    v2.make(scope)
    top = v2.roots[""] / scope / "job_42"
    with open_tree(v2) as tree:
        for folder in ("slurm", "user/task_0"):
            v2.make(f"{scope}/job_42/step_0/{folder}")
        stepd = v2.run("time.sleep(600)", top / "step_0" / "slurm")
        job = tree.scan()[KEY]
        task = v2.run(
            "for _ in range(10 ** 6): pass\nprint('done', flush=True); time.sleep(600)", top / "step_0/user/task_0"
        )
        assert task.stdout is not None
        assert b"done\n" == task.stdout.readline()
        use = read(job)
        stat = dict(line.split() for line in (top / "cpu.stat").read_text().splitlines())
        assert use.cpu.total_seconds == int(stat["usage_usec"]) / 1e6
        assert 0 < int(stat["usage_usec"])
        pressure = re.findall(r"(some|full) .*total=(\d+)", (top / "cpu.pressure").read_text())
        assert {kind for kind, _ in pressure} == {kind for name, kind in use.pressure_seconds if name == "cpu"}
        assert Members(stepd=(stepd.pid,), user=(task.pid,)) == job.members()
        v2.end(task)
        v2.end(stepd)
        assert Members() == job.members()
        # What was used is still told after the last process has left.
        assert read(job).cpu.total_seconds == pytest.approx(use.cpu.total_seconds, abs=0.1)
        v2.remove(f"{scope}/job_42")
        assert job.read() is None
        assert {} == tree.scan()


@can_make_v1
def test_many_reads_need_no_more_descriptors(v1: Sandbox) -> None:
    v1.make(f"{JOB}/step_0/task_0")
    v1.run("time.sleep(600)", v1.roots["freezer"] / JOB)
    with open_tree(v1) as tree:
        job = tree.scan()[KEY]
        for _ in range(2):
            read(job)
            job.read_groups(steps=True, tasks=True)
            job.members()
        before = count_descriptors()
        for _ in range(500):
            read(job)
            job.read_groups(steps=True, tasks=True)
            job.members()
            tree.scan()
        assert before == count_descriptors()


def _processes_of(job: int) -> tuple[set[int], set[int]]:
    """Find the processes of slurmstepd and of the user by what they carry, not by where they are."""
    stepd, user = set(), set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.name().startswith("slurmstepd") and f"[{job}." in " ".join(process.cmdline()):
                stepd.add(process.pid)
            elif process.environ().get("SLURM_JOB_ID") == str(job) and process.uids().real != 0:
                user.add(process.pid)
    return stepd, user


@pytest.mark.skipif(not has_cgroup_v1(), reason="this machine has no cgroup v1 controllers")
def test_real_job_is_found_and_read(clean_lab: SlurmLab) -> None:
    script = (
        "srun --ntasks=2 --mem=80M python3 -c 'x = bytearray(30 << 20); import time; time.sleep(600)' &\n"
        "exec python3 -c 'while True: pass'"
    )
    number = clean_lab.submit(ALICE, "--nodes=1", "--ntasks=2", "--mem=200M", script=script)
    clean_lab.wait_state(number, {"RUNNING"})
    node = clean_lab.run("squeue", "--noheader", f"--jobs={number}", "--format=%N").strip()
    key = JobKey(number, node)
    tree = CgroupTree(detect_layout(ROOT, Path("/proc")), descriptors=500)
    try:
        clean_lab.wait_for(
            lambda: (
                key in (jobs := tree.scan())
                and GroupKey("0", "1") in jobs[key].read_groups(steps=True, tasks=True)
                and (read(jobs[key]).memory.anon_bytes or 0) > 60 * MEBIBYTE
                and (read(jobs[key]).cpu.total_seconds or 0) > 2
            ),
            what="both steps to work",
        )
        job = tree.scan()[key]
        assert find_user(ALICE).uid == job.uid
        assert _processes_of(number) == (set(job.members().stepd), set(job.members().user))
        use, groups = read(job), job.read_groups(steps=True, tasks=True)
        expected = {GroupKey("batch"), GroupKey("batch", "0"), *(GroupKey("0", task) for task in ("", "0", "1"))}
        assert expected == set(groups)
        assert (200 * MEBIBYTE, 80 * MEBIBYTE) == (
            use.memory.limit_bytes,
            groups[GroupKey("0", "1")].memory.limit_bytes,
        )
        _compare_with_sstat(clean_lab, number, job)
        clean_lab.run("scancel", str(number))
        clean_lab.wait_for(lambda: key not in tree.scan(), what="the job's cgroup to go")
        assert job.read() is None
    finally:
        tree.close()


def _compare_with_sstat(lab: SlurmLab, number: int, job: JobCgroup) -> None:
    """Slurm samples once a second, so its figures lie between ours before and ours after."""
    before = job.read_groups(steps=True, tasks=False)[GroupKey("batch")]
    time.sleep(2.5)
    shown = lab.run("sstat", "--noheader", "--parsable2", "--format=TresUsageInTot", f"--jobs={number}.batch")
    after = job.read_groups(steps=True, tasks=False)[GroupKey("batch")]
    seconds = [int(part) for part in re.findall(r"cpu=(\d+):(\d+):(\d+)", shown)[0]]
    assert before.cpu.total_seconds is not None
    assert after.cpu.total_seconds is not None
    used = seconds[0] * 3600 + seconds[1] * 60 + seconds[2]
    assert before.cpu.total_seconds - 1 <= used <= after.cpu.total_seconds + 1
