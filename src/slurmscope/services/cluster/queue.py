# SPDX-License-Identifier: Apache-2.0
"""Read the queue, and build the wait time histogram of started jobs over all readings."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import replace

from slurmscope.model.jobs import WAIT_BUCKETS_SECONDS, Jobs, JobStart, WaitTally
from slurmscope.sources.slurm.squeue import StartWindow

ReadJobs = Callable[[StartWindow, float], Jobs]
"""Read the current jobs from any backend; see slurmscope.sources.slurm.backends."""

LAG_SECONDS = 5
"""Tolerated difference to the controller's clock: starts are counted only when they are this old."""


class QueueReader:
    """Read jobs so that each start is counted once: the windows of start times follow each other without gaps.

    Jobs that start and end between two readings are counted too, because the controller keeps ended jobs for a while
    (MinJobAge). A failed reading does not move the window.
    """

    def __init__(self, read_jobs: ReadJobs, wall_clock: Callable[[], float]) -> None:
        """Start counting now; jobs that started earlier are not counted."""
        self._read_jobs = read_jobs
        self._wall_clock = wall_clock
        self._counted_until = int(wall_clock()) - LAG_SECONDS
        self._waits: dict[tuple[str, str], WaitTally] = {}

    def read(self) -> Jobs:
        """Return the current jobs, with the wait times of all starts so far."""
        now = self._wall_clock()
        window = StartWindow(self._counted_until, max(self._counted_until, int(now) - LAG_SECONDS))
        jobs = self._read_jobs(window, now)
        self._counted_until = window.end_seconds
        self._waits = add_starts(self._waits, jobs.starts)
        return replace(jobs, waits=self._waits)


def add_starts(waits: dict[tuple[str, str], WaitTally], starts: Iterable[JobStart]) -> dict[tuple[str, str], WaitTally]:
    """Return new histograms with the starts added; one that is being served is never changed."""
    waits = dict(waits)
    for start in starts:
        key = (start.partition, start.qos)
        before = waits.get(key) or WaitTally((0,) * (len(WAIT_BUCKETS_SECONDS) + 1), 0.0)
        counts = list(before.counts)
        counts[bisect_left(WAIT_BUCKETS_SECONDS, start.wait_seconds)] += start.jobs
        waits[key] = WaitTally(tuple(counts), before.total_seconds + start.wait_seconds * start.jobs)
    return waits
