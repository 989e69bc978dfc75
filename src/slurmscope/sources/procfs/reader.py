# SPDX-License-Identifier: Apache-2.0
"""Find processes below a procfs root that can be moved."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from slurmscope.errors import SourceError
from slurmscope.sources.procfs.process import (
    STAT_LIMIT_BYTES,
    TEXT_LIMIT_BYTES,
    Denials,
    Missing,
    Process,
    read_file,
)
from slurmscope.sources.procfs.stat import ProcessSample, parse_memory_bytes, parse_stat, parse_uptime_seconds

# Only passed through, never read; a program that we start must not inherit it.
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


SCANS_PER_LOOK = 8
"""How often a process that does nothing is looked at closely all the same."""


class ProcessReader:
    """Open processes by their number. Not thread-safe: one thread reads at a time."""

    def __init__(self, procfs_root: Path) -> None:
        """Open the root; :meth:`close` closes it."""
        self.root = procfs_root
        self.denials = Denials()
        self._scans = 0
        with _raising(procfs_root):
            self._folder = os.open(procfs_root, _FOLDER)

    def close(self) -> None:
        """Close the root."""
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def open(self, pid: int) -> Process | Missing:
        """Open one process; the caller closes it."""
        try:
            return Process(pid, os.open(str(pid), _FOLDER, dir_fd=self._folder), self.denials)
        except OSError as error:
            return self.denials.judge(error, "process")

    @contextmanager
    def process(self, pid: int) -> Iterator[Process | Missing]:
        """Open one process for the time of a block."""
        opened = self.open(pid)
        try:
            yield opened
        finally:
            if not isinstance(opened, Missing):
                opened.close()

    def read(self, pids: Iterable[int], before: Mapping[int, ProcessSample] | None = None) -> list[ProcessSample]:
        """Return a sample of each process that is there and may be read.

        ``before`` has the samples of the last scan by number: whoever did not move costs no parsing.
        """
        known = before or {}
        self._scans += 1
        samples = []
        for pid in pids:
            last = known.get(pid)
            sample = self._read_again(last) if last is not None else None
            if sample is None:
                sample = self._read_first(pid)
            if not isinstance(sample, Missing):
                samples.append(sample)
        return samples

    def _read_first(self, pid: int) -> ProcessSample | Missing:
        opened = self.open(pid)
        if isinstance(opened, Missing):
            return opened
        try:
            return opened.sample()
        finally:
            opened.close()

    def _read_again(self, before: ProcessSample) -> ProcessSample | Missing | None:
        """Read a process without a descriptor of its folder, which is cheaper; None if it may be another one now.

        Who did not move has not become another user either; now and then that is looked at all the same.
        """
        name = str(before.pid)
        try:
            text = read_file(name + "/stat", self._folder, STAT_LIMIT_BYTES)
            if text == before.text and (before.pid + self._scans) % SCANS_PER_LOOK:
                return before
            uid = os.stat(name, dir_fd=self._folder).st_uid
        except OSError as error:
            return self.denials.judge(error, "stat")
        if uid != before.uid:
            return None
        if text == before.text:
            return before
        sample = parse_stat(text, uid) if text else None
        return sample if sample is not None and sample.start_ticks == before.start_ticks else None

    def process_ids(self) -> list[int]:
        """Return the numbers of all processes that the kernel shows us, in rising order."""
        with _raising(self.root):
            names = os.listdir(self.root)  # noqa: PTH208 - a Path for each entry would cost more than the entry
        return sorted(int(name) for name in names if name.isdecimal())

    def hides_processes(self) -> bool:
        """Tell whether the kernel hides processes of other users from us (the mount option hidepid)."""
        # There is always a first process, and it is never ours.
        try:
            os.stat("1", dir_fd=self._folder)
        except OSError:
            return True
        return False

    def uptime_seconds(self) -> float:
        """Read the time since the machine started."""
        return parse_uptime_seconds(self._read("uptime"))

    def memory_bytes(self) -> int:
        """Read the size of the machine's memory."""
        return parse_memory_bytes(self._read("meminfo"))

    def _read(self, name: str) -> bytes:
        with _raising(self.root / name):
            return read_file(name, self._folder, TEXT_LIMIT_BYTES)


@contextmanager
def _raising(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}; is procfs mounted there?") from error
