# SPDX-License-Identifier: Apache-2.0
"""Wait for a condition by asking again, never past a deadline."""

import time
from collections.abc import Callable

from lab.errors import LabError

POLL_SECONDS = 0.05


def wait_until(
    predicate: Callable[[], object], what: str, *, timeout_seconds: float, poll_seconds: float = POLL_SECONDS
) -> None:
    """Return as soon as the predicate holds; raise LabError naming what was waited for otherwise."""
    deadline = time.monotonic() + timeout_seconds
    while not predicate():
        if time.monotonic() >= deadline:
            raise LabError(f"waited {timeout_seconds:g} s in vain for {what}")
        time.sleep(poll_seconds)
