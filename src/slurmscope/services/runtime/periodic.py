# SPDX-License-Identifier: Apache-2.0
"""Do something again and again in a thread, whatever happens in one round."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from slurmscope.errors import SlurmscopeError
from slurmscope.log import fields

logger = logging.getLogger(__name__)

END_SECONDS = 5.0
"""How long the end waits for a round that is under way."""


@contextmanager
def repeating(
    name: str,
    interval_seconds: float,
    action: Callable[[], None],
    *,
    first: Callable[[], None] | None = None,
    stopping: threading.Event | None = None,
) -> Iterator[None]:
    """Repeat an action until the end; ``first`` is done once before, ``stopping`` is set at the end.

    What fails is told, and tried again in the next round. After a slow round the next one waits for its turn: rounds
    are skipped, never stacked.
    """
    stopping = stopping or threading.Event()

    def loop() -> None:
        if first is not None:
            attempt(name, first)
        next_start = time.monotonic()
        while not stopping.is_set():
            attempt(name, action)
            now = time.monotonic()
            next_start += interval_seconds * (1 + max(0.0, now - next_start) // interval_seconds)
            stopping.wait(next_start - now)

    thread = threading.Thread(target=loop, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(END_SECONDS)


def attempt(name: str, action: Callable[[], None]) -> None:
    """Do something once, and tell when it fails."""
    try:
        action()
    except SlurmscopeError as error:
        logger.error("round failed", extra=fields(name, task=name, error=str(error)))
    except Exception:  # a bug in one round must not end the loop
        logger.exception("round failed", extra=fields(name, task=name))
