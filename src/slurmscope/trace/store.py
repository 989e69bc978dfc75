# SPDX-License-Identifier: Apache-2.0
"""Keep the latest sample of each traced process until it expires, within limits.

A process is new if one of the labels of its series is: a job could make ever new series of one PID as well.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from slurmscope.core.rate_limit import TokenBuckets
from slurmscope.trace.callers import REASONS, Refusal
from slurmscope.trace.samples import TracedProcess, TraceSample
from slurmscope.trace.settings import TraceLimits

HOUR_SECONDS = 3600.0
LIFETIME_INTERVALS = 3.0
SHORTEST_LIFETIME_SECONDS = 5.0
LONGEST_LIFETIME_SECONDS = 900.0
_PURGE_SECONDS = 1.0

_Key = tuple[str, int | None]
"""Host and PID: several nodes and ranks of one job do not overwrite each other."""


class _Entry(NamedTuple):
    process: TracedProcess
    expires_at: float


class TraceStore:
    """Traced processes by job, host and PID; every method may be called from any thread."""

    def __init__(self, limits: TraceLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.accepted = 0
        self.last_put_at = -math.inf
        self._refused: Counter[str] = Counter()
        self._limits = limits
        self._clock = clock
        self._new_of_job = _per_hour(limits.processes_per_job, clock)
        self._new_of_user = _per_hour(limits.processes_per_user, clock)
        self._lock = threading.Lock()
        self._jobs: dict[int, dict[_Key, _Entry]] = {}
        self._users: Counter[int] = Counter()
        self._size = 0
        self._purge_at = 0.0

    @property
    def refused(self) -> dict[str, int]:
        with self._lock:
            return dict(self._refused)

    def count_refusal(self, code: str) -> None:
        with self._lock:
            self._refused[code if code in REASONS else "malformed"] += 1

    def count_accepted(self, samples: int) -> None:
        """Count samples that were accepted but are kept elsewhere."""
        with self._lock:
            self.accepted += samples

    def put(self, processes: Sequence[TracedProcess]) -> None:
        """Store all samples, or raise Refusal and store none."""
        with self._lock:
            self.last_put_at = now = self._clock()
            # Not at every post that finds no room: the cost of a flood must not grow with what is stored.
            if now >= self._purge_at:
                self._purge(now)
            new = [process for process in processes if not self._is_known(process)]
            if new:
                self._check_room(new)
                self._count_new(new)
            for process in processes:
                self._put_one(process, now)
            self.accepted += len(processes)

    def snapshot(self, is_live: Callable[[int], bool]) -> tuple[TracedProcess, ...]:
        """Return the processes whose sample has not expired and whose job is still there."""
        with self._lock:
            self._purge(self._clock())
            for job_id in [job_id for job_id in self._jobs if not is_live(job_id)]:
                for key in list(self._jobs[job_id]):
                    self._remove(job_id, key)
            return tuple(entry.process for entries in self._jobs.values() for entry in entries.values())

    def __len__(self) -> int:
        """Return the number of stored processes, some of which may have expired."""
        return self._size

    def _put_one(self, process: TracedProcess, now: float) -> None:
        sample = process.sample
        entries = self._jobs.setdefault(sample.job_id, {})
        key = (process.host, sample.pid)
        before = entries.get(key)
        if before is None:
            self._users[process.owner.uid] += 1
            self._size += 1
        elif _is_older(process, before.process):
            return
        entries[key] = _Entry(process, now + lifetime_seconds(sample, self._limits.rate))

    def _is_known(self, process: TracedProcess) -> bool:
        entry = self._jobs.get(process.sample.job_id, {}).get((process.host, process.sample.pid))
        return entry is not None and _further_labels(entry.process) == _further_labels(process)

    def _check_room(self, new: Sequence[TracedProcess]) -> None:
        added = {
            (p.owner.uid, p.sample.job_id, p.host, p.sample.pid)
            for p in new
            if (p.host, p.sample.pid) not in self._jobs.get(p.sample.job_id, ())
        }
        of_user, of_job = Counter(uid for uid, *_ in added), Counter(job_id for _, job_id, *_ in added)
        limits, problem = self._limits, ""
        if self._size + len(added) > limits.processes:
            problem = f"More than {limits.processes} processes are traced."
        elif any(self._users[uid] + count > limits.processes_per_user for uid, count in of_user.items()):
            problem = f"More than {limits.processes_per_user} processes of this user are traced."
        elif any(len(self._jobs.get(job, ())) + count > limits.processes_per_job for job, count in of_job.items()):
            problem = f"More than {limits.processes_per_job} processes of this job are traced."
        if problem:
            raise Refusal(429, "too_many", problem, retry_seconds=limits.rate)

    def _count_new(self, new: Sequence[TracedProcess]) -> None:
        for what, buckets, keys in (
            ("job", self._new_of_job, Counter(p.sample.job_id for p in new)),
            ("user", self._new_of_user, Counter(p.owner.uid for p in new)),
        ):
            for key, count in keys.items():
                if wait_seconds := buckets.take(key, count):
                    problem = f"This {what} traces too many new processes an hour."
                    raise Refusal(429, "too_many", problem, retry_seconds=wait_seconds)

    def _purge(self, now: float) -> None:
        self._purge_at = now + _PURGE_SECONDS
        expired = [
            (job_id, key)
            for job_id, entries in self._jobs.items()
            for key, entry in entries.items()
            if entry.expires_at <= now
        ]
        for job_id, key in expired:
            self._remove(job_id, key)

    def _remove(self, job_id: int, key: _Key) -> None:
        entries = self._jobs[job_id]
        uid = entries.pop(key).process.owner.uid
        self._size -= 1
        self._users[uid] -= 1
        if not self._users[uid]:
            del self._users[uid]
        if not entries:
            del self._jobs[job_id]


def _per_hour(count: int, clock: Callable[[], float]) -> TokenBuckets:
    return TokenBuckets(count / HOUR_SECONDS, count, clock=clock)


def _further_labels(process: TracedProcess) -> tuple[object, ...]:
    """Return the labels of a process other than its job, host and PID."""
    return process.sample.rank, process.sample.step, process.sample.command


def lifetime_seconds(sample: TraceSample, rate: float) -> float:
    """Return how long a sample is current; ``rate`` is the interval of senders that do not state theirs."""
    interval = sample.interval_seconds or rate
    return min(max(LIFETIME_INTERVALS * interval, SHORTEST_LIFETIME_SECONDS), LONGEST_LIFETIME_SECONDS)


def _is_older(process: TracedProcess, stored: TracedProcess) -> bool:
    """Return whether a sample was taken before the stored one: senders repeat what they could not deliver."""
    taken, known = process.sample.time_seconds, stored.sample.time_seconds
    return taken is not None and known is not None and taken < known
