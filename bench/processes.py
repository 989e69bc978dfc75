# SPDX-License-Identifier: Apache-2.0
"""Measure what reading processes costs, beside ps and psutil in the same run.

2,000 processes in 64 process groups sleep with two files open each. ``ps`` is called as an older tool did it; its own
CPU time counts, not that of starting it from here. psutil gets the same numbers of the same processes as our
reading of 64 jobs. CPU time is the best of several rounds, taken by turns, so that a busy machine slows all alike.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from slurmscope.exporter.collector import NoOptions
from slurmscope.node.process_groups import ProcessTableReader, collect
from slurmscope.node.procfs.job_processes import JobProcesses
from slurmscope.node.procfs.reader import ProcessReader

PROCESSES = 2000
GROUPS = 64
ROUNDS = 15
PS_TARGET = 0.4
PSUTIL_TARGET = 0.25
LONGEST_SECONDS = 300
PS = ("ps", "-e", "--no-header", "-o", "pid:8,pgid:8,user:16,comm:16,pcpu:5,pmem:5")


def main() -> int:
    """Print both ratios and return 1 when a target is missed."""
    reader = ProcessReader(Path("/proc"))
    with tempfile.TemporaryDirectory() as folder, run_sleeping(Path(folder), PROCESSES, GROUPS) as groups:
        is_met = [_compare_with_ps(reader), _compare_with_psutil(reader, groups)]
    reader.close()
    return 0 if all(is_met) else 1


def _compare_with_ps(reader: ProcessReader) -> bool:
    table = ProcessTableReader(reader, str)

    def page(table: ProcessTableReader) -> None:
        for family in collect(NoOptions(), process_groups=table.read()):
            assert family.samples

    first, again, ps = _best_of(
        lambda: _seconds(lambda: page(ProcessTableReader(reader, str))),
        lambda: _seconds(lambda: page(table)),
        _ps_seconds,
    )
    figures = f"ps {ps * 1000:.0f} ms, slurmscope {again * 1000:.0f} ms, ratio {again / ps:.2f}"
    print(f"process groups of {PROCESSES} processes: {figures} (target: at most {PS_TARGET})")
    print(f"the same, read for the first time: {first * 1000:.0f} ms, ratio {first / ps:.2f}")
    return again <= PS_TARGET * ps


def _compare_with_psutil(reader: ProcessReader, groups: Sequence[Sequence[int]]) -> bool:
    jobs = [JobProcesses(reader) for _ in groups]

    def read_jobs() -> None:
        for job, pids in zip(jobs, groups, strict=True):
            use = job.read(pids)
            assert use is not None
            assert use.processes == len(pids)

    def read_moved() -> float:
        for pid in (pid for pids in groups for pid in pids):
            os.kill(pid, signal.SIGUSR1)
        time.sleep(0.5)
        return _seconds(read_jobs)

    read_jobs()
    moved, asleep, theirs = _best_of(
        read_moved,
        lambda: _seconds(read_jobs),
        lambda: _seconds(lambda: _ask_psutil(groups)),
    )
    figures = f"psutil {theirs * 1000:.0f} ms, slurmscope {asleep * 1000:.0f} ms, ratio {asleep / theirs:.2f}"
    print(f"{GROUPS} jobs with {PROCESSES} processes: {figures} (target: at most {PSUTIL_TARGET})")
    print(f"the same, each process having written in between: {moved * 1000:.0f} ms, ratio {moved / theirs:.2f}")
    print(
        f"one process with its I/O and open files: {asleep / PROCESSES * 1e6:.0f} to {moved / PROCESSES * 1e6:.0f} µs"
    )
    return asleep <= PSUTIL_TARGET * theirs


def _ask_psutil(groups: Sequence[Sequence[int]]) -> None:
    """Read what an older exporter showed of each job, in the cheapest way that psutil has."""
    for pids in groups:
        for pid in pids:
            process = psutil.Process(pid)
            with process.oneshot():
                process.num_threads()
                process.cpu_times()
                process.memory_info()
                process.io_counters()
                process.name()
                process.num_fds()
                process.open_files()


@contextmanager
def run_sleeping(folder: Path, processes: int, count: int) -> Iterator[list[list[int]]]:
    """Run processes in so many groups; they end with the block, or by themselves where we were killed."""
    groups: list[list[int]] = [[] for _ in range(count)]
    try:
        for number in range(processes):
            group = groups[number % count]
            pid = os.fork()
            if pid == 0:
                _sleep(folder, group[0] if group else 0, number)
            group.append(pid)
        time.sleep(1.0)
        yield groups
    finally:
        for pid in (pid for group in groups for pid in group):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _sleep(folder: Path, leader: int, number: int) -> None:
    try:
        signal.alarm(LONGEST_SECONDS)
        os.setpgid(0, leader)
        log, _ = (os.open(folder / name, os.O_CREAT | os.O_RDWR) for name in ("log", f"data-{number % 4}"))
        signal.signal(signal.SIGUSR1, lambda *_: os.write(log, b"x" * 100_000) and None)
        while True:
            signal.pause()
    finally:
        os._exit(0)


def _ps_seconds() -> float:
    before = _children_seconds()
    subprocess.run(PS, stdout=subprocess.DEVNULL, timeout=60, check=True)
    return _children_seconds() - before


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _seconds(work: Callable[[], None]) -> float:
    gc.collect()
    started = time.process_time()
    work()
    return time.process_time() - started


def _best_of(*variants: Callable[[], float]) -> list[float]:
    return [min(column) for column in zip(*([variant() for variant in variants] for _ in range(ROUNDS)), strict=True)]


if __name__ == "__main__":
    sys.exit(main())
