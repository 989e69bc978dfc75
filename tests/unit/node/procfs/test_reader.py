# SPDX-License-Identifier: Apache-2.0
"""Processes are read as they are, and one that is gone or closed to us is told, never guessed."""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from slurmscope.core.errors import SourceError
from slurmscope.node.kernel_files import Denials, Missing
from slurmscope.node.procfs.process import Process
from slurmscope.node.procfs.reader import ProcessReader
from tests.leftovers import nothing_left
from tests.processes import holding_long_path, until
from tests.unit.node.proc_tree import FIXTURES, ProcTree

PR_SET_NAME = 15


@contextmanager
def sleeping(
    files: tuple[int, ...] = (), environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that has started for good: it has answered, and waits for more."""
    with subprocess.Popen(
        ["cat", "-u"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=files, env=environment, bufsize=0
    ) as process:
        try:
            assert process.stdin
            assert process.stdout
            process.stdin.write(b"x")
            assert b"x" == process.stdout.read(1)
            until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_SLEEPING)
            yield process
        finally:
            process.kill()


def opened(reader: ProcessReader, pid: int) -> Process:
    process = reader.open(pid)
    assert isinstance(process, Process)
    return process


def test_sample_agrees_with_psutil(reader: ProcessReader) -> None:
    with sleeping() as child:
        theirs = psutil.Process(child.pid)
        [sample] = reader.read([child.pid])

        assert child.pid == sample.pid
        assert theirs.ppid() == sample.parent_id
        assert os.getpgid(child.pid) == sample.group_id
        assert os.getsid(child.pid) == sample.session_id
        assert theirs.name() == sample.command
        assert theirs.num_threads() == sample.threads
        assert theirs.uids().effective == sample.uid
        assert abs(theirs.create_time() - psutil.boot_time() - sample.start_ticks / os.sysconf("SC_CLK_TCK")) < 1.5


def test_io_and_arguments_agree_with_psutil(reader: ProcessReader) -> None:
    with sleeping() as child:
        theirs = psutil.Process(child.pid).io_counters()
        with reader.process(child.pid) as process:
            assert isinstance(process, Process)
            reading = process.io()
            assert not isinstance(reading, Missing)
            assert (theirs.read_chars, theirs.write_chars) == reading.counts[:2]
            assert reading is process.io(reading)
            assert ("cat", "-u") == process.command_line()


def test_switches_and_limit_agree_with_psutil(reader: ProcessReader) -> None:
    with sleeping() as child:
        theirs = psutil.Process(child.pid)
        with reader.process(child.pid) as process:
            assert isinstance(process, Process)
            assert tuple(theirs.num_ctx_switches()) == process.switches(child.pid)
            assert theirs.rlimit(psutil.RLIMIT_NOFILE)[0] == process.file_limit()


def test_only_named_variables_are_read(reader: ProcessReader) -> None:
    environment = {"SLURM_JOB_ID": "7", "SECRET": "x", "LONG": "y" * 100_000}
    with sleeping(environment=environment) as child, reader.process(child.pid) as process:
        assert isinstance(process, Process)
        assert {"SLURM_JOB_ID": "7"} == process.environment(("SLURM_JOB_ID", "ABSENT"))
        assert {"LONG": "y" * 100_000} == process.environment(("LONG",))


def test_captured_process_is_read_below_another_root() -> None:
    reader = ProcessReader(FIXTURES / "first")
    with reader.process(275) as process:
        assert isinstance(process, Process)
        command_line = process.command_line()
        assert not isinstance(command_line, Missing)
        assert "slurmstepd: [1.0]" == command_line[0].rstrip()
    with reader.process(287) as process:
        assert isinstance(process, Process)
        names = ("SLURM_JOBID", "SLURM_JOB_UID")
        assert {"SLURM_JOBID": "1", "SLURM_JOB_UID": "4242"} == process.environment(names)
    reader.close()


def test_idle_process_is_not_read_again(reader: ProcessReader) -> None:
    with sleeping() as child:
        until(lambda: reader.read([child.pid]) == reader.read([child.pid]))
        first = reader.read([child.pid])
        again = reader.read([child.pid], {child.pid: first[0]})

        assert first[0] is again[0]


def test_active_process_is_read_again(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path)
    tree.add(5, 5, ticks=1)
    reader = ProcessReader(tmp_path)
    [first] = reader.read([5])
    tree.add(5, 5, ticks=2)

    [again] = reader.read([5], {5: first})

    assert 2 == again.user_ticks
    reader.close()


@pytest.mark.parametrize(("start_difference", "uid_difference"), [(1, 0), (0, 1)])
def test_process_that_may_be_another_is_read_from_the_beginning(
    tmp_path: Path, start_difference: int, uid_difference: int
) -> None:
    tree = ProcTree(tmp_path)
    tree.add(5, 5, start=77)
    reader = ProcessReader(tmp_path)
    [first] = reader.read([5])
    other = first._replace(
        text=b"old", start_ticks=first.start_ticks + start_difference, uid=first.uid + uid_difference
    )

    [again] = reader.read([5], {5: other})

    assert first == again
    reader.close()


def test_process_that_became_another_user_is_noticed_even_if_it_sleeps(tmp_path: Path) -> None:
    ProcTree(tmp_path).add(5, 5)
    reader = ProcessReader(tmp_path)
    [first] = reader.read([5])
    before = first._replace(uid=first.uid + 1)

    seen = [reader.read([5], {5: before})[0].uid for _ in range(8)]

    assert first.uid in seen
    assert first.uid == reader.read([5], {5: before._replace(text=b"moved")})[0].uid
    reader.close()


def test_vanished_process_is_skipped(reader: ProcessReader) -> None:
    with sleeping() as child:
        [before] = reader.read([child.pid])
        process = opened(reader, child.pid)
    assert [] == reader.read([child.pid])
    assert [] == reader.read([child.pid], {child.pid: before})
    assert Missing.GONE is reader.open(child.pid)
    assert Missing.GONE is process.sample()
    process.close()


def test_open_process_never_turns_into_another(reader: ProcessReader) -> None:
    with sleeping() as child:
        process = opened(reader, child.pid)
    answers = [
        process.sample(),
        process.io(),
        process.open_files(10, print),
        process.threads(10),
        process.switches(child.pid),
        process.command_line(),
        process.environment(("A",)),
        process.file_limit(),
    ]
    process.close()
    process.close()

    assert [Missing.GONE] * 8 == answers


def test_zombie_keeps_its_numbers_and_nothing_else(reader: ProcessReader) -> None:
    with subprocess.Popen([sys.executable, "-c", "print('x' * 100000)"], stdout=subprocess.DEVNULL) as child:
        until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE)
        with reader.process(child.pid) as process:
            assert isinstance(process, Process)
            sample, reading, files = process.sample(), process.io(), process.open_files(10, print)
            assert not isinstance(sample, Missing)
            assert not isinstance(reading, Missing)
            assert "Z" == sample.state
            assert reading.counts.write_chars >= 100_001
            assert files in ((0, True), Missing.GONE)
            assert () == process.command_line()


def test_open_files_are_counted_and_reported(reader: ProcessReader, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b\nc")]
    with (
        paths[0].open("w") as first,
        paths[1].open("w") as second,
        sleeping((first.fileno(), second.fileno())) as child,
        reader.process(child.pid) as process,
    ):
        assert isinstance(process, Process)
        all_targets: list[bytes] = []
        few_targets: list[bytes] = []
        found, few = process.open_files(1000, all_targets.append), process.open_files(2, few_targets.append)
        expected = psutil.Process(child.pid).num_fds()

    assert not isinstance(found, Missing)
    assert not isinstance(few, Missing)
    assert expected == found.number == few.number
    assert {bytes(path) for path in paths} <= set(all_targets)
    assert 2 == len(few_targets)


def test_threads_are_read_up_to_a_limit(reader: ProcessReader) -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(5)]
    for thread in threads:
        thread.start()
    with reader.process(os.getpid()) as process:
        assert isinstance(process, Process)
        found, few = process.threads(1000), process.threads(3)
    stop.set()
    for thread in threads:
        thread.join()

    assert not isinstance(found, Missing)
    assert not isinstance(few, Missing)
    assert {thread.native_id for thread in threads} <= {thread.thread_id for thread in found}
    assert 3 == len(few)
    assert {"R", "S"} >= {thread.state for thread in found}


def test_process_ids_are_those_of_psutil(reader: ProcessReader) -> None:
    with sleeping() as child:
        found = reader.process_ids()

        assert sorted(found) == found
        assert {1, os.getpid(), child.pid} <= set(found)
        assert len(set(psutil.pids()) ^ set(found)) < max(20, len(found) / 2)


def test_machine_is_read(reader: ProcessReader) -> None:
    assert psutil.virtual_memory().total == reader.memory_bytes()
    assert abs(time.clock_gettime(time.CLOCK_BOOTTIME) - reader.uptime_seconds()) < 60
    assert not reader.hides_processes()


def test_root_without_a_first_process_hides_some() -> None:
    reader = ProcessReader(FIXTURES / "first")

    assert reader.hides_processes()
    reader.close()


def test_missing_root_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="check that procfs is mounted there"):
        ProcessReader(tmp_path / "nothing")


def test_root_that_is_no_procfs_is_reported(tmp_path: Path) -> None:
    reader = ProcessReader(tmp_path)
    with pytest.raises(SourceError, match=r"cannot read .*uptime"):
        reader.uptime_seconds()
    reader.close()
    reader.close()


def test_process_of_unknown_shape_costs_only_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tree = ProcTree(tmp_path)
    for pid in (5, 6, 7, 8):
        tree.add(pid, pid)
    (tmp_path / "5" / "stat").write_text("what?")
    (tmp_path / "6" / "stat").write_text("")
    (tmp_path / "8" / "stat").write_text((tmp_path / "7" / "stat").read_text())
    reader = ProcessReader(tmp_path)

    assert [7] == [sample.pid for sample in reader.read([5, 6, 7, 8])]
    assert [7] == [sample.pid for sample in reader.read([5, 6, 7, 8])]
    assert {"stat": 4} == reader.denials.faults
    assert 1 == len(caplog.records)
    reader.close()


# As Linux 6.18 showed a process that its parent reaped meanwhile.
REAPED = f"5 (python) Z 0 -1 -1 0 -1 4227148 69 0 0 0 0 0 0 0 25 5 0 0 7256248 {'0 ' * 12} 1 0 0 17 1 {'0 ' * 13}\n"


def test_process_that_is_reaped_meanwhile_is_no_fault(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tree = ProcTree(tmp_path)
    tree.add(5, 5)
    reader = ProcessReader(tmp_path)
    [before] = reader.read([5])
    for path in (tmp_path / "5" / "stat", tmp_path / "5" / "task" / "5" / "stat"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(REAPED)

    with reader.process(5) as process:
        assert isinstance(process, Process)
        assert ([], []) == (reader.read([5], {5: before}), process.threads(10))
    assert ({}, []) == (reader.denials.faults, caplog.records)
    reader.close()


def test_process_that_cannot_be_parsed_once_keeps_its_last_values(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path)
    tree.add(5, 5, ticks=70)
    reader = ProcessReader(tmp_path)
    first = reader.read([5])
    (tmp_path / "5" / "stat").write_text("5 (work) S 1")

    assert first == reader.read([5], {5: first[0]})
    assert {"stat": 1} == reader.denials.faults
    reader.close()


@pytest.mark.parametrize("number", [errno.ENAMETOOLONG, errno.ELOOP, errno.EIO, errno.EOVERFLOW])
def test_other_errors_of_a_process_are_faults(number: int) -> None:
    denials = Denials()

    assert Missing.FAULTY is denials.classify(OSError(number, "x"), "fd_target")
    assert ({}, {"fd_target": 1}) == (denials.counts, denials.faults)


def test_file_under_a_very_long_path_costs_the_targets_only(reader: ProcessReader, tmp_path: Path) -> None:
    with holding_long_path(tmp_path) as pid, reader.process(pid) as process:
        assert isinstance(process, Process)
        files = process.open_files(100, print)
        assert not isinstance(files, Missing)

    assert not files.has_targets
    assert files.number is not None
    assert files.number >= 4
    assert {"fd_target": 1} == reader.denials.faults


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ESRCH, errno.ENODEV, errno.EINVAL])
def test_gone_is_no_denial(number: int) -> None:
    denials = Denials()

    assert Missing.GONE is denials.classify(OSError(number, "x"), "io")
    assert 0 == denials.counts.total()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_denial_is_counted_and_reported_once(number: int, caplog: pytest.LogCaptureFixture) -> None:
    denials = Denials()
    with caplog.at_level(logging.WARNING):
        answers = [denials.classify(OSError(number, "x"), "io") for _ in range(3)]

    assert [Missing.DENIED] * 3 == answers
    assert {"io": 3} == dict(denials.counts)
    assert 1 == len(caplog.records)


def test_exhausted_descriptors_fail_the_reading_instead_of_hiding_processes() -> None:
    with pytest.raises(SourceError, match="Too many open files"):
        Denials().classify(OSError(errno.EMFILE, "Too many open files"), "stat")


def test_reading_leaks_no_descriptors(reader: ProcessReader) -> None:
    with nothing_left(), sleeping() as child:
        child.send_signal(signal.SIGSTOP)
        for _ in range(50):
            reader.read([child.pid, 2**22 - 1])
            with reader.process(child.pid) as process:
                assert isinstance(process, Process)
                process.threads(5)
                process.open_files(5, print)


def test_process_that_renames_itself_is_shown_by_its_new_name(reader: ProcessReader) -> None:
    before = Path("/proc/self/comm").read_bytes().strip()
    try:
        ctypes.CDLL(None).prctl(PR_SET_NAME, ctypes.c_char_p(b"renamed"), 0, 0, 0)
        first = reader.read([os.getpid()])
        ctypes.CDLL(None).prctl(PR_SET_NAME, ctypes.c_char_p(b"again"), 0, 0, 0)
        second = reader.read([os.getpid()], {os.getpid(): first[0]})
    finally:
        ctypes.CDLL(None).prctl(PR_SET_NAME, ctypes.c_char_p(before), 0, 0, 0)

    assert ("renamed", "again") == (first[0].command, second[0].command)
