# SPDX-License-Identifier: Apache-2.0
"""Set up a long-running process: thread switches, memory and signals."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

logger = logging.getLogger(__name__)


TURN_SECONDS = 0.0002


def shorten_thread_turns() -> None:
    """Let a thread that has waited for the interpreter run after this time, if another one is busy.

    A short request reads and writes a few times, and waits for a busy thread after each of them: 5 ms by default.
    """
    sys.setswitchinterval(TURN_SECONDS)


_M_ARENA_MAX = -8  # from malloc.h of the GNU C library
READING_OBJECTS = 50_000
PAGE_OBJECTS = 5_000
"""Every page leaves reference cycles: collecting 50,000 of them blocks all other requests for a tenth of a second."""


def settle_memory(young_objects: int = READING_OBJECTS) -> None:
    """Tune memory for large readings; call it once, after all imports and before other threads start.

    The C library gives each thread its own heap, and each heap stays as large as the largest reading it ever held:
    with 100,000 jobs 230 MB in total, 100 MB with one heap for all threads.

    A reading makes tens of thousands of objects and no cycles. With Python's default threshold of 700 the garbage
    collector scans them again and again, a sixth of the CPU time of a page; ``young_objects`` is used instead. Objects
    that exist now are never scanned again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(young_objects, 20, 100)
    library = ctypes.CDLL(None)
    # Other C libraries do not have mallopt, and do not need it.
    if hasattr(library, "mallopt"):
        library.mallopt(_M_ARENA_MAX, 1)


HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Signals:
    """Wait for a signal to stop (SIGTERM, SIGINT) or to reload (SIGHUP).

    The interpreter writes the number of each signal into a pipe. A Python handler would run only when the main
    thread next executes bytecode, which is never if the signal arrives right before it waits. The previous handlers
    are restored at the end.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._wakeup_before = -1
        self._before: dict[int, object] = {}

    def __enter__(self) -> Signals:
        """Install the pipe, then the handlers; only the main thread may do this."""
        self._wakeup_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in HANDLED:
            self._before[number] = signal.signal(number, _do_nothing)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type] # it came from signal.signal
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._reader)
        os.close(self._writer)

    def wait_for_reload(self) -> bool:
        """Wait for the next signal; return True to reload, False to stop."""
        while (number := os.read(self._reader, 1)[0]) not in HANDLED:
            pass
        return number == signal.SIGHUP


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Keep the signal from ending the process."""


class ReloadRequest:
    """Remember SIGHUP for a server that runs in the main thread, and make it return."""

    def __init__(self) -> None:
        self._stop: Callable[[], None] = lambda: None
        self._is_pending = False
        self._before: object = None

    def __enter__(self) -> ReloadRequest:
        """Install the handler; only the main thread can, elsewhere nothing changes."""
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGHUP, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGHUP, self._before)  # type: ignore[arg-type] # it came from signal.signal

    def watch(self, stop: Callable[[], None]) -> None:
        """Call ``stop`` at the next SIGHUP, or now if one is pending."""
        self._stop = stop
        if self._is_pending:
            stop()

    def take(self) -> bool:
        """Return whether a SIGHUP arrived since the last call."""
        is_pending, self._is_pending = self._is_pending, False
        return is_pending

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._is_pending = True
        self._stop()


def run_until_interrupted(serve: Callable[[], int]) -> int:
    """Call ``serve`` and let SIGINT and SIGTERM end it cleanly: all context managers are closed.

    The web server stops on these signals and then raises them again for its caller. A shell that starts a program in
    the background makes it ignore SIGINT: without a handler of our own, the server would stop and the rest run on.
    """
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        return serve()
    except KeyboardInterrupt:
        logger.info("stopped")
        return 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
