# SPDX-License-Identifier: Apache-2.0
"""Check often, and at next to no cost, whether processes have done anything."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from slurmscope.sources.procfs.process import STAT_LIMIT_BYTES
from slurmscope.sources.procfs.reader import ProcessReader


class StatWatch:
    """Compare the ``stat`` lines of processes with earlier ones; the files stay open. Not thread-safe."""

    def __init__(self, reader: ProcessReader) -> None:
        """Watch no process; :meth:`close` closes all files."""
        self._reader = reader
        self._files: dict[int, int] = {}
        self._lines: dict[int, bytes] = {}

    def read(self) -> dict[int, bytes]:
        """Return the line of each watched process by PID; empty if it has ended."""
        return {pid: _read(file) for pid, file in self._files.items()}

    def is_unchanged(self) -> bool:
        """Return whether the lines are those that :meth:`watch` was given."""
        return self.read() == self._lines

    def watch(self, pids: Collection[int], lines: Mapping[int, bytes]) -> None:
        """Watch these processes and no others, from these lines on; one without a line counts as changed."""
        for pid in [pid for pid in self._files if pid not in pids or not lines.get(pid)]:
            os.close(self._files.pop(pid))
        for pid in set(pids) - self._files.keys():
            file = self._reader.open_stat(pid)
            if file is not None:
                self._files[pid] = file
        self._lines = {pid: lines.get(pid, b"") for pid in pids}

    def close(self) -> None:
        """Close all files; closing twice is harmless."""
        self.watch((), {})


def _read(file: int) -> bytes:
    try:
        return os.pread(file, STAT_LIMIT_BYTES, 0)
    except OSError:  # it has ended
        return b""
