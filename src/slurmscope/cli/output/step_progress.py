# SPDX-License-Identifier: Apache-2.0
"""Print the steps of a long task, and how long the current one has run."""

from __future__ import annotations

import contextlib
import threading
import time
from types import TracebackType
from typing import Self

from slurmscope.cli.output.terminal import write_text
from slurmscope.figures import format_seconds
from slurmscope.log import escape

INTERVAL_SECONDS = 10.0


class StepProgress:
    """Print a line when a step begins, and every ten seconds how long it has run."""

    def __init__(self) -> None:
        """Start the clock."""
        self._began = self._step_began = time.monotonic()
        self._step = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def seconds(self) -> float:
        """Return how long the task has taken so far."""
        return time.monotonic() - self._began

    def show(self, number: int, count: int, title: str) -> None:
        """Print a step that begins."""
        self._step, self._step_began = f"{number}/{count}", time.monotonic()
        write_text(f"{self._step} {escape(title)}")

    def _repeat(self) -> None:
        # The task itself notices that the output was closed.
        with contextlib.suppress(OSError, ValueError):
            while not self._ended.wait(INTERVAL_SECONDS):
                if self._step:
                    write_text(f"{self._step} has run for {format_seconds(time.monotonic() - self._step_began)}")
