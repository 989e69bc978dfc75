# SPDX-License-Identifier: Apache-2.0
"""Check that code gives back what it took: threads, open files and child processes of this process."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

import psutil

from tests.processes import PATIENCE_SECONDS, until


@contextlib.contextmanager
def nothing_left(patience_seconds: float = PATIENCE_SECONDS) -> Iterator[None]:
    """Fail if the block leaves anything behind; what an earlier test left may end meanwhile."""
    before = _held()
    yield
    until(lambda: not _held() - before, patience_seconds)


def _held() -> set[tuple[str, str]]:
    children = {("child", str(child.pid)) for child in psutil.Process().children()}
    # A number of a thread or a file alone may be given again.
    threads = {("thread", f"{thread.name} {id(thread)}") for thread in threading.enumerate()}
    return children | threads | set(_open_files())


def _open_files() -> Iterator[tuple[str, str]]:
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 # the folder is closed before its links are read
        with contextlib.suppress(OSError):
            yield ("file", f"{number} {os.readlink(f'/proc/self/fd/{number}')}")  # noqa: PTH115
