# SPDX-License-Identifier: Apache-2.0
"""Compute slow results once for all viewers who request them at the same time or soon after.

A result is kept for twenty times as long as it took, and for a minute at most: quick ones are always new, and slow ones
take a twentieth of a core however many people request them. A failure is raised to all who waited for it, and not kept.

A new report is another object, and is rendered again. Cached text must not depend on the viewer.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from slurmscope.core.errors import ArchiveError
from slurmscope.jobs.report import JobReport

MAX_REPORTS = 64
"""A large job takes about 300 KB."""


@dataclass(slots=True)
class _Rendering:
    # Referenced here so that no other report gets its id.
    report: JobReport
    lock: threading.Lock = field(default_factory=threading.Lock)
    texts: dict[str, str] = field(default_factory=dict)


class RenderingCache:
    """Cache texts by report and name, from any thread; concurrent requests wait for one rendering."""

    def __init__(self, max_reports: int = MAX_REPORTS) -> None:
        self._max_reports = max_reports
        self._entries: OrderedDict[int, _Rendering] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, report: JobReport, name: str, render: Callable[[], str]) -> str:
        """Return a rendering of a report; reports of ended jobs come from the archive each time, and are not cached."""
        if report.record.has_ended:
            return render()
        entry = self._find_entry(report)
        with entry.lock:
            if name not in entry.texts:
                entry.texts[name] = render()
            return entry.texts[name]

    def _find_entry(self, report: JobReport) -> _Rendering:
        with self._lock:
            entry = self._entries.setdefault(id(report), _Rendering(report))
            self._entries.move_to_end(id(report))
            while len(self._entries) > self._max_reports:
                self._entries.popitem(last=False)
            return entry


KEPT_TIMES = 20
MAX_KEPT_SECONDS = 60.0
MAX_RESULTS = 256
WAIT_SECONDS = 60.0
"""Longer than a query of the archive is allowed to take by default; a page with several that are slow takes longer."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SharedResult(Generic[T]):
    """Hold a result and how old it is."""

    value: T
    age_seconds: float


@dataclass(slots=True)
class _Entry:
    future: Future[Any] = field(default_factory=Future)
    made_at: float = 0.0
    expires_at: float = float("inf")


class SharedResults:
    """Keep results by key, from any thread."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        max_results: int = MAX_RESULTS,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        """Start with none."""
        self._clock = clock
        self._wait_seconds = wait_seconds
        self._max_results = max_results
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], T]) -> SharedResult[T]:
        """Return the result of a key; compute it unless another thread does so, or did so lately.

        Raises ArchiveError if that one takes too long.
        """
        entry, is_new = self._find_entry(key)
        if is_new:
            self._fill(key, entry, compute)
        if not wait([entry.future], self._wait_seconds).done:
            raise ArchiveError("the archive took too long to compute sums for another request")
        value: T = entry.future.result()
        return SharedResult(value, max(0.0, self._clock() - entry.made_at))

    def _find_entry(self, key: Hashable) -> tuple[_Entry, bool]:
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and self._clock() < entry.expires_at:
                return entry, False
            entry = self._entries[key] = _Entry()
            self._entries.move_to_end(key)
            self._drop_expired()
            return entry, True

    def _drop_expired(self) -> None:
        """Bound the number of results; quick ones, which can be requested in numbers, displace no slow one."""
        now = self._clock()
        for key in [key for key, entry in self._entries.items() if entry.expires_at <= now]:
            del self._entries[key]
        while len(self._entries) > self._max_results:
            self._entries.popitem(last=False)

    def _fill(self, key: Hashable, entry: _Entry, compute: Callable[[], object]) -> None:
        began = self._clock()
        try:
            value = compute()
        except BaseException as error:  # noqa: BLE001 - raised below by all who wait for it
            with self._lock:
                if self._entries.get(key) is entry:
                    del self._entries[key]
            entry.future.set_exception(error)
            return
        entry.made_at = self._clock()
        entry.expires_at = entry.made_at + min(MAX_KEPT_SECONDS, KEPT_TIMES * (entry.made_at - began))
        entry.future.set_result(value)
