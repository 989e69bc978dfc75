# SPDX-License-Identifier: Apache-2.0
"""Count ended jobs, their run time and their allocated resources, from Slurm's accounting.

::

    slurm_jobs_ended_total{partition="debug",account="physics",state="FAILED",exit_class="error"} 12
    slurm_job_run_seconds_bucket{partition="debug",le="3600.0"} 4711
    slurm_ended_job_cpu_seconds_total{partition="debug",account="physics"} 1.8e+06

Every run of a requeued job counts, and so does every task of an array and every component of a
heterogeneous job. Counts survive a restart if the exporter has a state file.

``exit_class`` is how the job's own program ended: ``ok``, ``error`` (an exit code other than 0),
``signal`` (killed by a signal), or ``none`` if the job was ended by Slurm or a user, or never ran; then
see the state. A script that passes on the exit code 137 of a killed child is an ``error``.

A requeued job ends once per run: each run has its own record in Slurm's accounting.

With ``--state`` and states that a job can only end in, sacct returns the records whose end lies in the
window, both edges included, whether or not the job was ever eligible; slurmdbd finds them by an index over
end times. ``uts`` times are seconds since 1970: local times are ambiguous for an hour each autumn. None of
the columns holds text that a user can choose freely, and the separator is new for each call.

sacct queries slurmdbd only: the controller has no load from it.
"""

from __future__ import annotations

import enum
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from slurmscope.core.errors import MalformedAnswer
from slurmscope.core.tres import parse_tres
from slurmscope.exporter.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family, Histogram, counter, gauge, histogram
from slurmscope.slurm.states import ENDED_STATES, REQUEUED, REVOKED

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
    """One ended run of a job; times are seconds since 1970.

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
    """Sums over all jobs that ended from ``since`` to ``read_until``, as known to accounting at the last reading.

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


COMMAND = "sacct"
COLUMNS = (
    "JobID", "JobIDRaw", "Submit", "Start", "End", "Partition", "Account", "State", "ExitCode", "ElapsedRaw",
    "CPUTimeRAW", "AllocTRES",
)  # fmt: skip

# Left out: RESIZING ends no job, and the record that follows has the time of the whole run again;
# REVOKED is the copy of a job that another cluster of the federation ran.
STATES = tuple(sorted(ENDED_STATES - {REVOKED} | {REQUEUED}))

_NUMBER = re.compile(r"[0-9]{1,15}\Z")
_EXIT_CODE = re.compile(r"([0-9]{1,10}):([0-9]{1,10})\Z")
# Printed as nothing when no node reported one; the state says how the job ended.
_NO_EXIT_CODE = "0:0"
_INDEXES = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([1-9][0-9]{0,8}))?)?(?=[,%\].]|\Z)")

# Thousands of jobs have few sets of resources.
_CACHED_TEXTS = 4096


def arguments(start: int, end: int, separator: str) -> tuple[str, ...]:
    """Return the arguments of sacct for jobs that ended from ``start`` to ``end``, in seconds since 1970.

    ``separator`` is a random word of letters and digits, new for each call.
    """
    return (
        "--allusers",
        "--allocations",
        "--duplicates",
        "--local",
        "--noheader",
        "--parsable2",
        f"--delimiter={_mark(separator)}",
        f"--starttime=uts{start}",
        f"--endtime=uts{end}",
        "--state=" + ",".join(STATES),
        "--format=" + ",".join(COLUMNS),
    )


def parse_ended_jobs(answer: bytes, separator: str) -> tuple[tuple[EndedJob, ...], int]:
    """Read the answer to :func:`arguments` with the same separator; return the jobs and the count of unreadable rows.

    An invalid row is skipped, but an answer without a single valid row is an error: the next
    window would begin after it, and all its jobs would be lost.
    """
    if answer and not answer.endswith(b"\n"):
        raise MalformedAnswer("sacct: the answer ends in the middle of a line")
    rows = answer.decode("utf-8", "surrogateescape").split("\n")[:-1]
    mark = _mark(separator)
    jobs = [job for job in (_parse_row(row.split(mark)) for row in rows) if job is not None]
    if rows and not jobs:
        raise MalformedAnswer(f"sacct: none of {len(rows)} rows has the {len(COLUMNS)} requested columns")
    return tuple(jobs), len(rows) - len(jobs)


def _mark(separator: str) -> str:
    return f"|{separator}|"


def _parse_row(fields: list[str]) -> EndedJob | None:
    """Return the job of one row, or None when it is not to be understood."""
    if len(fields) != len(COLUMNS):
        return None
    shown_id, job_id, submit, start, end, partition, account, state, exit_text, elapsed, cpu_time, tres = fields
    exit_code = _EXIT_CODE.match(exit_text or _NO_EXIT_CODE)
    if not exit_code or not state or not all(map(_NUMBER.match, (job_id, submit, end, elapsed, cpu_time))):
        return None
    return EndedJob(
        job_id=int(job_id),
        submit_time=int(submit),
        end_time=int(end),
        # A job that never started may still name all the partitions it could have started in.
        partition=partition.partition(",")[0],
        account=account,
        # Who cancelled a job comes after the word: CANCELLED by 1001.
        state=state.partition(" ")[0],
        exit_code=int(exit_code[1]),
        exit_signal=int(exit_code[2]),
        # Seen from 22.05: one that never started has a start, but no allocation (cancelled before accounting knew
        # of it), or the allocation of an earlier run, but no start ("None": requeued, then cancelled).
        elapsed_seconds=int(elapsed) if tres and _NUMBER.match(start) else None,
        cpu_seconds=int(cpu_time),
        gpus=_count_gpus(tres),
        tasks=_count_tasks(shown_id),
    )


@lru_cache(maxsize=_CACHED_TEXTS)
def _count_gpus(tres: str) -> int | None:
    try:
        return sum(gres.count for gres in parse_tres(tres).gres if gres.name == "gpu")
    except ValueError:  # a resource spelled in a new way costs the GPU seconds of its job, not the job
        return None


def _count_tasks(shown_id: str) -> int:
    """Count the tasks of ``7_[1-3,9]``; of a list that was cut (``1,3...``) only those that are left of it."""
    _, bracket, indexes = shown_id.partition("_[")
    if not bracket:
        return 1
    return max(1, sum(_count_range(*found) for found in _INDEXES.findall(indexes.partition("%")[0])))


def _count_range(first: str, last: str, step: str) -> int:
    return max(0, int(last) - int(first)) // int(step or "1") + 1 if last else 1


ENDED = counter(
    "slurm_jobs_ended_total",
    "Ended jobs by state and exit class (ok, error, signal, none).",
    "partition",
    "account",
    "state",
    "exit_class",
)
RUN_TIME = histogram(
    "slurm_job_run_seconds",
    "Run time of ended jobs; jobs that never started are not counted.",
    "partition",
    buckets=RUN_BUCKETS_SECONDS,
)
CPU_TIME = counter(
    "slurm_ended_job_cpu_seconds_total",
    "CPU time allocated to ended jobs (CPUs times run time), used or not.",
    "partition",
    "account",
)
GPU_TIME = counter(
    "slurm_ended_job_gpu_seconds_total",
    "GPU time allocated to ended jobs (GPUs times run time), used or not.",
    "partition",
    "account",
)
SINCE = gauge("slurm_completions_since_timestamp_seconds", "Unix time from which ended jobs are counted.")
READ_UNTIL = gauge(
    "slurm_completions_read_until_timestamp_seconds",
    "Unix time up to which ended jobs are counted; falls behind while slurmdbd is unreachable.",
)
UNREADABLE = gauge("slurm_completions_unreadable_rows", "Rows of the latest sacct output that could not be parsed.")


def collect(options: NoOptions, *, completions: Completions) -> Iterator[Family]:  # noqa: ARG001 - part of the protocol
    """Yield one family per counter."""
    yield Family(ENDED, completions.ended)
    yield Family(
        RUN_TIME,
        {
            (partition,): Histogram(times.counts, times.total_seconds)
            for partition, times in completions.run_times.items()
        },
    )
    yield Family(CPU_TIME, completions.cpu_seconds)
    yield Family(GPU_TIME, completions.gpu_seconds)
    yield Family(SINCE, {(): completions.since})
    yield Family(READ_UNTIL, {(): completions.read_until})
    yield Family(UNREADABLE, {(): completions.unreadable_rows})


COLLECTOR = Collector(
    name="completions",
    role=Role.CLUSTER,
    help="Ended jobs, their run time and allocated resources, from one sacct call; needs slurmdbd.",
    needs=("completions",),
    metrics=(ENDED, RUN_TIME, CPU_TIME, GPU_TIME, SINCE, READ_UNTIL, UNREADABLE),
    collect=collect,
)
