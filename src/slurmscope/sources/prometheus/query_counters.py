# SPDX-License-Identifier: Apache-2.0
"""Count what questions to a server of time series cost, and how they went."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCount:
    """Hold the sums of one kind of question; ``seconds`` runs until an answer is understood or given up."""

    questions: int = 0
    retries: int = 0
    splits: int = 0
    """How often a question was put again in two halves, because it was too much at once."""
    points: int = 0
    received_bytes: int = 0
    seconds: float = 0.0
    failures: Mapping[str, int] = field(default_factory=dict)
    """By the ``reason`` of the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCounts:
    """Hold the sums by kind of question, since the start."""

    by_kind: Mapping[str, QueryCount] = field(default_factory=dict)
    is_up: bool | None = None
    """Whether the server could answer the last time; None when it was not asked yet."""


class QueryCounters:
    """Keep the sums; any thread may write and read."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._lock = threading.Lock()
        self._counts: dict[str, QueryCount] = {}
        self._is_up: bool | None = None

    def note_answer(self, kind: str, seconds: float, *, points: int, received_bytes: int) -> None:
        """Count a question that was answered."""
        with self._lock:
            old = self._counts.get(kind, QueryCount())
            self._is_up = True
            self._counts[kind] = replace(
                old,
                questions=old.questions + 1,
                seconds=old.seconds + seconds,
                points=old.points + points,
                received_bytes=old.received_bytes + received_bytes,
            )

    def note_failure(self, kind: str, seconds: float, reason: str, *, is_up: bool) -> None:
        """Count a question without a usable answer; ``is_up`` tells whether the server works all the same."""
        with self._lock:
            old = self._counts.get(kind, QueryCount())
            self._is_up = is_up
            self._counts[kind] = replace(
                old,
                questions=old.questions + 1,
                seconds=old.seconds + seconds,
                failures={**old.failures, reason: old.failures.get(reason, 0) + 1},
            )

    def note_retry(self, kind: str) -> None:
        """Count that a question is put once more."""
        with self._lock:
            old = self._counts.get(kind, QueryCount())
            self._counts[kind] = replace(old, retries=old.retries + 1)

    def note_split(self, kind: str) -> None:
        """Count that a question is put again in two halves."""
        with self._lock:
            old = self._counts.get(kind, QueryCount())
            self._counts[kind] = replace(old, splits=old.splits + 1)

    def snapshot(self) -> QueryCounts:
        """Return the sums of this moment."""
        with self._lock:
            return QueryCounts(by_kind=dict(self._counts), is_up=self._is_up)
