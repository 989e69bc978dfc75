# SPDX-License-Identifier: Apache-2.0
"""Count every ended job once, over all readings of accounting and across restarts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from slurmscope.errors import CommandTimedOut, MalformedAnswer
from slurmscope.log import fields
from slurmscope.model.completions import Completions
from slurmscope.services.cluster.completions_file import CompletionsFile
from slurmscope.services.cluster.completions_state import (
    LONGEST_WINDOW_SECONDS,
    CompletionsState,
    advance,
    begin,
    is_ahead,
    next_window,
    reset_mark,
)
from slurmscope.sources.accounting import sacct_ended as sacct
from slurmscope.sources.slurm.commands import RunCommand, random_separator

logger = logging.getLogger(__name__)

SHORTEST_WINDOW_SECONDS = 60
"""Each reading that takes too long halves the next window, down to this."""
UNFINISHED_SECONDS = 300
"""How long ago a job without partition must have ended to be counted all the same."""


class CompletionsTracker:
    """Keep the sums over all ended jobs; for one thread at a time.

    Without a file, counts start at 0 after a restart. With one, the sums, the mark and the jobs already counted are
    saved together after each reading: after a restart, or a kill at any moment, the sums continue and the time in
    between is caught up from accounting.
    """

    def __init__(
        self,
        *,
        wall_clock: Callable[[], float],
        state_file: Path | None = None,
        look_back_seconds: float = 0.0,
        new_separator: Callable[[], str] = random_separator,
    ) -> None:
        """Continue from the file, or start now, ``look_back_seconds`` earlier if there is no saved state."""
        self._wall_clock = wall_clock
        self._new_separator = new_separator
        self._window_seconds = LONGEST_WINDOW_SECONDS
        self._file = CompletionsFile(state_file) if state_file else None
        saved = self._file.load() if self._file else None
        self._state: CompletionsState = saved or begin(int(wall_clock() - look_back_seconds))

    def update(self, run: RunCommand) -> Completions:
        """Read once and return the new sums; if ``run`` raises, the state stays unchanged and nothing is lost."""
        now = int(self._wall_clock())
        if is_ahead(self._state, now):
            logger.warning("the clock was set back; counting ended jobs from now on")
            self._state = reset_mark(self._state, now)
        start, end = next_window(self._state, now, self._window_seconds)
        separator = self._new_separator()
        try:
            output = run(sacct.COMMAND, sacct.arguments(start, end, separator))
            jobs, unreadable_rows = sacct.parse_ended_jobs(output, separator)
        except (CommandTimedOut, MalformedAnswer):
            self._window_seconds = max(self._window_seconds // 2, SHORTEST_WINDOW_SECONDS)
            logger.info("reading ended jobs in smaller windows", extra=fields(window_seconds=self._window_seconds))
            raise
        self._window_seconds = min(self._window_seconds * 2, LONGEST_WINDOW_SECONDS)
        # Accounting may briefly list a job without its partition; a later reading counts it.
        known = [job for job in jobs if job.partition or job.end_time < now - UNFINISHED_SECONDS]
        state = advance(self._state, known, until=end, now=now)
        self._state = replace(state, completions=replace(state.completions, unreadable_rows=unreadable_rows))
        if self._file:
            self._file.save(self._state)
        return self._state.completions
