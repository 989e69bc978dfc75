# SPDX-License-Identifier: Apache-2.0
"""Inject the time, so that tests can control it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Hold two clocks: ``monotonic`` for durations, ``wall`` for dates."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
