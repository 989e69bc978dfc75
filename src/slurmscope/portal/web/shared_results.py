# SPDX-License-Identifier: Apache-2.0
"""Compute slow results once for all viewers who request them at the same time or soon after.

A result is kept for twenty times as long as it took, and for a minute at most: quick ones are always new, and slow ones
take a twentieth of a core however many users request them. A failure is raised to all who waited for it, and not kept.

A new report is another object, and is rendered again. Cached text must not depend on the viewer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from slurmscope.core.cache import Cache, WaitTooLong
from slurmscope.core.errors import ArchiveError
from slurmscope.jobs.report import JobReport

MAX_TEXTS = 128
"""The texts of a large job take about 300 KB."""


class RenderingCache:
    """Cache texts by report and name, from any thread; concurrent requests wait for one rendering."""

    def __init__(self) -> None:
        # Each text with its report, so that no other report gets its id.
        self._cache = Cache[tuple[JobReport, str]](float("inf"), max_keys=MAX_TEXTS)

    def get(self, report: JobReport, name: str, render: Callable[[], str]) -> str:
        """Return a rendering of a report; reports of ended jobs come from the archive each time, and are not cached."""
        if report.record.has_ended:
            return render()
        return self._cache.get((id(report), name), lambda: (report, render()))[1]


KEPT_TIMES = 20
MAX_KEPT_SECONDS = 60.0
MAX_RESULTS = 256
WAIT_SECONDS = 60.0
"""Longer than a query of the archive is allowed to take by default; a page with several that are slow takes longer."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SharedResult(Generic[T]):
    """A result and how old it is."""

    value: T
    age_seconds: float


@dataclass(frozen=True, slots=True)
class _Computed:
    value: Any
    began_at: float
    made_at: float


def _keep_seconds(computed: _Computed) -> float:
    return min(MAX_KEPT_SECONDS, KEPT_TIMES * (computed.made_at - computed.began_at))


class SharedResults:
    """Keep results by key, from any thread; quick ones, which can be requested in numbers, displace no slow one."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self._clock = clock
        self._cache = Cache[_Computed](_keep_seconds, max_keys=MAX_RESULTS, wait_seconds=wait_seconds, clock=clock)

    def get(self, key: Hashable, compute: Callable[[], T]) -> SharedResult[T]:
        """Return the result of a key; compute it unless another thread does so, or did so lately.

        Raises ArchiveError if that one takes too long.
        """

        def read() -> _Computed:
            began_at = self._clock()
            return _Computed(compute(), began_at, self._clock())

        try:
            found = self._cache.get(key, read)
        except WaitTooLong as error:
            raise ArchiveError("the archive took too long to compute sums for another request") from error
        value: T = found.value
        return SharedResult(value, max(0.0, self._clock() - found.made_at))
