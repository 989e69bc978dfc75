# SPDX-License-Identifier: Apache-2.0
"""Track the processes of one job from scan to scan.

Those that are stopped, or wait for a disk, are listed: one stopped task of a parallel job keeps all others waiting,
which then look busy, since most of them poll for messages.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from slurmscope.node.job_use import HeldProcess, IoUse, ProcessUse
from slurmscope.node.kernel_files import Missing
from slurmscope.node.procfs.io_totals import IoTotals
from slurmscope.node.procfs.job_scan import LastScan, ProcessDetail, Scan
from slurmscope.node.procfs.process import Process
from slurmscope.node.procfs.process_totals import GrowthTotals, NewNames, ProgramTotals, Totals, bounded, bounded_most
from slurmscope.node.procfs.reader import SCANS_PER_RECHECK, ProcessReader
from slurmscope.node.procfs.stat import MOST_DIGITS, NO_IO, STATES, IoCounts, ProcessSample, has_terminal

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
NANOSECONDS = 1_000_000_000

Item = TypeVar("Item")

_SWITCHES = ("voluntary_switches", "involuntary_switches")
_QUEUE = ("ran_ns", "queued_ns")


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
        self.last: ProcessUse | None = None
        self._clock = clock
        self._reader = reader
        self._detail = detail or ProcessDetail()
        self._last_scan = LastScan({}, {}, {}, {}, {}, {}, {})
        self._io = IoTotals()
        self._has_io = self._has_switches = self._has_queue = False
        self._programs = ProgramTotals(self._detail.programs)
        self._names = NewNames(clock)
        self._switches = GrowthTotals()
        self._queue = GrowthTotals()
        self._held = HeldProcesses(reader, clock)
        self._opened: dict[int, Process] = {}
        self._totals: Totals | None = None
        self._cpu_seconds: float | None = None

    def release(self) -> None:
        """Close all descriptors; they are opened again when they are needed."""
        while self._opened:
            self._opened.popitem()[1].close()

    def keep(self) -> Totals:
        """Return what a new agent needs to continue the totals; nothing before the first scan."""
        if self._totals is None and self._last_scan.scans:
            self._totals = self._find_totals()
        return self._totals or {}

    def _find_totals(self) -> Totals:
        last = self._last_scan
        forgotten = IoCounts(*map(sum, zip(NO_IO, *(stepd.ended for stepd in last.stepds.values()), strict=True)))
        io = zip(IoCounts._fields, self._io.keep(forgotten), strict=True) if self._has_io else ()
        switches = zip(_SWITCHES, self._switches.keep(), strict=True) if self._has_switches else ()
        queue = zip(_QUEUE, self._queue.keep(), strict=True) if self._has_queue else ()
        return {**self._programs.keep(last.known.values()), **dict(io), **dict(switches), **dict(queue)}

    def resume(self, kept: Totals) -> None:
        """Continue the totals of an agent that ran before."""
        self._programs.resume(kept)
        if all(name in kept for name in IoCounts._fields):
            self._io.resume([kept[name] for name in IoCounts._fields])
        if all(name in kept for name in _SWITCHES):
            self._switches.resume((kept[_SWITCHES[0]], kept[_SWITCHES[1]]))
        if all(name in kept for name in _QUEUE):
            self._queue.resume((kept[_QUEUE[0]], kept[_QUEUE[1]]))

    def oldest(self, number: int) -> list[tuple[int, int]]:
        """Return PID and start time of the processes of the last scan that began first."""
        return [
            (sample.pid, sample.start_ticks) for sample in sorted(self._last_scan.known.values(), key=_age)[:number]
        ]

    def read(
        self,
        user_pids: Collection[int],
        stepd_pids: Collection[int] = (),
        *,
        list_again: Callable[[], Collection[int]] | None = None,
        seconds: float = math.inf,
        cpu_seconds: float | None = None,
    ) -> ProcessUse | None:
        """Read all processes of the job; None when it has some but we may not read them.

        ``cpu_seconds`` is the CPU time of its cgroup, exact, read before; see :meth:`has_slept`.

        A job that takes longer than ``seconds`` keeps its last values, and ``was_cut`` is set. After half of them, its
        files, threads and context switches are not read any more.

        ``stepd_pids`` are Slurm's own: they are not counted, but they have the I/O of tasks that ended.
        ``list_again`` lists the processes of the job once more: the PID of one that ended may meanwhile belong to a
        process of another job, so only processes that are on the second list too are added.
        """
        self._cpu_seconds = None  # until everything is read: that may hang, or take too long
        self._totals = None
        denied_before, now = self._denied(), self._clock()
        until = now + seconds
        scan = Scan(self._detail, self._last_scan, lambda: self._clock() < now + seconds / 2)
        newcomers = {*user_pids, *stepd_pids}
        for before in self._in_time(sorted(self._last_scan.known.values(), key=_age), until):
            if self._take(scan, before, stepd_pids, is_listed=before.pid in newcomers):
                newcomers.discard(before.pid)
        for first in self._in_time(self._admit(self._in_time(sorted(newcomers), until), list_again), until):
            self._take(scan, first, stepd_pids, is_listed=True)
        self.was_cut = self._clock() >= until
        if self.was_cut:
            # A part of the processes would be no total: those that were not read would count as ended.
            return self.last
        self._last_scan, self._cpu_seconds = scan.to_keep(), cpu_seconds if scan.has_time else None
        for pid in self._opened.keys() - scan.known.keys():
            self._opened.pop(pid).close()
        is_hidden = user_pids and not scan.samples and self._reader.hides_processes()
        self.last = None if is_hidden or self._denied() > denied_before else self._sum_up(scan, stepd_pids)
        return self.last

    def has_slept(self, cpu_seconds: float | None) -> bool:
        """Return whether the CPU time of the job is that of the last scan: no process ran, started or ended since.

        Now and then the answer is no in any case: the kernel may take memory from a process that sleeps.
        """
        last = self._last_scan
        if cpu_seconds is None or cpu_seconds != self._cpu_seconds or self.last is None or self._io.is_waiting:
            return False
        return (min(last.known, default=0) + last.scans) % SCANS_PER_RECHECK != 0

    def go_on_sleeping(self) -> ProcessUse | None:
        """Return the values of the last scan for a job that has slept; only time has passed for held processes."""
        last = self._last_scan
        self._last_scan = last._replace(scans=last.scans + 1)
        self.was_cut = False
        if self.last is not None and any(sample.state in _HELD for sample in last.known.values()):
            samples = (sample for pid, sample in last.known.items() if pid not in last.stepds)
            held_processes, held = self._held.update(samples)
            self.last = replace(self.last, held_processes=held_processes, held=held)
        return self.last

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

    def _take(self, scan: Scan, before: ProcessSample, stepd_pids: Collection[int], *, is_listed: bool) -> bool:
        """Read a process again; return whether it is still the same and belongs to the job.

        One that is no longer listed may be a zombie: the kernel does not list those, but their counters can still
        be read, and their parent may receive them much later.
        """
        if self._reader.guard is not None:
            self._reader.guard.at(before.pid)
        opened = self._opened.pop(before.pid, None) or self._reader.open(before.pid)
        if isinstance(opened, Missing):
            return False
        is_kept = False
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
            is_kept = self._reader.keep(opened)
            return True
        finally:
            if is_kept:
                self._opened[before.pid] = opened
            else:
                opened.close()

    def _sum_up(self, scan: Scan, stepd_pids: Collection[int]) -> ProcessUse:
        self._programs.update(scan.samples)
        io = None if scan.io is None else self._io.update(scan.io_by_age(), stepd_pids, scan.unsure_stepds)
        self._has_io |= bool(scan.io)
        if self._detail.switches and scan.has_time:
            self._switches.update(scan.switches)
        # A job whose processes show none has not been measured.
        self._has_switches |= bool(scan.switches)
        voluntary, involuntary = self._switches.totals if self._has_switches else (None, None)
        if self._detail.queue and scan.has_time:
            self._queue.update(scan.queue)
        self._has_queue |= bool(scan.queue)
        programs, files = self._programs, scan.measured_files()
        threads_of = bounded(scan.threads.of_program, self._detail.programs, self._names)
        held_processes, held = self._held.update(scan.samples)
        return ProcessUse(
            processes=sum(sample.state != "Z" for sample in scan.samples),
            threads_in=dict(scan.threads.in_state),
            resident_bytes=sum(sample.resident_pages for sample in scan.samples) * PAGE_BYTES,
            cpu_seconds=programs.cpu_ticks / TICKS_PER_SECOND,
            minor_faults=programs.minor_faults,
            major_faults=programs.major_faults,
            voluntary_switches=voluntary,
            involuntary_switches=involuntary,
            queue_seconds=self._queue.totals[1] / NANOSECONDS if self._has_queue else None,
            threads_of=threads_of,
            most_threads_of=bounded_most(scan.threads.most_of_program, threads_of),
            cpu_seconds_of={name: ticks / TICKS_PER_SECOND for name, ticks in programs.cpu_ticks_by_program().items()},
            threads_on_core=dict(scan.threads.on_core),
            open_files=files.open_files if files else None,
            distinct_files=files.distinct_files if files else None,
            worst_file_ratio=files.worst_ratio if files else None,
            uses_scratch=files.uses_scratch if files else None,
            io=IoUse(**io._asdict()) if io is not None and self._has_io else None,
            held_processes=held_processes,
            held=held,
        )


def _age(sample: ProcessSample) -> tuple[int, int]:
    """Sort parents before their children, as IoTotals needs it."""
    return sample.start_ticks, sample.pid


HELD_SECONDS = 60.0
"""A process is held when it is in such a state for so long, without any CPU time."""
LISTED_PROCESSES = 5

_STOPPED = "T"
_HELD = frozenset({_STOPPED, "D"})
RANKS = ("SLURM_PROCID", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
"""Variables with the task of a process, those of mpirun last: Slurm's are then of its daemon."""


class HeldProcesses:
    """Follow the held processes of one job from scan to scan."""

    def __init__(self, reader: ProcessReader, clock: Callable[[], float]) -> None:
        self._reader = reader
        self._clock = clock
        self._since: dict[int, tuple[tuple[int, int, str], float]] = {}
        self._tasks: dict[int, str] = {}

    def update(self, samples: Iterable[ProcessSample]) -> tuple[int, tuple[HeldProcess, ...]]:
        """Return how many processes are held, and those that have been for the longest time.

        One that was stopped in an interactive session, by Ctrl-Z, holds nobody up, and is only counted.
        """
        now = self._clock()
        since = {}
        held = []
        for sample in samples:
            if sample.state not in _HELD:
                continue
            state = (sample.start_ticks, sample.user_ticks + sample.system_ticks, sample.state)
            before, began = self._since.get(sample.pid, (None, now))
            since[sample.pid] = (state, began if before == state else now)
            if now - since[sample.pid][1] >= HELD_SECONDS:
                held.append((now - since[sample.pid][1], sample))
        self._since = since
        held.sort(key=lambda pair: (-pair[0], pair[1].pid))
        unexpected = (pair for pair in held if pair[1].state != _STOPPED or not has_terminal(pair[1]))
        worst = list(itertools.islice(unexpected, LISTED_PROCESSES))
        self._tasks = {sample.pid: self._find_task(sample) for _, sample in worst}
        return len(held), tuple(
            HeldProcess(
                pid=sample.pid,
                program=sample.command,
                task=self._tasks[sample.pid],
                state=STATES[sample.state],
                seconds=seconds,
            )
            for seconds, sample in worst
        )

    def _find_task(self, sample: ProcessSample) -> str:
        """Return the rank that the process was started with; empty if it is not known.

        The environment of one that waits for a disk is not read: that may wait for the same disk.
        """
        known = self._tasks.get(sample.pid)
        if known is not None or sample.state != _STOPPED:
            return known or ""
        with self._reader.process(sample.pid) as process:
            found = process if isinstance(process, Missing) else process.environment(RANKS)
        if isinstance(found, Missing):
            return ""
        ranks = [found[name] for name in reversed(RANKS) if name in found]
        return next((rank for rank in ranks if rank.isascii() and rank.isdigit() and len(rank) <= MOST_DIGITS), "")
