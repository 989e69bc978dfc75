# SPDX-License-Identifier: Apache-2.0
"""Turn signals into things the main thread waits for."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from types import FrameType, TracebackType

WISHES = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

logger = logging.getLogger(__name__)


class Signals:
    """Wait for the wish to stop (SIGTERM, SIGINT) or to reload (SIGHUP).

    The interpreter itself writes each signal's number into a pipe. A handler in Python would run only
    when the main thread next gets to it, which is never if the signal comes right before it waits. What
    was installed before is put back at the end.
    """

    def __init__(self) -> None:
        """Start with nothing wished for."""
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._wakeup_before = -1
        self._before: dict[int, object] = {}

    def __enter__(self) -> Signals:
        """Install the pipe, then the handlers; only the main thread may."""
        self._wakeup_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in WISHES:
            self._before[number] = signal.signal(number, _do_nothing)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put back what was there."""
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type] # it came from signal.signal
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._reader)
        os.close(self._writer)

    def wait_for_reload(self) -> bool:
        """Wait for the next wish; True to reload, False to stop."""
        while (number := os.read(self._reader, 1)[0]) not in WISHES:
            pass
        return number == signal.SIGHUP


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Keep the signal from ending the process."""


def run_until_interrupted(serve: Callable[[], int]) -> int:
    """Serve, and take SIGINT and SIGTERM for the wish to end: everything that was opened is closed on the way.

    The web server ends by these signals and then sends them to itself again, for whoever started it.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return serve()
    except KeyboardInterrupt:
        logger.info("stopped")
        return 0
    finally:
        signal.signal(signal.SIGTERM, before)
