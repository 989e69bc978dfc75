# SPDX-License-Identifier: Apache-2.0
"""Measure what it costs to find 64 jobs and to read their cgroups.

The jobs are real cgroups where this machine lets us make them (cgroup v1, as root), each with a step, a task and one
sleeping process; elsewhere they are plain files in the shape of v2, and the figures say so. The clock moves 15 seconds
with each scrape, so that the share of what is read seldom is in the figures. The same is done with descriptors that
stay open and with files opened anew, in turns; the bare system calls are timed beside them.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from bench.measure import judge, judge_ratio
from slurmscope.node.cgroup.tree import CgroupLayout, CgroupTree, LayoutKind, detect_layout

JOBS = 64
ROUNDS = 120
SCRAPES = 4
SCRAPE_SECONDS = 15.0
KERNEL_LIMIT = 4.0  # times the bare system calls on the same descriptors
ANEW_LIMIT = 0.5  # of the same files opened anew
LEAK_READS = 10_000
LEAK_TARGET_BYTES = 2_000_000
NEEDED = ("freezer", "cpuacct", "memory")
V2_FILES = {
    "cgroup.procs": "",
    "cgroup.events": "populated 1\nfrozen 0\n",
    "cpu.stat": "usage_usec 3393402\nuser_usec 1350391\nsystem_usec 2043011\nnr_periods 0\nnr_throttled 0\n",
    "memory.current": "77312000\n",
    "memory.stat": "anon 70356992\nfile 6488064\nkernel 466944\nshmem 12288\nfile_mapped 2625536\n",
    "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n",
    "memory.peak": "77688832\n",
    "memory.swap.current": "0\n",
    "memory.max": "268435456\n",
    **{
        f"{name}.pressure": "some avg10=0.09 avg60=0.02 avg300=0.00 total=40399\n" * 2
        for name in ("cpu", "memory", "io")
    },
}


def main() -> int:
    """Print the figures with the targets and return 1 when one is missed."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with contextlib.ExitStack() as stack:
        layout = stack.enter_context(_real_jobs() if can_make_cgroups() else _plain_jobs())
        kept, anew, kernel = _compare(layout)
        descriptors, grown = _measure_leak(layout)
    what = f"cgroups of {JOBS} jobs ({layout.kind.value})"
    verdicts = [
        judge_ratio(what, f"{kept:.2f} ms of CPU", kept / kernel, KERNEL_LIMIT, f"the bare reads, {kernel:.2f} ms"),
        judge_ratio(what, f"{kept:.2f} ms of CPU", kept / anew, ANEW_LIMIT, f"files opened anew, {anew:.2f} ms"),
        judge(
            f"{LEAK_READS} reads",
            f"{descriptors} more descriptors, {grown / 1e6:.2f} MB more memory",
            "0 descriptors, under 2 MB",
            is_met=descriptors == 0 and grown < LEAK_TARGET_BYTES,
        ),
    ]
    return 0 if all(verdicts) else 1


class _Scraper:
    """Scrape every 15 seconds, by its own clock."""

    def __init__(self, layout: CgroupLayout, descriptors: int) -> None:
        self.now = 0.0
        self.tree = CgroupTree(layout, descriptors=descriptors, clock=lambda: self.now)

    def scrape(self) -> None:
        self.now += SCRAPE_SECONDS
        jobs = self.tree.scan()
        assert len(jobs) == JOBS
        for job in jobs.values():
            use = job.read()
            assert use is not None
            assert use.memory.current_bytes is not None


def _compare(layout: CgroupLayout) -> tuple[float, float, float]:
    """Return the milliseconds of CPU of one scrape, kept, anew and by the kernel alone: the best of many rounds."""
    before = _descriptors()
    kept, anew = _Scraper(layout, 4000), _Scraper(layout, 0)
    for scraper in (kept, anew):
        scraper.scrape()
    descriptors = sorted(_descriptors() - before)
    figures = [
        (_measure(kept.scrape), _measure(anew.scrape), _measure(lambda: _read_all(descriptors))) for _ in range(ROUNDS)
    ]
    for scraper in (kept, anew):
        scraper.tree.close()
    best_kept, best_anew, best_kernel = map(min, zip(*figures, strict=True))
    return best_kept, best_anew, best_kernel


def _measure(work: Callable[[], None]) -> float:
    begin = time.process_time()
    for _ in range(SCRAPES):
        work()
    return (time.process_time() - begin) / SCRAPES * 1000


def _read_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.pread(descriptor, 4096, 0)


def _measure_leak(layout: CgroupLayout) -> tuple[int, int]:
    tree = CgroupTree(layout, descriptors=4000)
    jobs = list(tree.scan().values())
    for job in jobs:
        job.read()
    descriptors, resident = _descriptors(), _resident_bytes()
    for index in range(LEAK_READS):
        jobs[index % len(jobs)].read()
    grown = (len(_descriptors() - descriptors), _resident_bytes() - resident)
    tree.close()
    return grown


def _descriptors() -> set[int]:
    # The one that lists them is gone afterwards.
    return {int(path.name) for path in Path("/proc/self/fd").iterdir() if path.exists()}


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def can_make_cgroups() -> bool:
    layout = detect_layout(Path("/sys/fs/cgroup"), Path("/proc"))
    return os.geteuid() == 0 and all(name in layout.hierarchies for name in NEEDED)


@contextlib.contextmanager
def _real_jobs() -> Iterator[CgroupLayout]:
    """Make cgroups of jobs with one sleeping process each, and remove them afterwards."""
    sleepers = [subprocess.Popen(["sleep", "600"]) for _ in range(JOBS)]
    try:
        with make_v1_jobs([[sleeper.pid] for sleeper in sleepers], NEEDED) as roots:
            yield CgroupLayout(kind=LayoutKind.V1, hierarchies=roots)
            for sleeper in sleepers:
                sleeper.kill()
                sleeper.wait()
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


@contextlib.contextmanager
def make_v1_jobs(groups: Sequence[Sequence[int]], needed: Iterable[str]) -> Iterator[dict[str, Path]]:
    """Make a small Slurm tree below each hierarchy, with a job for each group of processes.

    Remove it afterwards; the processes that still run are back where they were.
    """
    machine = detect_layout(Path("/sys/fs/cgroup"), Path("/proc")).hierarchies
    roots = {name: machine[name] / f"slurmscope-bench-{os.getpid()}" for name in needed}
    try:
        for index, pids in enumerate(groups):
            for name, root in roots.items():
                task = root / "slurm" / f"uid_{1000 + index % 8}" / f"job_{index}" / "step_batch" / "task_0"
                task.mkdir(parents=True)
                home = task.parent if name == "freezer" else task  # above its steps there is only slurmstepd
                for pid in pids:
                    (home / "cgroup.procs").write_text(str(pid))
        yield roots
    finally:
        for name, root in roots.items():
            for pid in (pid for pids in groups for pid in pids):
                with contextlib.suppress(OSError):
                    (machine[name] / "cgroup.procs").write_text(str(pid))
            _remove(root)


def _remove(root: Path) -> None:
    for _ in range(100):
        for folder, _, _ in os.walk(root, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        if not root.exists():
            return
        time.sleep(0.05)


@contextlib.contextmanager
def _plain_jobs() -> Iterator[CgroupLayout]:
    with tempfile.TemporaryDirectory() as name:
        scope = Path(name) / "system.slice" / "slurmstepd.scope"
        for index in range(JOBS):
            for relative in ("", "step_batch", "step_batch/slurm", "step_batch/user", "step_batch/user/task_0"):
                folder = scope / f"job_{index}" / relative
                folder.mkdir(parents=True, exist_ok=True)
                for file, text in V2_FILES.items():
                    (folder / file).write_text(text)
        yield CgroupLayout(kind=LayoutKind.V2, unified=Path(name))
