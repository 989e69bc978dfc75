# SPDX-License-Identifier: Apache-2.0
"""Watch real folders, real cgroups, and a kernel that has no watches left."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.node.changes import FILE_CHANGES, Change, Event, Inotify, InotifyUnavailable, parse_events
from tests.unit.node.own_cgroup import own_cgroup

QUEUE_LIMIT = Path("/proc/sys/fs/inotify/max_queued_events")


@pytest.fixture
def inotify() -> Iterator[Inotify]:
    """Yield an open instance."""
    with Inotify() as opened:
        yield opened


def hear(inotify: Inotify, count: int = 1, seconds: float = 10.0) -> list[Event]:
    """Wait for at least this many events."""
    events: list[Event] = []
    until = time.monotonic() + seconds
    while len(events) < count and time.monotonic() < until:
        select.select([inotify], [], [], max(0.0, until - time.monotonic()))
        events += inotify.read()
    return events


def test_new_folder_is_reported_with_its_name(inotify: Inotify, tmp_path: Path) -> None:
    assert inotify.add(tmp_path)
    (tmp_path / "job_7").mkdir()
    assert [Event(tmp_path, Change.CREATED | Change.IS_FOLDER, "job_7")] == hear(inotify)


def test_removed_folder_is_reported(inotify: Inotify, tmp_path: Path) -> None:
    (tmp_path / "job_7").mkdir()
    inotify.add(tmp_path)
    (tmp_path / "job_7").rmdir()
    assert [Event(tmp_path, Change.DELETED | Change.IS_FOLDER, "job_7")] == hear(inotify)


def test_folder_moved_in_and_out_is_reported(inotify: Inotify, tmp_path: Path) -> None:
    watched, other = tmp_path / "watched", tmp_path / "other"
    watched.mkdir()
    other.mkdir()
    inotify.add(watched)
    moved = other.rename(watched / "moved")
    moved.rename(tmp_path / "other")
    changes = [(event.name, event.change) for event in hear(inotify, 2)]
    assert [("moved", Change.MOVED_TO | Change.IS_FOLDER), ("moved", Change.MOVED_FROM | Change.IS_FOLDER)] == changes


def test_changed_file_is_reported(inotify: Inotify, tmp_path: Path) -> None:
    events = tmp_path / "cgroup.events"
    events.write_text("populated 1\n")
    assert inotify.add(events, FILE_CHANGES)
    with events.open("a") as file:
        file.write("x")
    assert Event(events, Change.MODIFIED) in hear(inotify)


def test_names_that_are_not_text_come_through(inotify: Inotify, tmp_path: Path) -> None:
    inotify.add(tmp_path)
    name = os.fsdecode(b"job\xff\n7")
    (tmp_path / name).mkdir()
    assert [name] == [event.name for event in hear(inotify)]


def test_reading_without_events_does_not_wait(inotify: Inotify, tmp_path: Path) -> None:
    inotify.add(tmp_path)
    assert [] == inotify.read()


@pytest.mark.parametrize("name", ["missing", "file", "file/below"])
def test_what_is_no_folder_is_not_watched(inotify: Inotify, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    assert not inotify.add(tmp_path / name)
    assert frozenset() == inotify.paths


def test_vanished_folder_is_no_longer_watched(inotify: Inotify, tmp_path: Path) -> None:
    folder = tmp_path / "job_7"
    folder.mkdir()
    inotify.add(folder)
    folder.rmdir()
    assert [Event(folder, Change.SELF_DELETED)] == hear(inotify)
    assert frozenset() == inotify.paths


def test_folder_recreated_under_the_same_name_is_watched_again(inotify: Inotify, tmp_path: Path) -> None:
    folder = tmp_path / "job_7"
    folder.mkdir()
    inotify.add(folder)
    folder.rmdir()
    folder.mkdir()
    assert inotify.add(folder)
    (folder / "step_0").mkdir()
    assert Event(folder, Change.CREATED | Change.IS_FOLDER, "step_0") in hear(inotify)
    assert {folder} == inotify.paths


def test_watching_twice_reports_once(inotify: Inotify, tmp_path: Path) -> None:
    inotify.add(tmp_path)
    inotify.add(tmp_path)
    (tmp_path / "job_7").mkdir()
    assert 1 == len(hear(inotify))


def test_second_name_of_a_folder_is_the_one_that_is_reported(inotify: Inotify, tmp_path: Path) -> None:
    (tmp_path / "cpu,cpuacct").mkdir()
    (tmp_path / "cpuacct").symlink_to("cpu,cpuacct")
    inotify.add(tmp_path / "cpu,cpuacct")
    inotify.add(tmp_path / "cpuacct")
    (tmp_path / "cpu,cpuacct" / "slurm").mkdir()
    assert [tmp_path / "cpuacct"] == [event.path for event in hear(inotify)]
    assert {tmp_path / "cpuacct"} == inotify.paths


def test_removed_watch_is_silent(inotify: Inotify, tmp_path: Path) -> None:
    inotify.add(tmp_path)
    (tmp_path / "before").mkdir()
    inotify.remove(tmp_path)
    inotify.remove(tmp_path)
    (tmp_path / "after").mkdir()
    assert [] == hear(inotify, seconds=0.1)


def test_removing_the_watch_of_a_vanished_folder_is_fine(inotify: Inotify, tmp_path: Path) -> None:
    folder = tmp_path / "job_7"
    folder.mkdir()
    inotify.add(folder)
    folder.rmdir()
    inotify.remove(folder)
    assert frozenset() == inotify.paths


def test_full_queue_reports_that_events_were_lost(inotify: Inotify, tmp_path: Path) -> None:
    limit = int(QUEUE_LIMIT.read_text())
    if limit > 100_000:
        pytest.skip(f"the queue of this machine holds {limit} events")
    inotify.add(tmp_path)
    for _ in range(limit // 2 + 1):
        (tmp_path / "job_7").mkdir()
        (tmp_path / "job_7").rmdir()
    events = hear(inotify, limit)
    assert [True] == [event.has_lost_others for event in events if event.path is None]
    assert limit == sum(not event.has_lost_others for event in events)


def test_closing_gives_the_descriptor_back_and_may_be_repeated(tmp_path: Path) -> None:
    with Inotify() as inotify:
        inotify.add(tmp_path)
        descriptor = inotify.fileno()
    inotify.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


class BrokenLibrary:
    """Fake a C library in which one call fails."""

    def __init__(self, function: str, number: int) -> None:
        self._function, self._number = function, number

    def __getattr__(self, name: str) -> object:
        def call(*_arguments: object) -> int:
            if name != self._function:
                return os.open(os.devnull, os.O_RDONLY)
            ctypes.set_errno(self._number)
            return -1

        return call


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOSYS])
def test_kernel_without_a_queue_for_us_is_a_known_error(number: int) -> None:
    with pytest.raises(InotifyUnavailable, match=os.strerror(number)):
        Inotify(BrokenLibrary("inotify_init1", number))


def test_exhausted_watches_are_a_known_error(tmp_path: Path) -> None:
    with Inotify(BrokenLibrary("inotify_add_watch", errno.ENOSPC)) as inotify:
        with pytest.raises(InotifyUnavailable, match="max_user_watches"):
            inotify.add(tmp_path)
        assert frozenset() == inotify.paths


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.ENODEV])
def test_path_that_may_not_be_watched_is_left_out(tmp_path: Path, number: int) -> None:
    with Inotify(BrokenLibrary("inotify_add_watch", number)) as inotify:
        assert not inotify.add(tmp_path)


def test_unknown_error_is_not_hidden(tmp_path: Path) -> None:
    broken = BrokenLibrary("inotify_add_watch", errno.EFAULT)
    with Inotify(broken) as inotify, pytest.raises(OSError, match="Bad address"):
        inotify.add(tmp_path)


LIMITED = """
import sys
from pathlib import Path
from slurmscope.node.changes import Inotify, InotifyUnavailable
Path("/proc/sys/user/max_inotify_watches").write_text("2")
with Inotify() as inotify:
    print(inotify.add(Path("/usr")), inotify.add(Path("/etc")))
    try:
        inotify.add(Path("/var"))
    except InotifyUnavailable:
        print("refused")
"""


def test_limit_of_the_kernel_is_met_for_real() -> None:
    argv = ["unshare", "--user", "--map-root-user", sys.executable, "-c", LIMITED]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=environment)
    if "unshare" in done.stderr or "max_inotify_watches" in done.stderr:
        pytest.skip(f"no user namespace with its own limits: {done.stderr.strip().splitlines()[-1]}")
    assert "True True\nrefused\n" == done.stdout, done.stderr


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_cgroups_that_come_and_go_are_reported(inotify: Inotify, version: str) -> None:
    with own_cgroup(version) as cgroup:
        assert inotify.add(cgroup)
        (cgroup / "job_7").mkdir()
        (cgroup / "job_7").rmdir()
        expected = [(Change.CREATED | Change.IS_FOLDER, "job_7"), (Change.DELETED | Change.IS_FOLDER, "job_7")]
        assert expected == [(event.change, event.name) for event in hear(inotify, 2)]


def test_last_process_that_leaves_a_cgroup_is_reported(inotify: Inotify) -> None:
    with own_cgroup("v2") as cgroup:
        events = cgroup / "cgroup.events"
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
            (cgroup / "cgroup.procs").write_text(str(process.pid))
            assert inotify.add(events, FILE_CHANGES)
            assert "populated 1" in events.read_text()
            process.communicate(timeout=60)
        assert Event(events, Change.MODIFIED) in hear(inotify)
        assert "populated 0" in events.read_text()


def packed(watch: int, mask: int, name: bytes) -> bytes:
    """Write an event as the kernel does: the name is followed by at least one zero byte."""
    padded = name + b"\0" * (16 - len(name) % 16) if name else b""
    return struct.pack("iIII", watch, mask, 0, len(padded)) + padded


NAMES = st.binary(max_size=255).filter(lambda name: b"\0" not in name and b"/" not in name)
EVENTS = st.lists(st.tuples(st.integers(-1, 2**31 - 1), st.integers(0, 2**32 - 1), NAMES), max_size=5)


@given(EVENTS)
def test_events_written_as_the_kernel_does_are_understood(events: list[tuple[int, int, bytes]]) -> None:
    block = b"".join(packed(*event) for event in events)
    parsed = [(watch, int(change), os.fsencode(name)) for watch, change, name in parse_events(block)]
    assert events == parsed


@given(st.binary(max_size=300))
def test_any_bytes_can_be_taken_apart(block: bytes) -> None:
    assert len(list(parse_events(block))) <= len(block) // 16
