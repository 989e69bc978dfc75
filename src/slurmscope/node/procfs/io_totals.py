# SPDX-License-Identifier: Apache-2.0
"""Add up the I/O of the processes of a job, so that the total stays right when processes end.

The same works for CPU time, which the kernel hands over in the same way.

When a process ends and its parent waits for it, the kernel adds its counters to those of the parent, with all that
it received itself in that way; so nothing is lost. When no process waits (the parent ignores SIGCHLD, or is gone and
the process was adopted by one outside the job) the counters are lost, and their last values have to be kept. Adding
both would count twice, so each process that vanished is searched for in its nearest living ancestor:

- Faults are handed over together with I/O, into a counter that the parent's own work never moves. If that grew by
  less than the lost process had, the process was not waited for.
- If any I/O counter grew by less than the lost process had, it was not handed over.
- Otherwise it was: a living parent either waits for all its children or for none.

Files are not read at one moment, so a hand-over can show in one counter and not yet in the other. A process without
proof is checked again at the next scan. Parents have to be read before their children: else a child could be seen
alive after its parent already had its counts. What a process does between the last scan and its end is lost where
no process waits; where the parent waits, even children that were never seen are counted. A list of processes may lack
one for a moment that runs on, such as one that moves to another cgroup meanwhile: when it is back, it goes on.

slurmstepd samples the usage of its job by reading files of /proc, thousands of times a minute. Its counters include
those of children that it waited for and of threads that ended. The counters of a running thread are its own, so what
the threads did, as far as they were seen, is taken off.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import gt, sub

from slurmscope.node.procfs.process_totals import Kept, remember
from slurmscope.node.procfs.stat import NO_IO, IoCounts, ProcessSample


class StepdIo:
    """Track the threads of one slurmstepd over scans.

    ``has_lost_thread`` is whether a thread ended since the last scan: what it read meanwhile is not known.
    """

    def __init__(self) -> None:
        self._threads: Mapping[int, IoCounts] = {}
        self._ended: IoCounts = NO_IO
        self.has_lost_thread = False

    @property
    def ended(self) -> IoCounts:
        """Return what its ended threads did, as far as they were seen."""
        return self._ended

    def received(self, total: IoCounts, threads: Mapping[int, IoCounts]) -> IoCounts:
        """Return what came from children, from the counters of the process and, read before, of its threads."""
        ended = [counts for thread_id, counts in self._threads.items() if thread_id not in threads]
        self.has_lost_thread = bool(ended)
        self._ended = IoCounts(*map(sum, zip(self._ended, *ended, strict=True)))
        self._threads = threads
        own = map(sum, zip(self._ended, *threads.values(), strict=True))
        return IoCounts(*(max(0, count - mine) for count, mine in zip(total, own, strict=True)))


Counts = tuple[int, ...]
"""Counters that a parent receives from a child it waits for; in proofs, faults come first."""

_LONGEST_CHAIN = 1000


class KeptTotals:
    """Keep the totals of counters that a parent receives from a child it waits for; they never decrease."""

    def __init__(self, zero: Counts) -> None:
        """Set the totals at the start, which have as many zeros as there are counters."""
        self._zero = zero
        self._scan = 0
        self._known: dict[int, _Entry] = {}
        self._waiting: list[_Entry] = []
        self._vanished: dict[int, _Entry] = {}
        self._kept = zero
        self._total = zero
        self._is_resumed = False

    @property
    def is_waiting(self) -> bool:
        """Return whether the next scan has to be added although nothing changes: processes vanished without a proof."""
        return bool(self._waiting)

    def keep(self, forgotten: Counts) -> tuple[Kept, ...]:
        """Return what a new agent needs; ``forgotten`` is what it will not know to be of slurmstepd itself."""
        living = _sum([self._zero, forgotten, *(entry.counted_anew for entry in self._known.values())])
        return tuple(Kept(total, total - now) for total, now in zip(self._total, living, strict=True))

    def resume(self, kept: Sequence[Kept]) -> None:
        """Continue the totals of an agent that ran before."""
        self._total = tuple(each.total for each in kept)
        self._kept = tuple(each.ended for each in kept)
        self._is_resumed = True

    def update(
        self,
        seen: Iterable[tuple[ProcessSample, Counts]],
        stepd_ids: Collection[int] = (),
        unsure_ids: Collection[int] = (),
    ) -> Counts:
        """Add one scan, parents first and zombies included, and return the total.

        Of slurmstepd (``stepd_ids``) only what its children handed over belongs to the job. Where its own reads cannot
        be separated from theirs this time (``unsure_ids``), its children have read no more than they were seen to.
        """
        self._scan += 1
        before, self._known = self._known, self._enter(seen, stepd_ids)
        lost = [entry for entry in before.values() if entry.scan != self._scan]
        remember(self._vanished, {entry.pid: entry for entry in lost})
        for pid in self._known.keys() & stepd_ids:
            self._known[pid].take_gains(self._seen_below(pid, lost) if pid in unsure_ids else None)
        pending = self._settle([*self._waiting, *lost])
        now = _sum([*(entry.share for entry in self._known.values()), self._kept, pending])
        if self._is_resumed:
            # Processes that ended while no agent ran.
            self._kept = _sum([self._kept, map(_missing, self._total, now)])
            self._is_resumed = False
        self._total = tuple(map(max, now, self._total))
        return self._total

    def _enter(self, seen: Iterable[tuple[ProcessSample, Counts]], stepd_ids: Collection[int]) -> dict[int, _Entry]:
        known: dict[int, _Entry] = {}
        parent_ids: list[int] = []
        for sample, io in seen:
            entry = self._known.get(sample.pid)
            if entry is None or entry.start_ticks != sample.start_ticks:
                entry = self._take_back(sample)
            if entry is None:
                entry = _Entry(sample, io, self._zero, is_stepd=sample.pid in stepd_ids)
            else:
                entry.advance(sample, io, is_stepd=sample.pid in stepd_ids)
            entry.scan = self._scan
            known[sample.pid] = entry
            parent_ids.append(sample.parent_id)
        for entry, parent_id in zip(known.values(), parent_ids, strict=True):
            entry.parent = known.get(parent_id)
        return known

    def _take_back(self, sample: ProcessSample) -> _Entry | None:
        """Return a process that had vanished, and did not end; what was kept of it is its own again."""
        entry = self._vanished.get(sample.pid)
        if entry is None or entry.start_ticks != sample.start_ticks:
            return None
        del self._vanished[sample.pid]
        self._waiting = [each for each in self._waiting if each is not entry]
        if entry.is_kept:
            self._kept = tuple(map(sub, self._kept, entry.share))
            entry.is_kept = False
        return entry

    def _keep(self, entry: _Entry) -> None:
        self._kept = _sum([self._kept, entry.share])
        entry.is_kept = True

    def _seen_below(self, pid: int, lost: Iterable[_Entry]) -> Counts:
        """Return the I/O that vanished processes below a living one had when they were last seen."""
        found = (entry for entry in lost if self._living_ancestor(entry)[0] is self._known[pid])
        return _sum([self._zero, *(entry.share for entry in found)])

    def _settle(self, lost: Iterable[_Entry]) -> Counts:
        """Find the counts of vanished processes in their ancestors; return those that are in none yet."""
        self._waiting = []
        below: dict[int, list[tuple[int, _Entry]]] = {}
        for entry in lost:
            ancestor, depth = self._living_ancestor(entry)
            if ancestor is None:
                self._keep(entry)
            else:
                below.setdefault(ancestor.pid, []).append((depth, entry))
        return _sum([self._zero, *(self._settle_below(self._known[pid], entries) for pid, entries in below.items())])

    def _living_ancestor(self, entry: _Entry) -> tuple[_Entry | None, int]:
        ancestor = entry.parent
        for depth in range(_LONGEST_CHAIN):
            if ancestor is None or ancestor.scan == self._scan:
                return ancestor, depth
            ancestor = ancestor.parent
        return None, _LONGEST_CHAIN

    def _settle_below(self, ancestor: _Entry, lost: list[tuple[int, _Entry]]) -> Counts:
        """Search vanished processes in the growth of one ancestor.

        What one process explains is no proof for the next, so it is taken off; nearest and largest first.
        """
        recent, longer = ancestor.recent_growth, ancestor.longer_growth
        waiting = [self._zero]
        for _, entry in sorted(lost, key=lambda item: (item[0], -item[1].handed_over[0])):
            is_first_check = entry.scan == self._scan - 1
            if not any(map(gt, entry.handed_over, recent if is_first_check else longer)):
                longer = tuple(map(sub, longer, entry.handed_over))
                recent = (
                    tuple(map(sub, recent, entry.handed_over)) if is_first_check else tuple(map(min, recent, longer))
                )
            elif is_first_check:
                self._waiting.append(entry)
                waiting.append(entry.share)
            else:
                self._keep(entry)
        ancestor.leave_unexplained(recent)
        # Until this is certain, count only what cannot be in the ancestor already.
        return tuple(max(0, mine - its) for mine, its in zip(_sum(waiting), recent[1:], strict=True))


class IoTotals(KeptTotals):
    """Keep the I/O of one job."""

    def __init__(self) -> None:
        super().__init__(NO_IO)

    def update(
        self,
        seen: Iterable[tuple[ProcessSample, Counts]],
        stepd_ids: Collection[int] = (),
        unsure_ids: Collection[int] = (),
    ) -> IoCounts:
        """Add one scan, as :class:`KeptTotals` does."""
        return IoCounts(*super().update(seen, stepd_ids, unsure_ids))


class _Entry:
    """Track one process over scans.

    ``handed_over`` is what a parent that waits would receive, ``received`` are the counters that include those of
    ended children, ``share`` is its part of the job's total.
    """

    __slots__ = ("_before", "_held", "_longer_before", "_zero", "handed_over", "is_kept", "is_stepd", "parent", "pid",
                 "received", "scan", "share", "start_ticks")  # fmt: skip

    def __init__(self, sample: ProcessSample, io: Counts, zero: Counts, *, is_stepd: bool) -> None:
        self.pid = sample.pid
        self.start_ticks = sample.start_ticks
        self.is_stepd = is_stepd
        self.is_kept = False
        self.parent: _Entry | None = None
        self.scan = 0
        self.handed_over: Counts = (sample.minor_faults + sample.child_minor_faults, *io)
        self.received: Counts = (sample.child_minor_faults, *io)
        self._before: Counts = self.received
        self._longer_before: Counts = self.received
        # A slurmstepd that never waited for a child has only its own I/O.
        self.share: Counts = io if not is_stepd or sample.child_minor_faults else zero
        self._zero = self._held = zero

    def advance(self, sample: ProcessSample, io: Counts, *, is_stepd: bool) -> None:
        """Add the values of the next scan; a task is a slurmstepd until it executes its program."""
        self._longer_before, self._before = self._before, self.received
        self.handed_over = (sample.minor_faults + sample.child_minor_faults, *io)
        self.received = (sample.child_minor_faults, *io)
        if self.is_stepd != is_stepd:  # other counts than before: their difference is no growth
            self._longer_before = self._before = self.received
            self.is_stepd = is_stepd
        if not is_stepd:
            self.share = io

    def take_gains(self, most_read: Counts | None) -> None:
        """Count what slurmstepd received when children ended, reads up to a limit if there is one.

        Its faults are read a moment before its I/O: the gain may show one scan before its proof.
        """
        faults, *gain = map(sub, self.received, self._before)
        if most_read is not None:
            most = IoCounts(*gain)._replace(read_chars=most_read[0], reads=most_read[2])
            gain = list(map(min, gain, most))
        if faults:
            self.share = _sum([self.share, self._held, gain])
            self._held = self._zero
        else:
            self._held = tuple(gain)

    @property
    def counted_anew(self) -> Counts:
        """Return the share of this process for an agent that sees it for the first time."""
        faults, *counts = self.received
        return tuple(counts) if not self.is_stepd or faults else self._zero

    @property
    def recent_growth(self) -> Counts:
        """Return what arrived since the last scan."""
        return tuple(map(sub, self.received, self._before))

    @property
    def longer_growth(self) -> Counts:
        """Return what arrived since the scan before the last."""
        return tuple(map(sub, self.received, self._longer_before))

    def leave_unexplained(self, growth: Counts) -> None:
        """Let only this much of the growth be proof at the next scan."""
        self._before = tuple(map(sub, self.received, growth))


def _missing(total: int, now: int) -> int:
    return max(0, total - now)


def _sum(counts: Sequence[Iterable[int]]) -> Counts:
    return tuple(map(sum, zip(*counts, strict=True)))
