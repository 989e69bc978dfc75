# SPDX-License-Identifier: Apache-2.0
"""Collect what one scan reads of the processes of a job, and what the next scan needs of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from slurmscope.node.kernel_files import Missing
from slurmscope.node.procfs.io_totals import StepdIo
from slurmscope.node.procfs.process import IoReading, Process
from slurmscope.node.procfs.process_totals import FileTally, ProcessFiles, ThreadTally
from slurmscope.node.procfs.reader import SCANS_PER_RECHECK
from slurmscope.node.procfs.stat import IoCounts, ProcessSample

# Open files of a process that are cached while it is idle.
_KEPT_TARGETS = 64
_RUNNING = "R"
SCANS_PER_SWITCHES = 4
"""Context switches of a thread that works are read once in this many scans: ``status`` is the slowest of its files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessDetail:
    """Select what is read of each process besides its ``stat`` line.

    Limits are per job: threads whose state is read, and descriptors whose target is.
    """

    io: bool = True
    files: bool = True
    threads: bool = True
    switches: bool = False
    queue: bool = True
    programs: int = 10
    scratch_words: tuple[str, ...] = ("scratch",)
    thread_limit: int = 2000
    target_limit: int = 10_000


class LastScan(NamedTuple):
    """What the next scan needs of the last one, by PID."""

    known: dict[int, ProcessSample]
    io: dict[int, IoReading]
    limits: dict[int, tuple[int, int | None]]
    files: dict[int, ProcessFiles]
    switches: dict[object, tuple[int, int]]
    queue: dict[object, tuple[int, int]]
    stepds: dict[int, StepdIo]
    scans: int = 0


class Scan:
    """Collect one scan of a job; what is denied for one process is not read of the next."""

    def __init__(self, detail: ProcessDetail, last: LastScan, has_time: Callable[[], bool]) -> None:
        self._detail = detail
        self._has_time = has_time
        self.has_time = True
        self._last = last
        self._thread_room = detail.thread_limit
        self.known: dict[int, ProcessSample] = {}
        self.samples: list[ProcessSample] = []
        self.io: dict[int, IoReading] | None = {} if detail.io else None
        self._limits: dict[int, tuple[int, int | None]] = {}
        self._open_files: dict[int, ProcessFiles] = {}
        self.switches: dict[object, tuple[int, int]] = {}
        self.queue: dict[object, tuple[int, int]] = {}
        self._stepds: dict[int, StepdIo] = {}
        self.unsure_stepds: set[int] = set()
        self.threads = ThreadTally()
        self.files = FileTally(detail.scratch_words, detail.target_limit) if detail.files else None

    def to_keep(self) -> LastScan:
        """Return what the next scan needs."""
        threads = (self.switches, self.queue) if self.has_time else (self._last.switches, self._last.queue)
        kept = (self.known, self.io or {}, self._limits, self._open_files, *threads, self._stepds)
        return LastScan(*kept, self._last.scans + 1)

    def measured_files(self) -> FileTally | None:
        """Return the open files; None where there are processes but none could be read."""
        return self.files if self.files and (self.files.processes or not self.samples) else None

    def io_by_age(self) -> list[tuple[ProcessSample, IoCounts]]:
        """Return processes in the order in which they were read, with their I/O."""
        return [(self.known[pid], reading.counts) for pid, reading in (self.io or {}).items()]

    def take(self, process: Process, sample: ProcessSample, *, is_stepd: bool) -> None:
        """Read one process; of slurmstepd only the I/O."""
        self.known[sample.pid] = sample
        if self.io is not None:
            # Of one that was slurmstepd until now, or is now, other counts were taken from the same text.
            is_same_kind = is_stepd == (sample.pid in self._last.stepds)
            before = self._last.io.get(sample.pid) if is_same_kind else None
            reading = process.io(before)
            if reading is Missing.FAULTY and before is not None:
                reading = before
            if is_stepd and not isinstance(reading, Missing):
                reading = self._take_received(process, sample, reading)
            if not isinstance(reading, Missing):
                self.io[sample.pid] = reading
            elif reading is Missing.DENIED and not is_stepd:
                self.io = None
        if is_stepd:
            return
        self.samples.append(sample)
        self.has_time = self.has_time and self._has_time()
        if not self.has_time:
            self.files = None
            self.threads.add(sample, [])
            return
        is_idle = self._is_idle(sample)
        threads = self._take_threads(process, sample)
        for thread_id, state in threads or [(sample.pid, sample.state)]:
            if self._detail.switches:
                self._take_switches(process, sample, thread_id, is_idle=is_idle)
            if self._detail.queue:
                self._take_queue(process, sample, thread_id, state)
        if self.files is not None and sample.state != "Z":
            self._take_files(process, sample, self.files, is_idle=is_idle)

    def _take_received(self, process: Process, sample: ProcessSample, reading: IoReading) -> IoReading:
        """Return the I/O of a slurmstepd without its own."""
        known = self._last.known.get(sample.pid)
        is_same = known is not None and known.start_ticks == sample.start_ticks
        stepd = self._last.stepds.get(sample.pid) if is_same else None
        self._stepds[sample.pid] = stepd = stepd or StepdIo()
        if reading is self._last.io.get(sample.pid):
            return reading
        # Threads first: what they do until the process is read may count for the job, but is never missing from it.
        threads = process.thread_io()
        again = process.io()
        text, total = reading if isinstance(again, Missing) else again
        received = IoReading(text, stepd.received(total, threads))
        if stepd.has_lost_thread:
            self.unsure_stepds.add(sample.pid)
        return received

    def _is_idle(self, sample: ProcessSample) -> bool:
        """Return whether the process was idle since the last scan; False now and then in any case.

        It may have opened a file without reading, without a fault and within a clock tick.
        """
        pid = sample.pid
        if sample is not self._last.known.get(pid) or (pid + self._last.scans) % SCANS_PER_RECHECK == 0:
            return False
        return self.io is not None and self.io.get(pid) is self._last.io.get(pid)

    def _take_threads(self, process: Process, sample: ProcessSample) -> list[tuple[int, str]]:
        threads = None
        if sample.threads > 1 and (self._detail.threads or self._detail.switches):
            found = process.threads(self._thread_room) if self._thread_room > 0 else []
            threads = [] if isinstance(found, Missing) else found
            self._thread_room -= len(threads)
        self.threads.add(sample, threads)
        return [(thread.thread_id, thread.state) for thread in threads or ()]

    def _take_switches(self, process: Process, sample: ProcessSample, thread_id: int, *, is_idle: bool) -> None:
        """Read the context switches of a thread, which is new or was not read for some scans: that takes long."""
        key = (sample.pid, sample.start_ticks, thread_id)
        before = self._last.switches.get(key)
        is_due = not is_idle and (thread_id + self._last.scans) % SCANS_PER_SWITCHES == 0
        found = (None if is_due else before) or process.switches(thread_id)
        if found is Missing.FAULTY and before is not None:
            found = before
        if not isinstance(found, Missing):
            self.switches[key] = found

    def _take_queue(self, process: Process, sample: ProcessSample, thread_id: int, state: str) -> None:
        """Read for how long a thread waited for a core, if it runs or waits now, or is new.

        The others are read when they run again. One that waits much is seen waiting, sooner or later.
        """
        key = (sample.pid, sample.start_ticks, thread_id)
        before = self._last.queue.get(key)
        found = process.queue_ns(thread_id) if state == _RUNNING or before is None else before
        if isinstance(found, Missing):
            found = before or found
        if not isinstance(found, Missing):
            self.queue[key] = found

    def _take_files(self, process: Process, sample: ProcessSample, files: FileTally, *, is_idle: bool) -> None:
        mine = self._last.files.get(sample.pid)
        if mine is not None and not is_idle and not self._has_same_files(process, mine):
            mine = None
        if mine is None:
            mine = ProcessFiles(files.scratch_words)
            found = process.open_files(files.room, mine.take, may_list=files.name_room > 0)
            if isinstance(found, Missing):
                if found is Missing.DENIED:
                    self.files = None
                return
            mine.number, mine.has_targets = found
        number = mine.number or 0
        if number <= _KEPT_TARGETS:
            self._open_files[sample.pid] = mine
        # The limit is read once per process: it seldom changes, and then near its end.
        start_ticks, limit = self._last.limits.get(sample.pid, (-1, None))
        if start_ticks != sample.start_ticks or (limit is not None and 2 * number >= limit):
            answer = process.file_limit()
            limit = None if isinstance(answer, Missing) else answer
        self._limits[sample.pid] = (sample.start_ticks, limit)
        files.add(mine, limit)

    def _has_same_files(self, process: Process, mine: ProcessFiles) -> bool:
        """Return whether a process has as many open files as before; which they are is read only now and then."""
        is_due = (process.pid + self._last.scans) % SCANS_PER_RECHECK == 0
        return not is_due and bool(mine.number) and process.number_of_files() == mine.number
