# SPDX-License-Identifier: Apache-2.0
"""The machine that the replaced tools for nodes were run on: two jobs and a login shell, as files of the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

BOOT_SECONDS = 1_790_000_000
UPTIME_SECONDS = 10_000
MEMORY_KILOBYTES = 4_000_000


class Program(NamedTuple):
    """One process; times in hundredths of a second, ``threads`` are the IDs of the others beside the first."""

    pid: int
    group: int
    command: str
    ticks: int
    start: int
    pages: int
    job: str = ""
    threads: tuple[int, ...] = ()
    io: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0)
    files: tuple[str, ...] = ()


PROGRAMS = (
    Program(1, 1, "systemd", 500, 5, 2000),
    Program(900, 900, "bash", 40, 200_000, 1500),
    Program(950, 900, "a-very-long-name", 123_456, 250_000, 64_000),
    Program(
        3001, 3001, "python3", 300_000, 400_000, 50_000, "4711", (3002, 3003),
        (10_000_000, 2_000_000, 500, 60, 8_388_608, 1_048_576), ("/home/alice/in.dat", "/scratch/alice/out.dat"),
    ),
    Program(
        3010, 3001, "worker", 200_000, 400_100, 20_000, "4711", (),
        (1_000, 2_000, 5, 6, 4_194_304, 2_097_152), ("/home/alice/in.dat", "/home/alice/log"),
    ),
    Program(4001, 4001, "sim", 90_000, 500_000, 100_000, "4712", (), (1, 2, 30, 40, 0, 3_145_728), ("/project/x",)),
)  # fmt: skip
JOBS: Mapping[str, tuple[int, str, tuple[int, ...], tuple[int, int]]] = {
    "4711": (1001, "0-1", (3_000_000_000_000, 2_000_000_000_000, 0, 0), (480_000, 20_000)),
    "4712": (1002, "3", (0, 0, 0, 900_000_000_000), (89_000, 1_000)),
}
"""User, cores, nanoseconds on each core, and hundredths of a second in user and system mode, by job."""


def write_machine(root: Path) -> None:
    """Write ``/proc`` and ``/sys/fs/cgroup`` (version 1) below a folder."""
    proc = root / "proc"
    _write(proc / "stat", f"cpu  1 1 1 1 0 0 0 0 0 0\nbtime {BOOT_SECONDS}\n")
    _write(proc / "uptime", f"{UPTIME_SECONDS}.00 1.00\n")
    _write(proc / "meminfo", f"MemTotal:       {MEMORY_KILOBYTES} kB\nMemFree:        1000 kB\n")
    _write(proc / "loadavg", "1.00 1.00 1.00 1/6 4001\n")
    _write(proc / "version", "Linux version 6.1.0\n")
    _write(proc / "sys/kernel/pid_max", "4194304\n")
    _write(proc / "sys/kernel/osrelease", "6.1.0\n")
    for program in PROGRAMS:
        _write_process(proc / str(program.pid), program)
    for job, facts in JOBS.items():
        _write_job(root / "sys/fs/cgroup", job, *facts)
    controllers = ("cpuset", "cpuacct", "memory")
    mounts = (f"cgroup /sys/fs/cgroup/{name} cgroup rw,{name} 0 0\n" for name in controllers)
    _write(proc / "mounts", "".join(mounts))
    _write(proc / "self/mounts", (proc / "mounts").read_text())
    _write(proc / "self/stat", (proc / "1/stat").read_text())


def _write_process(folder: Path, program: Program) -> None:
    pid, group, threads = program.pid, program.group, 1 + len(program.threads)

    def stat(thread: int) -> str:
        times = f"{program.ticks - program.ticks // 10} {program.ticks // 10}"
        middle = f"S 1 {group} {group} 0 -1 0 5 0 0 0 {times} 0 0 20 0 {threads} 0 {program.start}"
        return f"{thread} ({program.command[:15]}) {middle} 409600000 {program.pages} {'0 ' * 28}\n"

    _write(folder / "stat", stat(pid))
    _write(folder / "comm", f"{program.command[:15]}\n")
    _write(folder / "cmdline", f"{program.command}\0")
    _write(folder / "statm", f"100000 {program.pages} 500 1 0 1 0\n")
    _write(
        folder / "status",
        f"Name:\t{program.command[:15]}\nState:\tS (sleeping)\nTgid:\t{pid}\nPid:\t{pid}\nPPid:\t1\n"
        f"Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nVmRSS:\t{4 * program.pages} kB\nThreads:\t{threads}\n",
    )
    names = ("rchar", "wchar", "syscr", "syscw", "read_bytes", "write_bytes")
    counts = zip(names, program.io, strict=True)
    _write(folder / "io", "".join(f"{name}: {count}\n" for name, count in counts) + "cancelled_write_bytes: 0\n")
    _write(folder / "environ", f"SLURM_JOB_ID={program.job}\0" if program.job else "HOME=/root\0")
    for thread in (pid, *program.threads):
        _write(folder / "task" / str(thread) / "stat", stat(thread))
        _write(folder / "task" / str(thread) / "comm", f"{program.command[:15]}\n")
    (folder / "fd").mkdir()
    for number, file in enumerate(program.files):
        (folder / "fd" / str(number)).symlink_to(file)
    path = f"/slurm/uid_{JOBS[program.job][0]}/job_{program.job}/step_0/task_0" if program.job else "/"
    _write(folder / "cgroup", f"3:memory:{path}\n2:cpuacct:{path}\n1:cpuset:{path}\n")


def _write_job(
    cgroups: Path, job: str, uid: int, cores: str, nanoseconds: tuple[int, ...], ticks: tuple[int, int]
) -> None:
    own = [program for program in PROGRAMS if program.job == job]
    threads = "".join(f"{thread}\n" for program in own for thread in (program.pid, *program.threads))
    files = {
        "cpuset": {"cpuset.cpus": f"{cores}\n"},
        "cpuacct": {
            "cpuacct.usage": f"{sum(nanoseconds)}\n",
            "cpuacct.usage_percpu": " ".join(map(str, nanoseconds)) + " \n",
            "cpuacct.stat": f"user {ticks[0]}\nsystem {ticks[1]}\n",
        },
        "memory": {"memory.usage_in_bytes": f"{4096 * sum(program.pages for program in own)}\n"},
    }
    for controller, contents in files.items():
        folder = cgroups / controller
        for level in ("slurm", f"uid_{uid}", f"job_{job}", "step_0", "task_0"):
            folder /= level
            is_task = level == "task_0"
            for name, text in contents.items():
                _write(folder / name, text)
            _write(folder / "tasks", threads if is_task else "")
            pids = "".join(f"{program.pid}\n" for program in own) if is_task else ""
            _write(folder / "cgroup.procs", pids)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
