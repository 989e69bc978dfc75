# SPDX-License-Identifier: Apache-2.0
"""Processes that are stopped, or wait for a disk, are found with the time since when."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import psutil

from slurmscope.node.job_use import HeldProcess
from slurmscope.node.procfs.job_processes import HELD_SECONDS, LISTED_PROCESSES, HeldProcesses, JobProcesses
from slurmscope.node.procfs.reader import ProcessReader
from slurmscope.node.procfs.stat import ProcessSample
from tests.processes import until
from tests.unit.node.proc_tree import sample
from tests.unit.node.script import Script


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def waiting(*pids: int) -> list[ProcessSample]:
    return [sample(pid, state="D") for pid in pids]


def test_stopped_process_is_held_after_a_minute_until_it_continues(
    script: Callable[[str], Script], reader: ProcessReader
) -> None:
    program = script("print('ready', flush=True)\nsys.stdin.readline()")
    program.expect("ready")
    os.kill(program.pid, signal.SIGSTOP)
    until(lambda: psutil.Process(program.pid).status() == psutil.STATUS_STOPPED)
    clock = Time()
    job = JobProcesses(reader, clock=clock)

    def held() -> tuple[int, tuple[HeldProcess, ...]]:
        use = job.read([program.pid])
        assert use is not None
        return use.held_processes, use.held

    assert (0, ()) == held()
    clock.now += HELD_SECONDS - 1
    assert (0, ()) == held()
    clock.now += 1
    assert (1, (HeldProcess(program.pid, psutil.Process(program.pid).name(), "", "stopped", 60.0),)) == held()

    os.kill(program.pid, signal.SIGCONT)
    until(lambda: psutil.Process(program.pid).status() == psutil.STATUS_SLEEPING)
    assert (0, ()) == held()


def test_process_that_its_user_stopped_at_a_terminal_is_counted_and_not_listed(reader: ProcessReader) -> None:
    pid, terminal = os.forkpty()
    if pid == 0:
        os.execvp("sleep", ["sleep", "600"])
    try:
        until(lambda: psutil.Process(pid).name() == "sleep")
        os.write(terminal, b"\x1a")  # Ctrl-Z
        os.kill(pid, signal.SIGSTOP)  # an orphaned group is not stopped from the terminal
        until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
        clock = Time()
        held = HeldProcesses(reader, clock)
        held.update(reader.read([pid]))
        clock.now += 61

        assert psutil.Process(pid).terminal() is not None
        assert (1, ()) == held.update(reader.read([pid]))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def test_rank_is_that_of_mpirun_rather_than_of_its_daemon(
    script: Callable[[str], Script], reader: ProcessReader
) -> None:
    program = script("print('ready', flush=True)\nsys.stdin.readline()")
    program.expect("ready")
    # Started with the variables of a task of mpirun in a step of srun.
    ranks = {"SLURM_PROCID": "0", "PMI_RANK": "3"}
    child = psutil.Popen(["sleep", "60"], env=ranks)
    try:
        child.send_signal(signal.SIGSTOP)
        until(lambda: child.status() == psutil.STATUS_STOPPED)
        clock = Time()
        held = HeldProcesses(reader, clock)
        held.update(reader.read([child.pid]))
        clock.now += 61

        [(_, (one,))] = [held.update(reader.read([child.pid]))]

        assert (child.pid, "3", 61.0) == (one.pid, one.task, one.seconds)
    finally:
        child.kill()
        child.wait()


def test_process_that_uses_cpu_time_or_begins_anew_is_not_held(reader: ProcessReader) -> None:
    clock = Time()
    held = HeldProcesses(reader, clock)
    held.update([*waiting(1, 2, 3), sample(4, state="R")])
    clock.now += 100
    found = held.update(
        [sample(1, state="D", ticks=8), sample(2, state="D", start=9), *waiting(3), sample(4, state="R")]
    )

    assert (1, [3]) == (found[0], [one.pid for one in found[1]])
    assert ("disk_sleep", "") == (found[1][0].state, found[1][0].task)


def test_only_the_longest_are_listed_and_all_are_counted(reader: ProcessReader) -> None:
    clock = Time()
    held = HeldProcesses(reader, clock)
    for begun in range(1, 9):
        held.update(waiting(*range(1, begun + 1)))
        clock.now += 10
    clock.now += 60
    number, listed = held.update(waiting(*range(1, 9)))

    assert 8 == number
    assert [1, 2, 3, 4, 5][:LISTED_PROCESSES] == [one.pid for one in listed]
    assert 140.0 == listed[0].seconds
