# SPDX-License-Identifier: Apache-2.0
"""Hold the accounting record of one run of a job."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from slurmscope.core.tres import Gres
from slurmscope.jobs.submit_line import ONE_OF, submit_options
from slurmscope.slurm.states import ACTIVE_STATES, ENDED_STATES, RUNNING, WAITING_STATES

MAX_STEPS = 1000
"""Most steps that a record holds; a script that calls srun in a loop can have a hundred thousand."""


LOCAL_ID_BITS = 26
"""How many bits of a job ID the cluster assigns; in a federation, those above have the number of its origin."""


class FederatedId(NamedTuple):
    """The parts of the ID of a job of a federation."""

    origin: int
    """Number that the federation gave the cluster to which the job was submitted."""
    local_id: int
    """The ID that this cluster gave the job."""


def split_federated(job_id: int) -> FederatedId | None:
    """Return the parts of a job ID of a federation; None for any other ID."""
    origin, local_id = divmod(job_id, 1 << LOCAL_ID_BITS)
    return FederatedId(origin, local_id) if origin else None


def is_one_job(shown_id: str, users: Collection[str]) -> bool:
    """Return whether jobs with this ID in several clusters are runs of one federated job.

    A job that is requeued may run in another cluster of the federation. The archive may have jobs of several
    federations, but hardly of the same user and ID. ``shown_id`` is the ID as users write it: 12, 12_3 or 12+1.
    """
    base = shown_id.replace("+", "_").partition("_")[0]
    return base.isdecimal() and split_federated(int(base)) is not None and len(set(users)) == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One step; ``max_rss_bytes`` is MaxRSS: the peak of its largest task, as Slurm sampled it."""

    name: str
    state: str
    start_seconds: int | None = None
    end_seconds: int | None = None
    tasks: int | None = None
    nodes: int | None = None
    cpu_seconds: float | None = None
    max_rss_bytes: int | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    node_list: str = ""
    """Its nodes as Slurm writes them: n[1-2]."""
    request: str = ""
    """The options by which its srun set its size: --nodes=2 --mem=4G."""


class EarlierSize(NamedTuple):
    """What a job had until it was resized."""

    until_seconds: int
    cpus: int
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One run of one job; a task of an array, or a part of a heterogeneous job, is a job of its own.

    ``job_id`` is unique in the cluster, unlike the id that users see for an array task. Times are Unix times. Amounts
    are allocated, or requested by a job that has not started; None is unknown, and as a time limit unlimited.
    """

    cluster: str
    job_id: int
    name: str
    user: str
    account: str
    partition: str
    state: str
    submit_seconds: int
    uid: int | None = None
    qos: str = ""
    array_job_id: int | None = None
    array_task_id: int | None = None
    array_tasks: int | None = None
    """Tasks of an array that have not started, of the record that stands for all of them; None is unknown."""
    het_job_id: int | None = None
    het_offset: int | None = None
    eligible_seconds: int | None = None
    start_seconds: int | None = None
    end_seconds: int | None = None
    suspended_seconds: int = 0
    """How long the job was suspended, by staff or by a job of higher priority."""
    time_limit_seconds: int | None = None
    nodes: tuple[str, ...] = ()
    node_count: int = 0
    cpus: int | None = None
    requested_cpus: int | None = None
    """Requested cores; fewer than ``cpus`` where Slurm allocates whole cores, sockets or nodes, or cores for memory."""
    requested_gpus: int | None = None
    """Requested GPUs; with --exclusive, Slurm also allocates those of the node that were not requested."""
    memory_bytes: int | None = None
    gres: tuple[Gres, ...] = ()
    billing: int | None = None
    """Billing weight of the allocation, as the partition's TRESBillingWeights give it."""
    consumed_joules: int | None = None
    """Slurm's ConsumedEnergy: that of the whole nodes while the job ran, where a plugin gathers it."""
    exit_code: int | None = None
    exit_signal: int | None = None
    restarts: int | None = None
    cpu_seconds: float | None = None
    reason: str = ""
    submit_line: str = ""
    script_options: str | None = None
    """The options in its script, as on a command line; None unless the script was read for the one who sees this."""
    work_dir: str = ""
    stdout: str = ""
    """Where its output goes, with patterns such as %j; empty before Slurm 24.05. The same holds for ``stderr``."""
    stderr: str = ""
    failed_node: str = ""
    """The node whose failure ended the job."""
    cancelled_by_uid: int | None = None
    """User ID of who cancelled the job; 0 also if Slurm itself did."""
    jobstats_comment: str = ""
    """The numbers that jobstats stored in its AdminComment; see ``jobs/js1``."""
    earlier_sizes: tuple[EarlierSize, ...] = ()
    """Sizes of a job that was resized while it ran, oldest first; all other amounts are those after the last one."""
    steps: tuple[StepRecord, ...] = ()

    @property
    def options(self) -> Mapping[str, str]:
        """Return the options that it was submitted with, by their long names: the command line overrides the script."""
        typed = self.typed_options
        of_script = submit_options(f"sbatch {self.script_options}") if self.script_options else {}
        overridden = {name for names in ONE_OF if names & typed.keys() for name in names}
        return {**{name: value for name, value in of_script.items() if name not in overridden}, **typed}

    @property
    def typed_options(self) -> Mapping[str, str]:
        """Return the options of the command line, of a heterogeneous job those for this part."""
        return submit_options(self.submit_line, self.het_offset or 0)

    @property
    def shown_id(self) -> str:
        """Return the job ID as users write it."""
        if self.array_job_id is not None and self.array_task_id is not None:
            return f"{self.array_job_id}_{self.array_task_id}"
        if self.het_job_id is not None and self.het_offset is not None:
            return f"{self.het_job_id}+{self.het_offset}"
        return str(self.job_id)

    @property
    def federated(self) -> FederatedId | None:
        """Return the parts of the ID that users write, without the task, if the job was submitted to a federation."""
        return split_federated(self.array_job_id or self.het_job_id or self.job_id)

    @property
    def is_array_rest(self) -> bool:
        return self.array_job_id is not None and self.array_task_id is None

    @property
    def gpus(self) -> int:
        return sum(gres.count for gres in self.gres if gres.name == "gpu")

    def allocated_seconds(self, run_seconds: float) -> tuple[float, float]:
        """Return the core time and the GPU time that were allocated in a run of this length."""
        begin, cores, gpus, rest = self.start_seconds or 0, 0.0, 0.0, run_seconds
        for size in self.earlier_sizes:
            seconds = min(rest, max(0.0, float(size.until_seconds - begin)))
            cores, gpus = cores + size.cpus * seconds, gpus + size.gpus * seconds
            begin, rest = size.until_seconds, rest - seconds
        return cores + (self.cpus or 0) * rest, gpus + self.gpus * rest

    @property
    def derived_exit(self) -> tuple[int | None, int | None]:
        """Return the highest exit code, and signal, of the steps that srun started, as Slurm's DerivedExitCode.

        The batch script is no such step. Both are None without one.
        """
        ends = ((step.exit_code, step.exit_signal) for step in self.steps if step.name[:1].isdecimal())
        return max(ends, key=lambda end: (end[0] or 0, end[1] or 0), default=(None, None))

    @property
    def wait_seconds(self) -> int | None:
        """Return how long the job waited after it was eligible to start, or else after its submission.

        None unless it started. Slurm sets a later eligible time for a job that was held or had a dependency.
        """
        if self.start_seconds is None:
            return None
        since = self.submit_seconds if self.eligible_seconds is None else self.eligible_seconds
        return max(0, self.start_seconds - since)

    @property
    def is_running(self) -> bool:
        """Return whether the job runs now."""
        return self.state == RUNNING

    @property
    def is_active(self) -> bool:
        """Return whether the job holds its nodes, suspended or not."""
        return self.state in ACTIVE_STATES

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_STATES or self.state == "REQUEUED"

    @property
    def is_pending(self) -> bool:
        return self.state in WAITING_STATES and not self.has_ended

    @property
    def is_partial(self) -> bool:
        """Return whether accounting does not have the submitted part of the job yet.

        slurmctld sends the start of a job every few seconds. When a step or the end of the job reaches slurmdbd first,
        slurmdbd makes a record without name, partition and requested resources.
        """
        return not self.partition and self.requested_cpus is None


class JobAccounting(Protocol):
    """Read accounting records, including those of running jobs, of one or several clusters; raises ``SourceError``."""

    def clusters(self) -> tuple[str, ...]:
        """Return the names of the clusters whose jobs are read."""
        ...

    def of(self, cluster: str) -> JobAccounting:
        """Return the accounting of one of these clusters; if another one cannot be read, it is not affected."""
        ...

    def read_jobs(self, job_ids: Sequence[int]) -> tuple[JobRecord, ...]:
        """Return every run of these jobs; the id of an array or heterogeneous job stands for all its parts."""
        ...

    def read_ended(self, since_seconds: int, until_seconds: int) -> Iterator[JobRecord]:
        """Yield runs that ended in this period, including both edges."""
        ...

    def read_current(self) -> Iterator[JobRecord]:
        """Yield running and pending jobs."""
        ...

    def read_user(self, user: str, since_seconds: int, until_seconds: int) -> Iterator[JobRecord]:
        """Yield the runs of a user that were pending or running at any time in this period."""
        ...
