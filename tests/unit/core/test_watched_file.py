# SPDX-License-Identifier: Apache-2.0
"""Files are loaded once, and again after any change; a failure is raised until they are good again."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slurmscope.core.errors import ConfigError
from slurmscope.core.watched_file import RETRY_SECONDS, Watch, WatchedFile
from tests.fakes.trace_endpoint import Time


class Folder:
    """Hold a file with the name of another one, and count how often both are loaded."""

    def __init__(self, folder: Path) -> None:
        self.first, self.second = folder / "first", folder / "second"
        self.first.write_text(str(self.second))
        self.second.write_text("good")
        self.loads = 0
        self.clock = Time()
        self.watched = WatchedFile(self.load, clock=self.clock)

    def load(self, watch: Watch) -> str:
        self.loads += 1
        watch(self.first)
        second = Path(self.first.read_text())
        watch(second)
        content = second.read_text()
        if content == "bad":
            raise ConfigError(f"bad {self.loads}")
        return content


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def replace(path: Path) -> None:
    aside = path.with_suffix(".new")
    aside.write_bytes(path.read_bytes())
    aside.replace(path)


def write_with_the_same_time(path: Path) -> None:
    seen = path.stat()
    path.write_text("fine")
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def test_unchanged_files_are_loaded_once(folder: Folder) -> None:
    assert folder.watched.last_good is None
    assert ["good"] * 3 == [folder.watched.get() for _ in range(3)]
    folder.clock.now += 1e6
    assert ("good", 1) == (folder.watched.get(), folder.loads)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_text("longer"),
        lambda path: path.touch(),
        lambda path: path.chmod(0o600),
        replace,
        write_with_the_same_time,
    ],
)
def test_every_change_is_noticed_at_once(folder: Folder, change: Callable[[Path], object]) -> None:
    folder.watched.get()
    change(folder.second)
    assert folder.second.read_text() == folder.watched.get()
    folder.watched.get()
    assert 2 == folder.loads


def test_another_file_is_watched_once_it_is_named(folder: Folder, tmp_path: Path) -> None:
    folder.watched.get()
    (tmp_path / "third").write_text("third")
    folder.first.write_text(str(tmp_path / "third"))
    assert "third" == folder.watched.get()
    folder.second.write_text("no longer named")
    assert ("third", 2) == (folder.watched.get(), folder.loads)
    (tmp_path / "third").write_text("new")
    assert "new" == folder.watched.get()


def test_bad_content_raises_and_the_last_good_one_is_kept(folder: Folder) -> None:
    folder.watched.get()
    folder.second.write_text("bad")
    for _ in range(3):
        with pytest.raises(ConfigError, match="bad 2"):
            folder.watched.get()
    assert "good" == folder.watched.last_good
    folder.second.write_text("better")
    assert "better" == folder.watched.get() == folder.watched.last_good


def test_unchanged_bad_files_are_read_again_after_a_second(folder: Folder) -> None:
    folder.second.write_text("bad")
    for expected in ("bad 1", "bad 1", "bad 2"):
        with pytest.raises(ConfigError, match=expected):
            folder.watched.get()
        folder.clock.now += RETRY_SECONDS / 2


def test_file_that_appears_or_vanishes_is_a_change(folder: Folder) -> None:
    folder.second.unlink()
    with pytest.raises(FileNotFoundError):
        folder.watched.get()
    folder.second.write_text("there")
    assert "there" == folder.watched.get()
    folder.second.unlink()
    with pytest.raises(FileNotFoundError):
        folder.watched.get()


def test_pipe_is_not_waited_for(folder: Folder) -> None:
    folder.second.unlink()
    os.mkfifo(folder.second)
    with pytest.raises(OSError, match="not a regular file") as caught:
        folder.watched.get()
    assert str(folder.second) == caught.value.filename


def test_file_replaced_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def load(watch: Watch) -> str:
        watch(path)
        content = path.read_text()
        if content == "old":
            replace(path)
            path.write_text("new")
        return content

    watched = WatchedFile(load)
    assert ["old", "new", "new"] == [watched.get() for _ in range(3)]


def test_threads_load_a_change_once(folder: Folder) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert {"good"} == set(pool.map(lambda _: folder.watched.get(), range(100)))
    assert 1 == folder.loads
