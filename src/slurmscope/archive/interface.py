# SPDX-License-Identifier: Apache-2.0
"""Define the interface of the job archive. Every read takes the viewer and returns only what they may see."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from slurmscope.archive.job_columns import JobRow
from slurmscope.archive.metric_ranges import JobHistogram, JobMetric, MetricRange
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.rule import Severity
from slurmscope.jobs.runs import RunId
from slurmscope.jobs.suspect_nodes import JudgedNode
from slurmscope.jobs.viewer import Viewer
from slurmscope.jobs.wait_times import WaitingTime

T = TypeVar("T")


class PagePosition(NamedTuple):
    """Position where a page of a list ended; ``value`` is that of the sorted column, None for submission."""

    submit_seconds: int
    job_id: int
    value: float | str | None = None


class SortColumn(enum.StrEnum):
    """What lists are sorted by, by the name in ``JobRow``."""

    SUBMIT = "submit_seconds"
    NAME = "name"
    USER = "user"
    ACCOUNT = "account"
    STATE = "state"
    RUN = "run_seconds"
    NODES = "nodes"
    CORES = "cpus"
    CPU = "cpu_ratio"
    MEMORY = "memory_ratio"
    GPU = "gpu_ratio"
    TIME = "time_ratio"

    @property
    def key(self) -> str:
        return self.name.lower()

    @property
    def is_text(self) -> bool:
        return self in {SortColumn.NAME, SortColumn.USER, SortColumn.ACCOUNT, SortColumn.STATE}


class ListOrder(NamedTuple):
    """The order of a list: by a column, then by submission and job ID, all in the same direction.

    Jobs whose value is not known are left out of a sorted list.
    """

    column: SortColumn = SortColumn.SUBMIT
    is_ascending: bool = False

    @property
    def reversed(self) -> ListOrder:
        return ListOrder(self.column, not self.is_ascending)

    def place(self, row: Any) -> PagePosition:
        """Return the position of a row."""
        value = None if self.column is SortColumn.SUBMIT else getattr(row, self.column.value)
        return PagePosition(row.submit_seconds, row.job_id, value)

    @staticmethod
    def rank(place: PagePosition) -> tuple[Any, int, int]:
        """Return what positions are ordered by."""
        return 0 if place.value is None else place.value, place.submit_seconds, place.job_id

    def sort(self, rows: Iterable[T]) -> list[T]:
        """Return rows in this order, without those whose value is not known."""
        known = [row for row in rows if self.column is SortColumn.SUBMIT or self.place(row).value is not None]
        return sorted(known, key=lambda row: self.rank(self.place(row)), reverse=not self.is_ascending)

    def is_after(self, row: Any, after: PagePosition | None) -> bool:
        """Return whether a row follows a position."""
        if after is None:
            return True
        own, other = self.rank(self.place(row)), self.rank(after)
        return own > other if self.is_ascending else own < other


NEWEST_FIRST = ListOrder()


class JobCount(NamedTuple):
    """How many jobs a list has; ``is_more`` if only so many were counted."""

    jobs: int
    is_more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Select jobs; None and empty mean all. Times are of submission."""

    cluster: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    state: str = ""
    name: str = ""
    """Prefix of the job's name."""
    name_part: str = ""
    """Part of the job's name, in upper or lower case."""
    names: tuple[str, ...] = ()
    """Whole names of jobs; the archive puts them in the place of a part of a name."""
    reason: str = ""
    """Slurm's word for why a job is pending; jobs that have started have none."""
    rule: str = ""
    worst: Severity | None = None
    array_job_id: int | None = None
    het_job_id: int | None = None
    node: str = ""
    """Name of a node that the job ran on."""
    shown_ids: tuple[str, ...] = ()
    """Job IDs as users write them; that of an array, or of a heterogeneous job, selects its tasks or parts."""
    since_seconds: int | None = None
    until_seconds: int | None = None
    is_running: bool | None = None
    """Whether the job holds its nodes; a suspended one does."""
    ranges: tuple[MetricRange, ...] = ()
    """Ranges that numbers of the job must be in; a number that is unknown is in none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """One page of a list; ``next_key`` is None on the last."""

    rows: tuple[JobRow, ...]
    next_key: PagePosition | None


class GroupBy(enum.StrEnum):
    """What totals are grouped by."""

    CLUSTER = "cluster"
    USER = "user"
    ACCOUNT = "account"
    PARTITION = "partition"
    STATE = "state"
    DAY = "day"
    RULE = "rule"


@dataclass(frozen=True, slots=True, kw_only=True)
class UseTotal:
    """Totals of jobs; ``key`` is a name, or a day as YYYY-MM-DD (UTC, of submission).

    ``measured_core_seconds`` is the part of ``core_seconds`` whose use was measured: ``used_core_seconds`` is out of
    that part. The same holds for GPUs.
    """

    key: str
    jobs: int
    core_seconds: float
    measured_core_seconds: float
    used_core_seconds: float
    gpu_seconds: float
    measured_gpu_seconds: float
    used_gpu_seconds: float
    jobs_with_findings: int
    blocked_core_seconds: float = 0.0
    """Time of cores that other jobs could not use, because these jobs requested memory that they did not need."""
    failed_core_seconds: float = 0.0
    """All core time of jobs that failed; ``model.waste`` says in which states."""
    timeout_core_seconds: float = 0.0
    """All core time of jobs that reached their time limit."""
    unused_core_seconds: float = 0.0
    """Measured idle core time of all other jobs."""
    failed_gpu_seconds: float = 0.0
    timeout_gpu_seconds: float = 0.0
    unused_gpu_seconds: float = 0.0
    energy_jobs: int = 0
    """Jobs whose energy was measured: the sums of energy, carbon and cost are of these."""
    energy_joules: float = 0.0
    carbon_grams: float = 0.0
    energy_cost: float = 0.0
    startup_core_seconds: float = 0.0
    """The part of the measured idle time before jobs began to work."""
    tail_core_seconds: float = 0.0
    """The part of the measured idle time after jobs had worked for the last time."""
    startup_gpu_seconds: float = 0.0
    tail_gpu_seconds: float = 0.0

    @property
    def lost_core_seconds(self) -> float:
        """Return the core time that was lost, each second to one cause; never more than was allocated."""
        return self.failed_core_seconds + self.timeout_core_seconds + self.unused_core_seconds

    @property
    def lost_gpu_seconds(self) -> float:
        """Return the GPU time that was lost, each second to one cause."""
        return self.failed_gpu_seconds + self.timeout_gpu_seconds + self.unused_gpu_seconds

    @property
    def cpu_ratio(self) -> float | None:
        return self.used_core_seconds / self.measured_core_seconds if self.measured_core_seconds else None

    @property
    def idle_core_seconds(self) -> float | None:
        return self.measured_core_seconds - self.used_core_seconds if self.measured_core_seconds else None

    @property
    def gpu_ratio(self) -> float | None:
        return self.used_gpu_seconds / self.measured_gpu_seconds if self.measured_gpu_seconds else None


class TotalOrder(enum.StrEnum):
    """What totals are ordered by, largest first."""

    IDLE = "idle_core_seconds"
    LOST = "lost_core_seconds"
    FAILED = "failed_core_seconds"
    TIMEOUT = "timeout_core_seconds"
    UNUSED = "unused_core_seconds"
    BLOCKED = "blocked_core_seconds"
    LOST_GPU = "lost_gpu_seconds"
    CORES = "core_seconds"
    GPUS = "gpu_seconds"
    JOBS = "jobs"

    def read(self, total: UseTotal) -> float:
        """Return the number to order by; what was not measured comes last."""
        return float(getattr(total, self.value) or 0.0)


class Archive(Protocol):
    """Store job reports; raises ``ArchiveError``."""

    def save(self, reports: Sequence[JobReport]) -> None:
        """Store reports, replacing older ones of the same runs, all or none."""
        ...

    def find(self, viewer: Viewer, job_id: int, *, cluster: str = "") -> tuple[JobReport, ...]:
        """Return the runs of the job with this unique id, newest first; none if the viewer may not see them."""
        ...

    def find_shown(self, viewer: Viewer, shown_id: str, *, cluster: str = "") -> tuple[JobRow, ...]:
        """Return jobs by their id as users write it: 12, 12_3, 12+1; for a whole array see ``list_jobs``."""
        ...

    def list_jobs(
        self,
        viewer: Viewer,
        wanted: JobFilter,
        *,
        after: PagePosition | None = None,
        limit: int = 50,
        order: ListOrder = NEWEST_FIRST,
    ) -> JobPage:
        """Return one page of jobs."""
        ...

    def count(self, viewer: Viewer, wanted: JobFilter) -> JobCount:
        """Count jobs, perhaps up to a limit."""
        ...

    def total(
        self,
        viewer: Viewer,
        wanted: JobFilter,
        by: GroupBy,
        *,
        limit: int = 100,
        order: TotalOrder = TotalOrder.IDLE,
    ) -> tuple[UseTotal, ...]:
        """Return totals, largest first; days in order."""
        ...

    def histogram(self, viewer: Viewer, wanted: JobFilter, metric: JobMetric) -> JobHistogram:
        """Count the newest matching jobs in classes of a metric."""
        ...

    def judge_nodes(self, since_seconds: int) -> tuple[JudgedNode, ...]:
        """Return how the jobs of each node ended, compared with the same jobs elsewhere, worst nodes first."""
        ...

    def count_running(self, viewer: Viewer, cluster: str = "") -> Mapping[str, int]:
        """Return how many running jobs the viewer sees on each node of a cluster."""
        ...

    def waiting_times(self, since_seconds: int, *, cluster: str = "", partition: str = "") -> tuple[WaitingTime, ...]:
        """Return how long jobs of each shape waited that were submitted since this day; it contains no names."""
        ...

    def clusters(self) -> tuple[str, ...]:
        """Return the names of the clusters that jobs are of, in order."""
        ...

    def unfinished_runs(self, *, cluster: str = "") -> frozenset[RunId]:
        """Return every run that was running when it was last saved."""
        ...

    def ended_runs(self, job_ids: Sequence[int]) -> frozenset[RunId]: ...

    def close(self) -> None: ...


MAX_NOTE = 2000
MAX_TAG = 32
MAX_VIEW_NAME = 80
MAX_VIEW_QUERY = 2000


class NotedKind(enum.StrEnum):
    """What a note or tag is about."""

    JOB = "job"
    USER = "user"


class NotedThing(NamedTuple):
    """Name a job by its cluster and ID as users write it, or a user; a user has no cluster."""

    kind: NotedKind
    cluster: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note of a member of staff."""

    note_id: int
    author: str
    at_seconds: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedView:
    """A filter of the job list with a name."""

    view_id: int
    owner: str
    name: str
    query: str
    """As in the address, beginning with ``?``; empty for all jobs."""
    is_shared: bool
    """Whether other staff see it."""
