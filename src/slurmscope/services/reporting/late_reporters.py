# SPDX-License-Identifier: Apache-2.0
"""Notice that jobs are archived late, in a portal that is not the reporter itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from slurmscope.errors import ArchiveError
from slurmscope.services.reporting.archiving.settings import ReporterSettings
from slurmscope.services.reporting.checks import ListedCheckpoints, check_progress, read_progress
from slurmscope.units import DAY_SECONDS

KEPT_SECONDS = 30.0
GONE_SECONDS = 7 * DAY_SECONDS


class LateReporters:
    """Read how far the reporters of an archive are, from any thread, at most once in half a minute."""

    def __init__(
        self,
        checkpoints: ListedCheckpoints,
        settings: ReporterSettings,
        *,
        wall_clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take where progress is stored; nothing is read yet."""
        self._checkpoints = checkpoints
        self._settings = settings
        self._wall_clock = wall_clock
        self._monotonic = monotonic
        self._due_seconds = float("-inf")
        self._problem = ""

    def find_problem(self) -> str:
        """Return which cluster is late; empty if none is, or if that is not known."""
        if self._monotonic() >= self._due_seconds:
            self._due_seconds = self._monotonic() + KEPT_SECONDS
            try:
                self._problem = "; ".join(self._find_late())
            except ArchiveError:  # pages say so themselves
                self._problem = ""
        return self._problem

    def _find_late(self) -> Iterator[str]:
        now = self._wall_clock()
        progress = {name: until for name, until in read_progress(self._checkpoints, ()).items() if until is not None}
        newest = min(now, max(progress.values(), default=0))
        for name, read_until in progress.items():
            check = check_progress(read_until, now, self._settings)
            # A cluster that was not read for a week, while another one was, is assumed to no longer exist.
            if newest - read_until < GONE_SECONDS and not check.is_good:
                yield f"{name}: {check.message}" if name else check.message
