# SPDX-License-Identifier: Apache-2.0
"""Show the current use of a command in one line of the terminal."""

from __future__ import annotations

import contextlib
from typing import TextIO

from slurmscope.cli.output.terminal import page_width
from slurmscope.figures import format_bytes, format_some
from slurmscope.model.traced_run import TreeSample
from slurmscope.reports.columns import cut
from slurmscope.reports.formatting import format_elapsed

EARLIEST_SECONDS = 1.0
_CLEAR = "\r\x1b[K"


class LiveLine:
    """Rewrite one line of a terminal with each sample, at most once a second."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._first_seconds = 0.0
        self._before: TreeSample | None = None

    def show(self, sample: TreeSample) -> None:
        """Show a sample; what the command writes to the terminal appears after the line."""
        before = self._before
        if before is None:
            self._first_seconds, self._before = sample.time_seconds, sample
        elif sample.time_seconds - before.time_seconds >= EARLIEST_SECONDS:
            self._before = sample
            self._write(_CLEAR + cut(describe(sample, before, self._first_seconds), page_width(self._stream) - 1))

    def clear(self) -> None:
        """Remove the line."""
        self._write(_CLEAR)

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


def describe(sample: TreeSample, before: TreeSample, start_seconds: float) -> str:
    """Format the use since the sample before."""
    cores = (sample.cpu_seconds - before.cpu_seconds) / (sample.time_seconds - before.time_seconds)
    parts = [
        format_elapsed(sample.time_seconds - start_seconds),
        f"{format_some(round(max(0.0, cores), 2), 'core')} busy",
        f"{format_bytes(sample.resident_bytes)} of memory",
        format_some(sample.processes, "process", "processes"),
        format_some(sample.threads, "thread"),
    ]
    return "  ".join(parts)
