# SPDX-License-Identifier: Apache-2.0
"""Read all pending jobs one by one, with the start that Slurm expects, by one squeue call.

For pending jobs ``StartTime`` is the estimate of the scheduler that ``squeue --start`` prints, and ``tres-alloc`` is
what they request. Pending tasks of an array are one row. Job names are chosen by users, so columns and rows are
separated by a random text that is new for every call.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeVar

from slurmscope.core.errors import MalformedAnswer, SourceError
from slurmscope.core.tres import parse_tres
from slurmscope.slurm.cluster_names import run_in_cluster
from slurmscope.slurm.command import RunCommand
from slurmscope.slurm.text import parse_tasks

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")

HELD_REASONS = frozenset({"JobHeldAdmin", "JobHeldUser", "JobHoldMaxRequeue", "ReservationDeleted"})
"""Reasons of jobs that do not start until they are released; their priority is 0."""

NOT_ELIGIBLE_REASONS = HELD_REASONS | {"BeginTime", "Dependency", "DependencyNeverSatisfied"}
"""Reasons of jobs that the scheduler does not consider yet: they delay no other job."""


class PendingJob(NamedTuple):
    """One pending job, or all pending tasks of an array.

    ``tasks`` are the indexes of the pending tasks; empty if the job is not an array. Amounts are requested ones, of
    one task. ``start_seconds`` is the start that Slurm expects, ``evaluated_seconds`` when its scheduler last
    considered the job; None if Slurm has not estimated it. A time limit of None is unlimited.
    """

    job_id: int
    name: str
    user: str
    account: str
    partitions: tuple[str, ...]
    qos: str
    state: str
    reason: str
    submit_seconds: int
    eligible_seconds: int | None = None
    start_seconds: int | None = None
    evaluated_seconds: int | None = None
    time_limit_seconds: int | None = None
    nodes: int = 1
    cpus: int = 1
    memory_bytes: int | None = None
    gpus: int = 0
    priority: int | None = None
    array_job_id: int | None = None
    tasks: tuple[range, ...] = ()
    tasks_text: str = ""
    het_job_id: int | None = None
    het_offset: int | None = None
    dependency: str = ""
    licenses: str = ""
    reservation: str = ""
    features: str = ""
    planned_nodes: str = ""

    @property
    def shown_id(self) -> str:
        """Return the ID as squeue prints it: 12, 12_3, 12_[3-24%2], 12+1."""
        if self.array_job_id is not None:
            is_one = self.task_count == 1 and "%" not in self.tasks_text
            return f"{self.array_job_id}_{self.tasks_text}" if is_one else f"{self.array_job_id}_[{self.tasks_text}]"
        if self.het_job_id is not None:
            return f"{self.het_job_id}+{self.het_offset or 0}"
        return str(self.job_id)

    @property
    def task_count(self) -> int:
        """Return how many jobs this is: 1, or the pending tasks of an array."""
        return sum(map(len, self.tasks)) or 1

    @property
    def word(self) -> str:
        """Return the reason as one word of Slurm's enumeration, without the details that Slurm may add."""
        return self.reason.partition(",")[0].strip()

    @property
    def is_held(self) -> bool:
        """Return whether the job does not start until it is released."""
        return self.word in HELD_REASONS or self.priority == 0

    @property
    def is_eligible(self) -> bool:
        """Return whether the scheduler considers the job."""
        return not self.is_held and self.word not in NOT_ELIGIBLE_REASONS


class JobsAhead(NamedTuple):
    """How many jobs are ahead of one in a partition, what they request, and how many there are in all."""

    jobs: int
    cores: int
    gpus: int
    total: int


@dataclass(frozen=True, kw_only=True)
class PendingQueue:
    """Every pending job, newest submission first; ``unreadable_rows`` counts what could not be parsed."""

    jobs: tuple[PendingJob, ...] = ()
    cluster: str = ""
    taken_at_seconds: float = 0.0
    unreadable_rows: int = 0

    def find(self, shown_id: str) -> PendingJob | None:
        """Return a job by its ID as squeue writes it: 12, 12_3, 12+1 or 12_[3-24%2]; None for a whole array."""
        array_id, bracket, _ = shown_id.partition("_[")
        if bracket:
            tasks = self.find_array(int(array_id)) if array_id.isdecimal() else ()
            # Some of these tasks may have started since.
            return next((job for job in tasks if job.shown_id == shown_id), tasks[0] if tasks else None)
        base, mark, part = shown_id.replace("+", "_").partition("_")
        if not base.isdecimal() or (mark and not part.isdecimal()):
            return None
        found = self._by_id.get(int(base), ())
        if not mark:
            return next((job for job in found if job.array_job_id is None and job.job_id == int(base)), None)
        if "+" in shown_id:
            return next((job for job in found if job.het_job_id == int(base) and job.het_offset == int(part)), None)
        return next((job for job in found if any(int(part) in tasks for tasks in job.tasks)), None)

    def find_array(self, array_job_id: int) -> tuple[PendingJob, ...]:
        return tuple(job for job in self._by_id.get(array_job_id, ()) if job.array_job_id == array_job_id)

    def in_partition(self, partition: str) -> Sequence[PendingJob]:
        """Return the jobs that may start in a partition, in the order of the scheduler: highest priority first."""
        return self._by_partition.get(partition, ())

    def ahead_of(self, job: PendingJob, partition: str) -> JobsAhead | None:
        """Return what is ahead of a job among those that the scheduler considers; None if it is not one of them."""
        return self._ahead.get((job.job_id, partition))

    def is_considered(self, job_id: int, partition: str) -> bool:
        """Return whether the scheduler considers a job in a partition."""
        return (job_id, partition) in self._ahead

    def of_user(self, user: str) -> Sequence[PendingJob]:
        """Return the jobs of a user, newest submission first."""
        return self._by_user.get(user, ())

    @cached_property
    def _by_user(self) -> Mapping[str, list[PendingJob]]:
        return _group((job.user, job) for job in self.jobs)

    @cached_property
    def _by_id(self) -> Mapping[int, list[PendingJob]]:
        ids = ((dict.fromkeys((job.job_id, job.array_job_id, job.het_job_id)), job) for job in self.jobs)
        return _group((job_id, job) for found, job in ids for job_id in found if job_id is not None)

    @cached_property
    def _ahead(self) -> Mapping[tuple[int, str], JobsAhead]:
        found: dict[tuple[int, str], JobsAhead] = {}
        for partition, jobs in self._by_partition.items():
            considered = [job for job in jobs if job.is_eligible]
            total = sum(job.task_count for job in considered)
            tasks = cores = gpus = 0
            for job in considered:
                found[job.job_id, partition] = JobsAhead(tasks, cores, gpus, total)
                tasks += job.task_count
                cores += job.task_count * job.cpus
                gpus += job.task_count * job.gpus
        return found

    @cached_property
    def _by_partition(self) -> Mapping[str, list[PendingJob]]:
        ordered = sorted(self.jobs, key=lambda job: (-(job.priority or 0), job.submit_seconds, job.job_id))
        return _group((partition, job) for job in ordered for partition in job.partitions)


def _group(pairs: Iterable[tuple[Key, Item]]) -> Mapping[Key, list[Item]]:
    """Return the items of each key, in their order."""
    found: dict[Key, list[Item]] = {}
    for key, item in pairs:
        found.setdefault(key, []).append(item)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPriority:
    """The priority of one job in one partition, and the weighted factors that it is the sum of."""

    job_id: int
    partition: str
    total: float
    factors: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JobPriorities:
    """The priorities of all eligible jobs; ``unreadable_rows`` counts what could not be parsed."""

    priorities: tuple[JobPriority, ...] = ()
    unreadable_rows: int = 0

    def of(self, job: PendingJob) -> Sequence[JobPriority]:
        return self._by_job.get(job.job_id, ())

    def in_partition(self, partition: str) -> Sequence[JobPriority]:
        """Return the priorities of all jobs of a partition, highest first."""
        return self._by_partition.get(partition, ())

    @cached_property
    def _by_job(self) -> Mapping[int, list[JobPriority]]:
        return _group((priority.job_id, priority) for priority in self.priorities)

    @cached_property
    def _by_partition(self) -> Mapping[str, list[JobPriority]]:
        ordered = sorted(self.priorities, key=lambda priority: (-priority.total, priority.job_id))
        return _group((priority.partition, priority) for priority in ordered)


COLUMNS = (
    "JobID", "ArrayJobID", "ArrayTaskID", "HetJobID", "HetJobOffset", "UserName", "Account", "Partition", "QOS",
    "State", "Reason", "SubmitTime", "EligibleTime", "StartTime", "LastSchedEval", "TimeLimit", "NumNodes", "NumCPUs",
    "tres-alloc", "PriorityLong", "Dependency", "Licenses", "Reservation", "Feature", "SchedNodes", "Name",
)  # fmt: skip
MAX_JOBS = 200_000
"""Rows that are kept; Slurm's MaxJobCount is rarely above it."""

_NOTHING = frozenset({"", "N/A", "(null)", "NONE", "None assigned"})
_LIMIT = re.compile(r"(?:(?P<days>[0-9]{1,6})-)?(?P<clock>[0-9]{1,6}(?::[0-9]{2}){0,2})", re.ASCII)
_MAX_TIME = 1 << 33


def read_pending(run: RunCommand, separator: str, *, now_seconds: float, cluster: str = "") -> PendingQueue:
    """Run squeue and return the queue; ``now_seconds`` is the time to put on it."""
    return parse_pending(run("squeue", arguments(separator)), separator, now_seconds=now_seconds, cluster=cluster)


def read_reason(run: RunCommand, job_id: int, cluster: str = "") -> str:
    """Return why a job is pending now; empty if it is not pending, or cannot be read."""
    arguments = ("--noheader", "--states=PENDING", f"--jobs={job_id}", "--format=%r")
    try:
        answer = (run_in_cluster(run, cluster) if cluster else run)("squeue", arguments)
    except SourceError:
        return ""
    return next((line.strip() for line in answer.decode("utf-8", "replace").splitlines() if line.strip()), "")


def arguments(separator: str) -> tuple[str, ...]:
    """Return the arguments of one call; a row ends with the mark twice."""
    mark = _mark(separator)
    columns = ",".join(f"{column}:{mark}" for column in COLUMNS)
    return ("--noheader", "--all", "--states=PENDING", "--local", f"--Format={columns}{mark}")


def parse_pending(answer: bytes, separator: str, *, now_seconds: float, cluster: str = "") -> PendingQueue:
    """Split rows and columns by the separator alone; an invalid row is counted and skipped."""
    mark = _mark(separator)
    rows = answer.decode("utf-8", "surrogateescape").split(f"{mark}{mark}\n")
    if rows.pop():
        raise MalformedAnswer("squeue: the answer ends in the middle of a row")
    jobs: list[PendingJob] = []
    for row in rows[:MAX_JOBS]:
        try:
            jobs.append(_parse_row(row.split(mark)))
        except ValueError:
            continue
    return PendingQueue(
        jobs=tuple(sorted(jobs, key=lambda job: (job.submit_seconds, job.job_id), reverse=True)),
        cluster=cluster,
        taken_at_seconds=now_seconds,
        unreadable_rows=len(rows) - len(jobs),
    )


def parse_limit(text: str) -> int | None:
    """Parse a time limit such as 1-02:00:00 or 30:00 into seconds; None if it is unlimited or not set."""
    found = _LIMIT.fullmatch(text)
    if not found:
        return None
    parts = [int(part) for part in found["clock"].split(":")]
    if found["days"] is not None:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        return int(found["days"]) * 86_400 + hours * 3600 + minutes * 60 + seconds
    hours, minutes, seconds = (0, 0, *parts)[-3:]
    return hours * 3600 + minutes * 60 + seconds


def _mark(separator: str) -> str:
    # Begins with a byte that is nowhere else in it, so the end of a name can never be taken for its beginning.
    return f"\x1f{separator}"


def _parse_row(fields: list[str]) -> PendingJob:
    values = dict(zip(COLUMNS, fields, strict=True))
    tres = parse_tres(_text(values["tres-alloc"]))
    tasks = _text(values["ArrayTaskID"])
    return PendingJob(
        job_id=int(values["JobID"]),
        name=values["Name"],
        user=values["UserName"],
        account=_text(values["Account"]),
        partitions=tuple(values["Partition"].split(",")),
        qos=_text(values["QOS"]),
        state=values["State"],
        reason=values["Reason"],
        submit_seconds=_need_time(values["SubmitTime"]),
        eligible_seconds=_parse_time(values["EligibleTime"]),
        start_seconds=_parse_time(values["StartTime"]),
        evaluated_seconds=_parse_time(values["LastSchedEval"]),
        time_limit_seconds=parse_limit(values["TimeLimit"]),
        nodes=int(values["NumNodes"]),
        cpus=int(values["NumCPUs"]),
        memory_bytes=tres.memory_bytes,
        gpus=sum(gres.count for gres in tres.gres if gres.name == "gpu"),
        priority=int(values["PriorityLong"]),
        array_job_id=int(values["ArrayJobID"]) if tasks else None,
        tasks=parse_tasks(tasks) if tasks else (),
        tasks_text=tasks,
        het_job_id=_parse_number(values["HetJobID"]) or None,
        het_offset=_parse_number(values["HetJobOffset"]),
        dependency=_text(values["Dependency"]),
        licenses=_text(values["Licenses"]),
        reservation=_text(values["Reservation"]),
        features=_text(values["Feature"]),
        planned_nodes=_text(values["SchedNodes"]),
    )


def _text(value: str) -> str:
    return "" if value in _NOTHING else value


def _parse_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _parse_time(text: str) -> int | None:
    """Parse seconds since 1970; 0 and texts such as Unknown are None."""
    number = _parse_number(text)
    return number if number and number < _MAX_TIME else None


def _need_time(text: str) -> int:
    if (seconds := _parse_time(text)) is None:
        raise ValueError(f"{text!r} is not a time")
    return seconds
