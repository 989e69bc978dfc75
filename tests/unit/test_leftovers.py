# SPDX-License-Identifier: Apache-2.0
"""The check for leftovers finds what code keeps, and ignores what others gave back meanwhile."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from tests.leftovers import nothing_left


@contextlib.contextmanager
def thread() -> Iterator[None]:
    over = threading.Event()
    waiting = threading.Thread(target=over.wait)
    waiting.start()
    yield
    over.set()
    waiting.join()


@contextlib.contextmanager
def file() -> Iterator[None]:
    number = os.open("/dev/null", os.O_RDONLY)
    yield
    os.close(number)


@contextlib.contextmanager
def child() -> Iterator[None]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield
        process.kill()


Keep = Callable[[], AbstractContextManager[None]]
KINDS = pytest.mark.parametrize("keep", [thread, file, child])


@KINDS
def test_what_is_kept_is_found(keep: Keep) -> None:
    with contextlib.ExitStack() as stack, pytest.raises(AssertionError, match="waited in vain"), nothing_left(0.05):
        stack.enter_context(keep())


@KINDS
def test_what_ends_meanwhile_is_ignored(keep: Keep) -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(keep())
        with nothing_left():
            stack.close()
