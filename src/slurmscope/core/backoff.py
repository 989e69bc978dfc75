# SPDX-License-Identifier: Apache-2.0
"""Pause longer after each failure, and at random: thousands of nodes must not retry at the same moment."""

from __future__ import annotations

import os
from collections.abc import Callable


def random_share() -> float:
    """Return a number from 0 to less than 1; the module ``random`` costs 1 MB that agents do not need."""
    return int.from_bytes(os.urandom(4), "big") / 2**32


def backoff_seconds(
    failures: int, first_seconds: float, longest_seconds: float, random: Callable[[], float] = random_share
) -> float:
    """Return the pause after so many failures in a row: doubled each time up to the longest, then cut by up to half."""
    pause_seconds = min(first_seconds * (1 << min(failures - 1, 32)), longest_seconds)
    return pause_seconds * (0.5 + 0.5 * random())
