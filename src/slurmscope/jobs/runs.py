# SPDX-License-Identifier: Apache-2.0
"""Say what one run of a job is, which of its runs is the newest, and which runs are of one job.

Accounting has a record for each run, and one more for each time that a running job was resized: that record has the
state RESIZING and ends when the next one is submitted. The next one has the start of the run, and the new size. The
records of such a job are joined here: a run begins with its first record, and has the size of its last one.

A requeued job has several runs of the same ID, each with a submit time of its own. But an ID is also used again for
another job: after MaxJobId, or when slurmctld has lost its state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

from slurmscope.jobs.record import EarlierSize, JobRecord

RESIZED = "RESIZING"
"""State of a record that ends with a new size of the job, not with its run."""
_RECORDS_AT_ONCE = 500


class RunId(NamedTuple):
    """Identify one run as accounting and the archive do."""

    cluster: str
    job_id: int
    submit_seconds: int


class Run(Protocol):
    """What records and rows of the archive have of a run."""

    @property
    def cluster(self) -> str: ...
    @property
    def job_id(self) -> int: ...
    @property
    def user(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def submit_seconds(self) -> int: ...
    @property
    def start_seconds(self) -> int | None: ...


AnyRun = TypeVar("AnyRun", bound=Run)


def run_of(run: Run) -> RunId:
    return RunId(run.cluster, run.job_id, run.submit_seconds)


def run_order(run: Run) -> tuple[int, int]:
    """Order the runs of a job, the newest last."""
    return run.submit_seconds, run.start_seconds or 0


def newest_runs(runs: Iterable[AnyRun]) -> list[AnyRun]:
    """Return the newest run of each job."""
    listed = list(runs)
    newest = {(run.cluster, run.job_id): run for run in sorted(listed, key=run_order)}
    return [run for run in listed if newest[run.cluster, run.job_id] is run]


def newest_tasks(runs: Iterable[AnyRun]) -> list[AnyRun]:
    """Return the newest run of each task, given those of an array, and perhaps of an earlier one of the same ID."""
    return of_newest_array(newest_runs(runs))


def of_newest_array(runs: Sequence[AnyRun]) -> list[AnyRun]:
    """Return the runs of the newest array of an ID, without those of another user's that had the ID before."""
    newest = max(runs, key=run_order, default=None)
    return [run for run in runs if newest is not None and run.user == newest.user]


def runs_of_job(run: AnyRun, found: Iterable[AnyRun]) -> list[AnyRun]:
    """Return a run and those of the same job before it, of all runs with its ID; the newest first.

    A restart is a run of the same job. Where restarts are not known, one of the same user and name is.
    """
    runs = [run]
    for earlier in sorted(found, key=run_order, reverse=True):
        if run_order(earlier) < run_order(runs[-1]) and _is_requeued(earlier, runs[-1]):
            runs.append(earlier)
    return runs


def _is_requeued(earlier: Run, later: Run) -> bool:
    if (earlier.cluster, earlier.job_id, earlier.user) != (later.cluster, later.job_id, later.user):
        return False
    counts = [run.restarts if isinstance(run, JobRecord) else None for run in (earlier, later)]
    if counts[0] is None or counts[1] is None:
        return earlier.name == later.name
    return counts[0] < counts[1]


def whole_runs(
    records: Iterable[JobRecord], read_jobs: Callable[[Sequence[int]], Iterable[JobRecord]]
) -> Iterator[JobRecord]:
    """Yield runs; of one that was resized, whose last record alone was found, all records are read and joined."""
    left = iter(records)
    while some := list(islice(left, _RECORDS_AT_ONCE)):
        resized = sorted({record.job_id for record in some if _may_be_last_part(record)})
        whole = {_last_part_of(run): run for run in (read_jobs(resized) if resized else ())}
        for record in some:
            run = whole.get(run_of(record)) if _may_be_last_part(record) else record
            if run is None and record.has_ended:
                run = record
            if run is not None and run.state != RESIZED:
                yield run


def _may_be_last_part(record: JobRecord) -> bool:
    """Return whether a record follows others of its run: it is as if the job had started before its submission.

    For a moment after the resize slurmdbd has the time of the resize as its start.
    """
    if record.start_seconds is None or record.state == RESIZED:
        return False
    return record.start_seconds < record.submit_seconds + (not record.has_ended)


def _last_part_of(run: JobRecord) -> RunId:
    """Identify the last record of a run: it is submitted when the one before ends."""
    submitted = run.earlier_sizes[-1].until_seconds if run.earlier_sizes else run.submit_seconds
    return RunId(run.cluster, run.job_id, submitted)


def join_resized(records: Sequence[JobRecord]) -> list[JobRecord]:
    """Return runs, given all records of their jobs."""
    parts = {(part.cluster, part.job_id, part.end_seconds): part for part in records if part.state == RESIZED}
    runs = [_join(record, parts) if parts else record for record in records if record.state != RESIZED]
    # slurmdbd adds the record of the new size before it ends the one of the old: until then the old one is the run.
    running = [run for run in runs if run.start_seconds is not None and not run.has_ended]
    first = {_start_of(run): run for run in sorted(running, key=run_order, reverse=True)}
    return [run for run in runs if run.has_ended or first.get(_start_of(run), run) is run]


def _start_of(run: Run) -> tuple[str, int, int | None]:
    return run.cluster, run.job_id, run.start_seconds


def _join(last: JobRecord, parts: dict[tuple[str, int, int | None], JobRecord]) -> JobRecord:
    chain = [last]
    while part := parts.pop((last.cluster, last.job_id, chain[0].submit_seconds), None):
        chain.insert(0, part)
    if len(chain) == 1:
        return last
    first, used = chain[0], [part.cpu_seconds for part in chain if part.cpu_seconds is not None]
    return replace(
        last,
        submit_seconds=first.submit_seconds,
        eligible_seconds=first.eligible_seconds,
        start_seconds=first.start_seconds,
        suspended_seconds=sum(part.suspended_seconds for part in chain),
        earlier_sizes=tuple(EarlierSize(part.end_seconds or 0, part.cpus or 0, part.gpus) for part in chain[:-1]),
        cpu_seconds=sum(used) if used and last.has_ended else None,
        steps=tuple({step.name: step for part in chain for step in part.steps}.values()),
    )
