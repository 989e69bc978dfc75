# SPDX-License-Identifier: Apache-2.0
"""What processes have open and what their threads do is added up."""

from __future__ import annotations

import pytest

from slurmscope.sources.procfs.process import OpenFiles
from slurmscope.sources.procfs.stat import ThreadSample
from slurmscope.sources.procfs.summary import FileTally, ThreadTally, is_file
from tests.unit.sources.procfs.proc_tree import sample


def test_threads_are_counted_by_state_program_and_core() -> None:
    tally = ThreadTally()
    tally.add(sample(1, command="a", state="R"))
    tally.add(sample(2, command="b")._replace(threads=3), [ThreadSample(2, 0, "R", 4), ThreadSample(3, 0, "D", 5)])
    tally.add(sample(4, command="b", state="?"))

    assert {"running": 2, "disk_sleep": 1, "unknown": 2} == tally.in_state
    assert {"a": 1, "b": 4} == tally.of_program
    assert {0: 1, 4: 1} == tally.on_core


def test_threads_that_were_not_read_are_unknown() -> None:
    tally = ThreadTally()
    tally.add(sample(1)._replace(threads=8))

    assert {"unknown": 8} == tally.in_state


def test_same_file_of_two_processes_is_one() -> None:
    tally = FileTally(("scratch",), 100)
    tally.add(OpenFiles(3, ["/data/a", "pipe:[1]", "/dev/null"]), 1000)
    tally.add(OpenFiles(2, ["/data/a", "/data/b (deleted)"]), 8)

    assert 5 == tally.open_files
    assert 2 == tally.distinct_files
    assert 0.25 == tally.worst_ratio
    assert tally.uses_scratch is False


def test_scratch_is_told_by_words_of_paths() -> None:
    pipe, file = FileTally(("scratch", "nobackup"), 100), FileTally(("scratch", "nobackup"), 100)
    pipe.add(OpenFiles(1, ["pipe:[scratch]"]), None)
    file.add(OpenFiles(1, ["/lustre/nobackup/x"]), None)

    assert (False, True) == (pipe.uses_scratch, file.uses_scratch)
    assert file.worst_ratio is None


def test_closed_targets_leave_the_count() -> None:
    tally = FileTally(("scratch",), 100)
    tally.add(OpenFiles(3, ["/data/a"]), 1000)
    tally.add(OpenFiles(3, None), 1000)

    assert 6 == tally.open_files
    assert tally.distinct_files is None
    assert tally.uses_scratch is None


def test_room_shrinks_with_each_target() -> None:
    tally = FileTally((), 2)
    tally.add(OpenFiles(1, ["/a"]), None)
    assert 1 == tally.room
    tally.add(OpenFiles(9, ["/b", "/c"]), None)

    assert 0 == tally.room


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/home/alice/a", True),
        ("/home/alice/a (deleted)", True),
        ("/dev/shm/psm2", True),
        ("/dev/nvidia0", False),
        ("/proc/1/stat", False),
        ("/sys/fs/cgroup", False),
        ("/memfd:x (deleted)", False),
        ("socket:[1]", False),
        ("anon_inode:[eventfd]", False),
        ("", False),
    ],
)
def test_files_are_told_by_their_path(target: str, expected: bool) -> None:
    assert expected is is_file(target)
