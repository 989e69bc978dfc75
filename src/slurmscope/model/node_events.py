# SPDX-License-Identifier: Apache-2.0
"""Hold when a node was down or drained."""

from __future__ import annotations

from typing import NamedTuple


class NodeEvent(NamedTuple):
    """Hold one time in which a node was not available; ``end_seconds`` is None while it lasts."""

    start_seconds: int
    end_seconds: int | None
    state: str
    user: str
    reason: str
