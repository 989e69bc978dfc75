# SPDX-License-Identifier: Apache-2.0
"""Inject the time, so that tests can control it, and run tasks periodically."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from slurmscope.core.errors import SlurmscopeError
from slurmscope.core.log import fields

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Two clocks: ``monotonic`` for durations, ``wall`` for dates."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time


END_SECONDS = 5.0
"""How long to wait for a running task at the end."""


@contextmanager
def run_periodically(
    name: str,
    interval_seconds: float,
    action: Callable[[], None],
    *,
    first: Callable[[], None] | None = None,
    stopping: threading.Event | None = None,
) -> Iterator[None]:
    """Run an action every interval until the block ends; ``first`` runs once before, ``stopping`` is set at the end.

    Failures are logged. After a slow run the missed ones are skipped, never stacked.
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
    """Run an action once and log its failure."""
    try:
        action()
    except SlurmscopeError as error:
        logger.error("periodic task failed", extra=fields(name, task=name, error=str(error)))
    except Exception:  # a bug in one run must not end the loop
        logger.exception("periodic task failed", extra=fields(name, task=name))
