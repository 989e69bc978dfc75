# SPDX-License-Identifier: Apache-2.0
"""Cache rendered reports of running jobs: several viewers may open the same job, and each page polls.

A new report is another object, and is rendered again. Cached text must not depend on the viewer.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from slurmscope.model.report import JobReport

MAX_REPORTS = 64
"""A large job takes about 300 KB."""


@dataclass(slots=True)
class _Entry:
    # Referenced here so that no other report gets its id.
    report: JobReport
    lock: threading.Lock = field(default_factory=threading.Lock)
    texts: dict[str, str] = field(default_factory=dict)


class RenderingCache:
    """Cache texts by report and name, from any thread; concurrent requests wait for one rendering."""

    def __init__(self, max_reports: int = MAX_REPORTS) -> None:
        self._max_reports = max_reports
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
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

    def _find_entry(self, report: JobReport) -> _Entry:
        with self._lock:
            entry = self._entries.setdefault(id(report), _Entry(report))
            self._entries.move_to_end(id(report))
            while len(self._entries) > self._max_reports:
                self._entries.popitem(last=False)
            return entry
