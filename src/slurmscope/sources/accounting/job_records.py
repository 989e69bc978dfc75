# SPDX-License-Identifier: Apache-2.0
"""Make records of jobs from what accounting says, by the same rules wherever it was read.

Slurm fills in numbers that it does not know: a job cancelled while it waited has a start, one that runs has an exit
code of 0, a step that was too short to be sampled has used no memory. Here these become None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from slurmscope.hostlist import expand_hosts
from slurmscope.model.job_record import MAX_STEPS, JobRecord, StepRecord
from slurmscope.model.job_states import ENDED_STATES
from slurmscope.tres import Tres, parse_tres

ENDINGS = frozenset({*ENDED_STATES, "REQUEUED"}) - {"REVOKED"}
"""States of a run that is over. A revoked job ran in another cluster of the federation and is in its records."""
RESIZED = "RESIZING"
"""State of a record that ends no job: the one that follows it tells the time of the whole run again."""

_CACHED_TEXTS = 4096  # thousands of jobs have few sets of resources and nodes
_NO_REASONS = frozenset({"", "None"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountingRow:
    """Hold what accounting says of one run of a job, as it says it; a time that it does not know is None."""

    cluster: str
    job_id: int
    name: str
    user: str
    uid: int | None
    account: str
    partition: str
    qos: str
    state: str
    submit_seconds: int
    eligible_seconds: int | None
    start_seconds: int | None
    end_seconds: int | None
    time_limit_minutes: int | None
    node_list: str
    allocated: str
    """Resources, in words: cpu=4,mem=200M."""
    asked: str
    exit_code: int
    exit_signal: int
    suspended_seconds: int = 0
    array_job_id: int | None = None
    array_task_id: int | None = None
    het_job_id: int | None = None
    het_offset: int | None = None
    restarts: int | None = None
    reason: str = ""
    submit_line: str = ""
    work_dir: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountingStep:
    """Hold what accounting says of one step; ``is_sampled`` tells whether it has any usage of it."""

    name: str
    state: str
    start_seconds: int | None
    end_seconds: int | None
    tasks: int | None
    nodes: int | None
    cpu_seconds: float
    max_rss_bytes: int
    is_sampled: bool
    exit_code: int
    exit_signal: int


def make_record(told: AccountingRow, steps: Sequence[StepRecord]) -> JobRecord:
    """Return the record of one run with its steps."""
    has_ended = told.state in ENDINGS
    # Seen with 22.05: a job cancelled while it waited has a start but no allocation.
    has_started = told.start_seconds is not None and bool(told.allocated)
    amounts = read_amounts(told.allocated if has_started else told.asked)
    return JobRecord(
        cluster=told.cluster,
        job_id=told.job_id,
        name=told.name,
        user=told.user or ("" if told.uid is None else str(told.uid)),
        uid=told.uid,
        account=told.account,
        # One that waits names every partition it may start in.
        partition=told.partition.partition(",")[0],
        qos=told.qos,
        state=told.state,
        submit_seconds=told.submit_seconds,
        array_job_id=told.array_job_id,
        array_task_id=told.array_task_id,
        het_job_id=told.het_job_id,
        het_offset=told.het_offset,
        eligible_seconds=told.eligible_seconds,
        start_seconds=told.start_seconds if has_started else None,
        end_seconds=told.end_seconds if has_ended else None,
        suspended_seconds=_read_suspended(told) if has_started else 0,
        time_limit_seconds=60 * told.time_limit_minutes if told.time_limit_minutes else None,
        nodes=_read_nodes(told.node_list) if has_started else (),
        node_count=amounts.nodes or 0,
        cpus=amounts.cpus or 0,
        asked_cpus=read_amounts(told.asked).cpus or None,
        memory_bytes=amounts.memory_bytes,
        gres=amounts.gres,
        exit_code=told.exit_code if has_ended and has_started else None,
        exit_signal=told.exit_signal if has_ended and has_started else None,
        restarts=told.restarts,
        cpu_seconds=_sum_cpu(steps) if has_ended else None,
        reason="" if has_started or told.reason in _NO_REASONS else told.reason,
        submit_line=told.submit_line,
        work_dir=told.work_dir,
        steps=_keep_largest(steps),
    )


def make_step(told: AccountingStep) -> StepRecord:
    """Return the record of one step; what it used is known when it has ended."""
    has_ended = told.end_seconds is not None
    is_known = has_ended and (told.is_sampled or told.cpu_seconds > 0)
    return StepRecord(
        name=told.name,
        state=told.state,
        start_seconds=told.start_seconds,
        end_seconds=told.end_seconds,
        tasks=told.tasks,
        nodes=told.nodes,
        cpu_seconds=told.cpu_seconds if is_known else None,
        # No process has no memory at all: it ended before Slurm first looked.
        max_rss_bytes=told.max_rss_bytes or None,
        exit_code=told.exit_code if has_ended else None,
        exit_signal=told.exit_signal if has_ended else None,
    )


@lru_cache(maxsize=_CACHED_TEXTS)
def read_amounts(text: str) -> Tres:
    """Read a list of resources; one that is spelled in a new way costs its amounts, not the job."""
    try:
        return parse_tres(text)
    except ValueError:
        return Tres()


@lru_cache(maxsize=_CACHED_TEXTS)
def _read_nodes(text: str) -> tuple[str, ...]:
    if " " in text:  # None assigned
        return ()
    try:
        return expand_hosts(text)
    except ValueError:
        return ()


def _read_suspended(told: AccountingRow) -> int:
    """Return how long it was suspended; more than the time it had is what is left where Slurm missed the resuming."""
    if told.start_seconds is None or told.end_seconds is None:
        return told.suspended_seconds
    return told.suspended_seconds if told.suspended_seconds <= told.end_seconds - told.start_seconds else 0


def _sum_cpu(steps: Sequence[StepRecord]) -> float | None:
    known = [step.cpu_seconds for step in steps if step.cpu_seconds is not None]
    return sum(known) if known else None


def _keep_largest(steps: Sequence[StepRecord]) -> tuple[StepRecord, ...]:
    """Leave out the steps that took the least memory, where there are too many."""
    if len(steps) <= MAX_STEPS:
        return tuple(steps)
    by_memory = sorted(range(len(steps)), key=lambda index: steps[index].max_rss_bytes or 0, reverse=True)
    return tuple(steps[index] for index in sorted(by_memory[:MAX_STEPS]))
