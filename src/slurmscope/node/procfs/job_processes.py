# SPDX-License-Identifier: Apache-2.0
"""Track the processes of one job from scan to scan."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from slurmscope.node.job_use import IoUse, ProcessUse
from slurmscope.node.procfs.io_totals import IoTotals, StepdIo
from slurmscope.node.procfs.process import IoReading, Missing, Process
from slurmscope.node.procfs.process_totals import (
    FileTally,
    GrowthTotals,
    ProcessFiles,
    ProgramTotals,
    ThreadTally,
    bounded,
    bounded_most,
)
from slurmscope.node.procfs.reader import SCANS_PER_RECHECK, ProcessReader
from slurmscope.node.procfs.stat import IoCounts, ProcessSample

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

Item = TypeVar("Item")

# Open files of a process that are cached while it is idle.
_KEPT_TARGETS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessDetail:
    """Select what is read of each process besides its ``stat`` line.

    Limits are per job: threads whose state is read, and descriptors whose target is.
    """

    io: bool = True
    files: bool = True
    threads: bool = True
    switches: bool = False
    programs: int = 10
    scratch_words: tuple[str, ...] = ("scratch",)
    thread_limit: int = 2000
    target_limit: int = 10_000


class JobProcesses:
    """Keep the totals of the processes of one job, ended ones included, as long as the job runs."""

    def __init__(
        self,
        reader: ProcessReader,
        detail: ProcessDetail | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.was_cut = False
        self._clock = clock
        self._use: ProcessUse | None = None
        self._reader = reader
        self._detail = detail or ProcessDetail()
        self._last_scan = _LastScan({}, {}, {}, {}, {}, {})
        self._io = IoTotals()
        self._has_io = self._has_switches = False
        self._programs = ProgramTotals(self._detail.programs)
        self._switches = GrowthTotals()

    def read(
        self,
        user_pids: Collection[int],
        stepd_pids: Collection[int] = (),
        *,
        list_again: Callable[[], Collection[int]] | None = None,
        seconds: float = math.inf,
    ) -> ProcessUse | None:
        """Read all processes of the job; None when it has some but we may not read them.

        A job that takes longer than ``seconds`` keeps its last values, and ``was_cut`` is set. After half of them, its
        files, threads and context switches are not read any more.

        ``stepd_pids`` are Slurm's own: they are not counted, but they have the I/O of tasks that ended.
        ``list_again`` lists the processes of the job once more: the PID of one that ended may meanwhile belong to a
        process of another job, so only processes that are on the second list too are added.
        """
        denied_before, now = self._denied(), self._clock()
        until = now + seconds
        scan = _Scan(self._detail, self._last_scan, lambda: self._clock() < now + seconds / 2)
        newcomers = {*user_pids, *stepd_pids}
        for before in self._in_time(sorted(self._last_scan.known.values(), key=_age), until):
            if self._take(scan, before, stepd_pids, is_listed=before.pid in newcomers):
                newcomers.discard(before.pid)
        for first in self._in_time(self._admit(self._in_time(sorted(newcomers), until), list_again), until):
            self._take(scan, first, stepd_pids, is_listed=True)
        self.was_cut = self._clock() >= until
        if self.was_cut:
            # A part of the processes would be no total: those that were not read would count as ended.
            return self._use
        self._last_scan = scan.to_keep()
        is_hidden = user_pids and not scan.samples and self._reader.hides_processes()
        self._use = None if is_hidden or self._denied() > denied_before else self._sum_up(scan, stepd_pids)
        return self._use

    def _in_time(self, items: Iterable[Item], until: float) -> Iterator[Item]:
        return itertools.takewhile(lambda _: self._clock() < until, items)

    def _denied(self) -> int:
        counts = self._reader.denials.counts
        return counts["process"] + counts["stat"]

    def _admit(self, newcomers: Iterable[int], list_again: Callable[[], Collection[int]] | None) -> list[ProcessSample]:
        samples = self._reader.read(newcomers)
        if samples and list_again is not None:
            members = list_again()
            samples = [sample for sample in samples if sample.pid in members]
        return sorted(samples, key=_age)

    def _take(self, scan: _Scan, before: ProcessSample, stepd_pids: Collection[int], *, is_listed: bool) -> bool:
        """Read a process again; return whether it is still the same and belongs to the job.

        One that is no longer listed may be a zombie: the kernel does not list those, but their counters can still
        be read, and their parent may receive them much later.
        """
        opened = self._reader.open(before.pid)
        if isinstance(opened, Missing):
            return False
        try:
            sample = opened.sample(before)
            if sample is Missing.FAULTY:
                # Without it, the process would count as a new one next time, with all that it used before.
                sample = before
            if isinstance(sample, Missing) or sample.start_ticks != before.start_ticks:
                return False
            if not is_listed and sample.state != "Z":
                return False
            scan.take(opened, sample, is_stepd=sample.pid in stepd_pids)
            return True
        finally:
            opened.close()

    def _sum_up(self, scan: _Scan, stepd_pids: Collection[int]) -> ProcessUse:
        self._programs.update(scan.samples)
        io = None if scan.io is None else self._io.update(scan.io_by_age(), stepd_pids, scan.unsure_stepds)
        self._has_io |= bool(scan.io)
        if self._detail.switches and scan.has_time:
            self._switches.update(scan.switches)
        # A job whose processes show none has not been measured.
        self._has_switches |= bool(scan.switches)
        voluntary, involuntary = self._switches.totals if self._has_switches else (None, None)
        programs, files = self._programs, scan.measured_files()
        threads_of = bounded(scan.threads.of_program, self._detail.programs)
        return ProcessUse(
            processes=sum(sample.state != "Z" for sample in scan.samples),
            threads_in=dict(scan.threads.in_state),
            resident_bytes=sum(sample.resident_pages for sample in scan.samples) * PAGE_BYTES,
            cpu_seconds=programs.cpu_ticks / TICKS_PER_SECOND,
            minor_faults=programs.minor_faults,
            major_faults=programs.major_faults,
            voluntary_switches=voluntary,
            involuntary_switches=involuntary,
            threads_of=threads_of,
            most_threads_of=bounded_most(scan.threads.most_of_program, threads_of),
            cpu_seconds_of={name: ticks / TICKS_PER_SECOND for name, ticks in programs.cpu_ticks_by_program().items()},
            threads_on_core=dict(scan.threads.on_core),
            open_files=files.open_files if files else None,
            distinct_files=files.distinct_files if files else None,
            worst_file_ratio=files.worst_ratio if files else None,
            uses_scratch=files.uses_scratch if files else None,
            io=IoUse(**io._asdict()) if io is not None and self._has_io else None,
        )


def _age(sample: ProcessSample) -> tuple[int, int]:
    """Sort parents before their children, as IoTotals needs it."""
    return sample.start_ticks, sample.pid


class _LastScan(NamedTuple):
    """What the next scan needs of the last one, by PID."""

    known: dict[int, ProcessSample]
    io: dict[int, IoReading]
    limits: dict[int, tuple[int, int | None]]
    files: dict[int, ProcessFiles]
    switches: dict[object, tuple[int, int]]
    stepds: dict[int, StepdIo]
    scans: int = 0


class _Scan:
    """Collect one scan of a job; what is denied for one process is not read of the next."""

    def __init__(self, detail: ProcessDetail, last: _LastScan, has_time: Callable[[], bool]) -> None:
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
        self._stepds: dict[int, StepdIo] = {}
        self.unsure_stepds: set[int] = set()
        self.threads = ThreadTally()
        self.files = FileTally(detail.scratch_words, detail.target_limit) if detail.files else None

    def to_keep(self) -> _LastScan:
        """Return what the next scan needs."""
        switches = self.switches if self.has_time else self._last.switches
        kept = (self.known, self.io or {}, self._limits, self._open_files, switches, self._stepds)
        return _LastScan(*kept, self._last.scans + 1)

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
        if self._detail.switches:
            for thread_id in threads or (sample.pid,):
                self._take_switches(process, sample, thread_id, is_idle=is_idle)
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

    def _take_threads(self, process: Process, sample: ProcessSample) -> list[int]:
        threads = None
        if sample.threads > 1 and (self._detail.threads or self._detail.switches):
            found = process.threads(self._thread_room) if self._thread_room > 0 else []
            threads = [] if isinstance(found, Missing) else found
            self._thread_room -= len(threads)
        self.threads.add(sample, threads)
        return [thread.thread_id for thread in threads or ()]

    def _take_switches(self, process: Process, sample: ProcessSample, thread_id: int, *, is_idle: bool) -> None:
        key = (sample.pid, sample.start_ticks, thread_id)
        before = self._last.switches.get(key)
        found = (before if is_idle else None) or process.switches(thread_id)
        if found is Missing.FAULTY and before is not None:
            found = before
        if not isinstance(found, Missing):
            self.switches[key] = found

    def _take_files(self, process: Process, sample: ProcessSample, files: FileTally, *, is_idle: bool) -> None:
        mine = self._last.files.get(sample.pid) if is_idle else None
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
