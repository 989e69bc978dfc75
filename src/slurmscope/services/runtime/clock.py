# SPDX-License-Identifier: Apache-2.0
"""Give the time to code that tests run with a clock of their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Give the two kinds of time: one for durations, one for dates."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
