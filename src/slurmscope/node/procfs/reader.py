# SPDX-License-Identifier: Apache-2.0
"""List and open processes below a configurable procfs root."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from slurmscope.core.errors import SourceError
from slurmscope.node.kernel_files import Denials, HangGuard, Hanging, Missing
from slurmscope.node.procfs.process import STAT_LIMIT_BYTES, TEXT_LIMIT_BYTES, Process, read_file
from slurmscope.node.procfs.stat import ProcessSample, parse_memory_bytes, parse_uptime_seconds

# Only passed through, never read; a program that we start must not inherit it.
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


SCANS_PER_RECHECK = 8
"""An idle process is read completely once in this many scans."""


class ProcessReader:
    """Open processes by PID. Not thread-safe."""

    def __init__(self, procfs_root: Path, guard: HangGuard | None = None, *, most_kept: int = 0) -> None:
        """Open the root; :meth:`close` closes it. Without a guard, a process whose files hang blocks the caller.

        Of so many processes the files may stay open: three descriptors each.
        """
        self.root = procfs_root
        self._room = most_kept
        self.denials = Denials()
        self.guard = guard
        if guard is not None:
            guard.report = lambda pid: self.denials.add_fault("hang", f"process {pid} hangs in the kernel")
        self._scans = 0
        with _raising(procfs_root):
            self._folder = os.open(procfs_root, _FOLDER)

    def close(self) -> None:
        if self.guard is not None:
            self.guard.close()
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def open(self, pid: int) -> Process | Missing:
        """Open one process; the caller closes it."""
        try:
            return Process(pid, os.open(str(pid), _FOLDER, dir_fd=self._folder), self.denials)
        except OSError as error:
            return self.denials.classify(error, "process")

    def keep(self, process: Process) -> bool:
        """Keep the files of a process open; return whether there was room. The caller closes it anyway."""
        if process.is_kept:
            return True
        if self._room <= 0 or not process.keep(self._give_back):
            return False
        self._room -= 1
        return True

    def _give_back(self) -> None:
        self._room += 1

    @contextmanager
    def process(self, pid: int) -> Iterator[Process | Missing]:
        """Open one process for the time of a block."""
        opened = self.open(pid)
        try:
            yield opened
        finally:
            if not isinstance(opened, Missing):
                opened.close()

    def read(
        self, pids: Iterable[int], before: Mapping[int, ProcessSample] | None = None, *, owner: int | None = None
    ) -> list[ProcessSample]:
        """Return a sample of each process that exists and is readable.

        ``before`` has the samples of the last scan by PID: an unchanged line is not parsed again. A process whose files
        hang is left out, or has its last sample where it is known to hang.
        """
        known = before or {}
        self._scans += 1
        if self.guard is None:
            return self._read_each(pids, known, [])
        todo, samples = list(pids), []
        while todo:
            found: list[ProcessSample] = []
            try:
                self.guard.run(partial(self._read_each, todo, known, found, self.guard), owner=owner)
                todo = []
            except Hanging as hanging:
                todo = todo[todo.index(hanging.pid) + 1 :] if hanging.pid in todo else []
            samples += found
        return samples

    def _read_each(
        self,
        pids: Iterable[int],
        known: Mapping[int, ProcessSample],
        samples: list[ProcessSample],
        guard: HangGuard | None = None,
    ) -> list[ProcessSample]:
        for pid in pids:
            last = known.get(pid)
            if guard is not None:
                guard.at(pid)
                if guard.skips(pid):
                    samples += [last] if last is not None else []
                    continue
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
