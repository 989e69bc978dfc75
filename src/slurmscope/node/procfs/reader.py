# SPDX-License-Identifier: Apache-2.0
"""List and open processes below a configurable procfs root."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from slurmscope.core.errors import SourceError
from slurmscope.node.procfs.process import STAT_LIMIT_BYTES, TEXT_LIMIT_BYTES, Denials, Missing, Process, read_file
from slurmscope.node.procfs.stat import ProcessSample, parse_memory_bytes, parse_uptime_seconds

# Only passed through, never read; a program that we start must not inherit it.
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


SCANS_PER_RECHECK = 8
"""An idle process is read completely once in this many scans."""


class ProcessReader:
    """Open processes by PID. Not thread-safe."""

    def __init__(self, procfs_root: Path) -> None:
        """Open the root; :meth:`close` closes it."""
        self.root = procfs_root
        self.denials = Denials()
        self._scans = 0
        with _raising(procfs_root):
            self._folder = os.open(procfs_root, _FOLDER)

    def close(self) -> None:
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def open(self, pid: int) -> Process | Missing:
        """Open one process; the caller closes it."""
        try:
            return Process(pid, os.open(str(pid), _FOLDER, dir_fd=self._folder), self.denials)
        except OSError as error:
            return self.denials.classify(error, "process")

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
        """Return a sample of each process that exists and is readable.

        ``before`` has the samples of the last scan by PID: an unchanged line is not parsed again.
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
        """Read a process without a descriptor of its folder, which is cheaper; None if the PID may have been reused.

        One that cannot be read this time keeps its last values: it must not count as a new one next time.
        An idle process has not changed its user either; that is checked only now and then.
        """
        name = str(before.pid)
        try:
            text = read_file(name + "/stat", self._folder, STAT_LIMIT_BYTES)
            if text == before.text and (before.pid + self._scans) % SCANS_PER_RECHECK:
                return before
            uid = os.stat(name, dir_fd=self._folder).st_uid
        except OSError as error:
            missing = self.denials.classify(error, "stat")
            return before if missing is Missing.FAULTY else missing
        if uid != before.uid:
            return None
        if text == before.text:
            return before
        sample = self.denials.parse_sample(text, uid, before.pid)
        if sample is Missing.FAULTY:
            return before
        return sample if not isinstance(sample, Missing) and sample.start_ticks == before.start_ticks else None

    def open_stat(self, pid: int) -> int | None:
        """Open the ``stat`` file of a process, which the caller closes; None if that fails."""
        try:
            return os.open(f"{pid}/stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
        except OSError:
            return None

    def process_ids(self) -> list[int]:
        """Return the PIDs of all visible processes, in ascending order."""
        with _raising(self.root):
            names = os.listdir(self.root)  # noqa: PTH208 - a Path for each entry would cost more than the entry
        return sorted(int(name) for name in names if name.isdecimal())

    def hides_processes(self) -> bool:
        """Return whether the kernel hides processes of other users (mount option hidepid)."""
        # Process 1 always exists and is never ours.
        try:
            os.stat("1", dir_fd=self._folder)
        except OSError:
            return True
        return False

    def uptime_seconds(self) -> float:
        """Return the time since the machine started."""
        return parse_uptime_seconds(self._read("uptime"))

    def memory_bytes(self) -> int:
        """Return the memory size of the machine."""
        return parse_memory_bytes(self._read("meminfo"))

    def _read(self, name: str) -> bytes:
        with _raising(self.root / name):
            return read_file(name, self._folder, TEXT_LIMIT_BYTES)


@contextmanager
def _raising(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror}; check that procfs is mounted there") from error
