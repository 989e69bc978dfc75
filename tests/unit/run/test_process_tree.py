# SPDX-License-Identifier: Apache-2.0
"""All descendants of a process are found and counted once, with and without the kernel's lists of children."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from slurmscope.node.procfs.process import Process
from slurmscope.node.procfs.reader import ProcessReader
from slurmscope.node.procfs.stat import parse_child_ids, parse_peak_resident_bytes
from slurmscope.run import process_tree
from slurmscope.run.process_tree import ProcessTree, TreeMeter
from tests.fakes.traced_command import plain_environment
from tests.processes import until


@pytest.fixture
def family() -> object:
    program = (
        "import os, sys, threading, time\n"
        "def child(work):\n"
        "    if not os.fork():\n"
        "        work()\n"
        "        time.sleep(1000)\n"
        "def quiet(): pass\n"
        "child(lambda: child(quiet))\n"
        "def of_thread():\n"
        "    child(quiet)\n"
        "    time.sleep(1000)\n"
        "threading.Thread(target=of_thread, daemon=True).start()\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
        top = psutil.Process(process.pid)
        until(lambda: 3 == sum(is_asleep(one) for one in top.children(recursive=True)))
        yield process.pid
        for descendant in top.children(recursive=True):
            descendant.kill()
        process.kill()


def is_asleep(process: psutil.Process) -> bool:
    return bool(process.status() == psutil.STATUS_SLEEPING)


@pytest.mark.parametrize("has_lists", [True, False])
def test_every_descendant_is_found_parents_first(has_lists: bool, family: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_lists:
        monkeypatch.setattr(Process, "has_child_lists", lambda _self: False)
    reader = ProcessReader(Path("/proc"))
    tree = ProcessTree(reader, family)

    found = [process.sample for process in tree.scan()]
    reader.close()

    assert {child.pid for child in psutil.Process(family).children(recursive=True)} == {one.pid for one in found}
    assert 3 == len(found)
    known = {family}
    for sample in found:
        assert sample.parent_id in known
        known.add(sample.pid)


def test_ignored_process_and_its_children_are_left_out(family: int) -> None:
    reader = ProcessReader(Path("/proc"))
    tree = ProcessTree(reader, family)
    parents = [process.sample.pid for process in tree.scan() if psutil.Process(process.sample.pid).children()]

    rest = tree.scan(ignored=parents)
    reader.close()

    assert 1 == len(rest)


def test_scan_is_bounded(family: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_tree, "MOST_PROCESSES", 1)
    reader = ProcessReader(Path("/proc"))

    assert 1 == len(ProcessTree(reader, family).scan())
    reader.close()


def test_totals_agree_with_psutil(family: int) -> None:
    meter = TreeMeter(time.time, root_id=family)

    sample = meter.scan()
    meter.close()

    others = psutil.Process(family).children(recursive=True)
    assert (3, sum(one.num_threads() for one in others)) == (sample.processes, sample.threads)
    # psutil reads another file, in which newer kernels add up what each core has counted; a process is a third.
    assert sum(one.memory_info().rss for one in others) == pytest.approx(sample.resident_bytes, rel=0.15)
    assert sample.resident_bytes <= meter.peak_resident_bytes
    assert sample.write_chars is not None
    assert meter.has(others[0].pid)


def test_reaped_child_stays_in_the_totals() -> None:
    meter = TreeMeter(time.time)
    meter.note_start()
    program = "import time\nwhile time.process_time() < 1.0: pass"
    child = subprocess.Popen([sys.executable, "-c", program], env=plain_environment())
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    others = {one.pid for one in psutil.Process().children()} - {child.pid}
    meter.ignored |= others

    status = meter.reap(child.pid)
    child.returncode = status
    first, second = meter.scan(), meter.scan()
    meter.close()

    assert 0 == status
    # Not twice; the start of a Python, and what the kernel does for it, is counted as well.
    assert 1.0 <= first.cpu_seconds < 2.0
    assert first.cpu_seconds == pytest.approx(second.cpu_seconds)
    assert 0 == second.processes


def test_helper_is_reaped_and_not_counted() -> None:
    meter = TreeMeter(time.time)
    child = subprocess.Popen(["sh", "-c", "exit 3"])
    meter.ignored |= {one.pid for one in psutil.Process().children()} | {child.pid}
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    child.returncode = os.waitstatus_to_exitcode(meter.reap(child.pid))
    sample = meter.scan()
    meter.close()

    assert 3 == child.returncode
    assert 0.0 == sample.cpu_seconds


def test_helper_that_its_thread_has_reaped_is_forgotten() -> None:
    meter = TreeMeter(time.time)
    child = subprocess.Popen(["true"])
    meter.ignored.add(child.pid)
    child.wait()

    assert 0 == meter.reap(child.pid)
    assert set() == meter.ignored
    meter.close()


@pytest.mark.parametrize(
    ("status", "peak"),
    [
        (b"Name:\tx\nVmHWM:\t   12 kB\nVmRSS:\t 5 kB\n", 12 * 1024),
        (b"Name:\tx\nState:\tZ (zombie)\n", None),
        (b"Name:\tx\nVmHWM:\t x kB\n", None),
        (b"Name:\tx\nVmHWM:\t 12\n", None),
        (b"Name:\tVmHWM: 9 kB\n", None),
    ],
)
def test_peak_of_a_process_is_parsed(status: bytes, peak: int | None) -> None:
    assert peak == parse_peak_resident_bytes(status)


def test_children_are_parsed() -> None:
    assert [12, 345] == parse_child_ids(b"12 345 x -3 " + b"9" * 30)
