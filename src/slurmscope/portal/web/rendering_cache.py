# SPDX-License-Identifier: Apache-2.0
"""Keep what was rendered of jobs that run: many people look at the same report, and each page asks again and again.

A report that is made anew is another object, and is rendered anew. What is kept must not depend on who looks.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from slurmscope.model.report import JobReport

KEPT_REPORTS = 64
"""Some 300 KB each, of a large job."""


@dataclass(slots=True)
class _Kept:
    # Held so that no other report gets its id.
    report: JobReport
    lock: threading.Lock = field(default_factory=threading.Lock)
    texts: dict[str, str] = field(default_factory=dict)


class KeptRenderings:
    """Give texts by report and name, from any thread; each one is rendered once while others wait for it."""

    def __init__(self, size: int = KEPT_REPORTS) -> None:
        self._size = size
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, report: JobReport, name: str, render: Callable[[], str]) -> str:
        """Return a rendering of a report; one whose job has ended is read from the archive each time, and not kept."""
        if report.record.has_ended:
            return render()
        kept = self._place(report)
        with kept.lock:
            if name not in kept.texts:
                kept.texts[name] = render()
            return kept.texts[name]

    def _place(self, report: JobReport) -> _Kept:
        with self._lock:
            kept = self._kept.setdefault(id(report), _Kept(report))
            self._kept.move_to_end(id(report))
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
            return kept
