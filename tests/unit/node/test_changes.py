# SPDX-License-Identifier: Apache-2.0
"""A thread sleeps until folders change, processes end, or somebody calls."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmscope.node.changes import Change, ChangeWatcher, Event, Inotify, InotifyUnavailable, WakeUp
from tests.leftovers import nothing_left
from tests.unit.node.own_cgroup import own_cgroup


@pytest.fixture
def changes() -> Iterator[ChangeWatcher]:
    """Yield an open watcher."""
    opened = ChangeWatcher()
    yield opened
    opened.close()


def open_nothing() -> Inotify:
    """Fake a kernel that allows no inotify instance."""
    raise InotifyUnavailable("no more instances")


class FullInotify(Inotify):
    """Have room for one watch."""

    def add(self, path: Path, changes: Change = Change.CREATED) -> bool:
        """Refuse the second one as the kernel does."""
        if self.paths:
            raise InotifyUnavailable(os.strerror(errno.ENOSPC))
        return super().add(path, changes)


def test_new_folder_ends_the_sleep(changes: ChangeWatcher, tmp_path: Path) -> None:
    assert changes.watch([tmp_path])
    (tmp_path / "job_7").mkdir()
    assert [Event(tmp_path, Change.CREATED | Change.IS_FOLDER, "job_7")] == changes.wait(30.0).events


def test_what_has_happened_is_still_there_to_be_returned(changes: ChangeWatcher, tmp_path: Path) -> None:
    changes.watch([tmp_path])
    assert not changes.has_any(0.0)
    (tmp_path / "job_7").mkdir()
    assert changes.has_any(30.0)
    assert ["job_7"] == [event.name for event in changes.wait(30.0).events]


def test_nothing_new_to_watch_is_reported(changes: ChangeWatcher, tmp_path: Path) -> None:
    assert changes.watch([tmp_path])
    assert not changes.watch([tmp_path])
    assert not changes.watch([tmp_path / "missing"])


def test_what_is_not_wanted_any_more_is_not_reported(changes: ChangeWatcher, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    changes.watch([tmp_path])
    changes.watch([tmp_path / "a"])
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "c").mkdir()
    assert ["c"] == [event.name for event in changes.wait(30.0).events]


def test_program_that_is_executed_is_reported(changes: ChangeWatcher, tmp_path: Path) -> None:
    program = tmp_path / "slurmstepd"
    shutil.copy("/bin/true", program)
    assert changes.watch([tmp_path], [program])
    assert changes.is_watched(program)
    subprocess.run([program], check=True)
    assert [Event(program, Change.OPENED)] == changes.wait(30.0).events
    assert not changes.watch([tmp_path], [program])


def test_program_that_was_replaced_is_watched_again(changes: ChangeWatcher, tmp_path: Path) -> None:
    program, newer = tmp_path / "slurmstepd", tmp_path / "newer"
    for path in (program, newer):
        shutil.copy("/bin/true", path)
    with program.open("rb"):  # the kernel reports no end of a file that is in use
        changes.watch([], [program])
        newer.rename(program)
        changes.watch([], [program])
        subprocess.run([program], check=True)
        assert [Event(program, Change.OPENED)] == changes.wait(30.0).events


def test_missing_program_is_not_watched(tmp_path: Path, changes: ChangeWatcher) -> None:
    assert not changes.watch([], [tmp_path / "slurmstepd"])
    assert not changes.is_watched(tmp_path / "slurmstepd")


def test_file_of_events_is_watched_for_its_content(changes: ChangeWatcher, tmp_path: Path) -> None:
    events = tmp_path / "cgroup.events"
    events.touch()
    changes.watch([events])
    with events.open("a") as file:
        file.write("populated 0\n")
    assert Event(events, Change.MODIFIED) in changes.wait(30.0).events


def test_end_of_a_process_ends_the_sleep(changes: ChangeWatcher) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        assert [process.pid] == changes.watch_processes([process.pid])
        assert [] == changes.wait(0.05).ended_pids
        process.communicate(timeout=60)
        assert [process.pid] == changes.wait(30.0).ended_pids


def test_ended_process_is_reported_once(changes: ChangeWatcher) -> None:
    with subprocess.Popen(["true"]) as process:
        changes.watch_processes([process.pid])
        assert [process.pid] == changes.wait(30.0).ended_pids
        assert [] == changes.wait(0.05).ended_pids


def test_process_that_is_gone_is_not_watched(changes: ChangeWatcher) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait(timeout=60)
    assert [] == changes.watch_processes([process.pid])


def test_unwatched_process_is_not_reported(changes: ChangeWatcher) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        changes.watch_processes([process.pid])
        changes.unwatch_process(process.pid)
        changes.unwatch_process(process.pid)
        process.communicate(timeout=60)
    assert [] == changes.wait(0.05).ended_pids


def test_only_so_many_processes_are_watched() -> None:
    changes = ChangeWatcher(process_limit=1)
    assert [os.getpid()] == changes.watch_processes([os.getpid(), os.getppid()])
    changes.close()


@pytest.mark.parametrize("sleep", ["wait", "rest"])
def test_call_from_another_thread_ends_the_sleep(changes: ChangeWatcher, sleep: str) -> None:
    began = time.monotonic()
    threading.Timer(0.05, changes.wake).start()
    getattr(changes, sleep)(60.0)
    assert time.monotonic() - began < 50.0


def test_call_ends_one_sleep_only(changes: ChangeWatcher) -> None:
    changes.wake()
    changes.wake()
    changes.rest(60.0)
    began = time.monotonic()
    changes.rest(0.05)
    assert time.monotonic() - began >= 0.05


def test_rest_does_not_read_and_loses_nothing(changes: ChangeWatcher, tmp_path: Path) -> None:
    changes.watch([tmp_path])
    (tmp_path / "job_7").mkdir()
    changes.rest(0.01)
    assert ["job_7"] == [event.name for event in changes.wait(0.0).events]


def test_machine_without_inotify_is_polled(tmp_path: Path) -> None:
    changes = ChangeWatcher(open_nothing)
    assert changes.is_polling
    assert not changes.watch([tmp_path])
    assert WakeUp() == changes.wait(0.01)
    changes.close()


def test_machine_without_inotify_still_reports_the_end_of_processes() -> None:
    changes = ChangeWatcher(open_nothing)
    with subprocess.Popen(["true"]) as process:
        changes.watch_processes([process.pid])
        assert [process.pid] == changes.wait(30.0).ended_pids
    changes.close()


def test_more_folders_than_watches_are_polled_until_there_are_fewer(tmp_path: Path) -> None:
    changes = ChangeWatcher(FullInotify)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    told = []
    for paths in ([tmp_path / "a", tmp_path / "b"], [], [tmp_path / "b"]):
        changes.watch(paths)
        told.append(changes.is_polling)
    changes.close()
    assert [True, False, False] == told


def test_own_limit_of_watches_is_kept(tmp_path: Path) -> None:
    changes = ChangeWatcher(watch_limit=2)
    folders = [tmp_path / str(number) for number in range(3)]
    for folder in folders:
        folder.mkdir()
    changes.watch(folders)
    assert changes.is_polling
    for folder in folders:
        (folder / "job").mkdir()
    assert 2 == len(changes.wait(30.0).events)
    changes.close()


class ForgetfulInotify(Inotify):
    """Lose all events of one reading, as the kernel does when its queue is full."""

    def read(self) -> list[Event]:
        """Report only that events were lost."""
        lost = super().read()
        return [Event(None, Change.OVERFLOWED)] if lost else []


def test_folder_recreated_while_events_were_lost_is_watched_again(tmp_path: Path) -> None:
    changes = ChangeWatcher(ForgetfulInotify)
    folder = tmp_path / "job_7"
    folder.mkdir()
    changes.watch([folder])
    folder.rmdir()
    folder.mkdir()
    assert [Event(None, Change.OVERFLOWED)] == changes.wait(30.0).events
    changes.watch([folder])
    (folder / "step_0").mkdir()
    assert [Event(None, Change.OVERFLOWED)] == changes.wait(30.0).events
    changes.close()


def test_root_that_was_replaced_is_watched_again(changes: ChangeWatcher, tmp_path: Path) -> None:
    root = tmp_path / "slurmstepd.scope"
    root.mkdir()
    assert changes.watch([root], roots=[root])
    # Moved, not removed: as with a cgroup that is removed, the kernel does not end the watch.
    root.rename(tmp_path / "former")
    root.mkdir()
    assert changes.watch([root], roots=[root])
    assert not changes.watch([root], roots=[root])
    (tmp_path / "former" / "job_6").mkdir()
    (root / "job_7").mkdir()
    assert [Event(root, Change.CREATED | Change.IS_FOLDER, "job_7")] == changes.wait(30.0).events


def test_full_table_of_watches_still_checks_its_roots(tmp_path: Path) -> None:
    changes = ChangeWatcher(watch_limit=1)
    changes.watch([tmp_path], roots=[tmp_path])
    changes.watch([tmp_path], roots=[tmp_path])
    assert not changes.is_polling
    changes.close()


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_real_cgroup_that_was_removed_and_made_again_is_watched_again(changes: ChangeWatcher, version: str) -> None:
    with own_cgroup(version) as root:
        scope = root / "slurmstepd.scope"
        scope.mkdir()
        changes.watch([root, scope])
        scope.rmdir()
        scope.mkdir()
        assert 2 == len(changes.wait(30.0).events)
        assert changes.watch([root, scope])
        (scope / "job_7").mkdir()
        assert [Event(scope, Change.CREATED | Change.IS_FOLDER, "job_7")] == changes.wait(30.0).events


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_real_root_that_was_removed_and_made_again_is_watched_again(changes: ChangeWatcher, version: str) -> None:
    with own_cgroup(version) as root:
        changes.watch([root], roots=[root])
        root.rmdir()
        root.mkdir()
        assert changes.watch([root], roots=[root])
        (root / "job_7").mkdir()
        assert [Event(root, Change.CREATED | Change.IS_FOLDER, "job_7")] == changes.wait(30.0).events


def test_closing_gives_everything_back(tmp_path: Path) -> None:
    with nothing_left():
        changes = ChangeWatcher()
        changes.watch([tmp_path])
        changes.watch_processes([os.getpid()])
        changes.close()
        changes.close()
