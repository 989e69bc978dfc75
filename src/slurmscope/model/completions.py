# SPDX-License-Identifier: Apache-2.0
"""Hold ended jobs, and sums over them since counting began.

A requeued job ends once per run: each run has its own record in Slurm's accounting.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

RUN_BUCKETS_SECONDS = (10.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0, 259200.0, 604800.0)
"""Upper bounds of the run time histogram: from seconds to a week."""

Identity = tuple[int, int]
"""Job ID and submit time. Job IDs are reused eventually, and a requeue sets a new submit time."""


class ExitClass(enum.StrEnum):
    """How a job's own program ended, by its exit code.

    ``NONE`` means that there is no exit code: the job never ran, or was ended by Slurm or a user; see its state.
    """

    OK = "ok"
    ERROR = "error"
    SIGNAL = "signal"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """Hold one ended run of a job; times are seconds since 1970.

    ``elapsed_seconds`` is None if it never ran, ``gpus`` if they could not be parsed. ``tasks`` is more than 1 for
    array tasks that were cancelled together before they started: accounting has one record for all of them.
    """

    job_id: int
    submit_time: int
    end_time: int
    partition: str
    account: str
    state: str
    exit_code: int = 0
    exit_signal: int = 0
    elapsed_seconds: int | None = None
    cpu_seconds: int = 0
    gpus: int | None = None
    tasks: int = 1

    @property
    def identity(self) -> Identity:
        """Return the unique key of the record in accounting."""
        return self.job_id, self.submit_time

    @property
    def is_partial(self) -> bool:
        """Return whether accounting got the end of the job before its start, which brings the partition."""
        return not self.partition

    @property
    def exit_class(self) -> ExitClass:
        """Return how the job's own program ended, if it ended by itself."""
        if self.state not in {"COMPLETED", "FAILED"}:
            return ExitClass.NONE
        if self.exit_signal:
            return ExitClass.SIGNAL
        if self.exit_code:
            return ExitClass.ERROR
        # A job that could not be launched fails without any exit code.
        return ExitClass.OK if self.state == "COMPLETED" else ExitClass.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """Count runs by run time; the last bucket has no upper bound."""

    counts: tuple[int, ...] = (0,) * (len(RUN_BUCKETS_SECONDS) + 1)
    total_seconds: int = 0

    def plus(self, seconds: int) -> RunTimes:
        """Return the counts with one more run."""
        bucket = bisect_left(RUN_BUCKETS_SECONDS, seconds)
        counts = (*self.counts[:bucket], self.counts[bucket] + 1, *self.counts[bucket + 1 :])
        return RunTimes(counts=counts, total_seconds=self.total_seconds + seconds)


EndedKey = tuple[str, str, str, str]
"""Partition, account, state, exit class."""

UsageKey = tuple[str, str]
"""Partition, account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completions:
    """Hold sums over all jobs that ended from ``since`` to ``read_until``, as known to accounting at the last reading.

    ``unreadable_rows`` counts rows of the last sacct output that could not be parsed; they are in no sum.
    """

    since: int
    read_until: int
    ended: Mapping[EndedKey, int] = field(default_factory=dict)
    run_times: Mapping[str, RunTimes] = field(default_factory=dict)
    cpu_seconds: Mapping[UsageKey, int] = field(default_factory=dict)
    gpu_seconds: Mapping[UsageKey, int] = field(default_factory=dict)
    unreadable_rows: int = 0


def add_jobs(before: Completions, jobs: Iterable[EndedJob]) -> Completions:
    """Return new sums with these jobs added; sums that are being served are never changed."""
    ended = Counter(before.ended)
    run_times = dict(before.run_times)
    cpu_seconds = Counter(before.cpu_seconds)
    gpu_seconds = Counter(before.gpu_seconds)
    for job in jobs:
        ended[job.partition, job.account, job.state, str(job.exit_class)] += job.tasks
        if job.elapsed_seconds is None:
            continue
        run_times[job.partition] = run_times.get(job.partition, RunTimes()).plus(job.elapsed_seconds)
        cpu_seconds[job.partition, job.account] += job.cpu_seconds
        if job.gpus:
            gpu_seconds[job.partition, job.account] += job.gpus * job.elapsed_seconds
    return replace(before, ended=ended, run_times=run_times, cpu_seconds=cpu_seconds, gpu_seconds=gpu_seconds)
