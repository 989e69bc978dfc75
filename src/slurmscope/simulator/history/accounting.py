# SPDX-License-Identifier: Apache-2.0
"""Answer like Slurm's accounting for a simulated cluster: jobs in its queue, and jobs that ended before."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random

from slurmscope.core.tres import Gres
from slurmscope.jobs.record import JobRecord
from slurmscope.simulator.cluster.records import SimulatedCluster, SimulatedJob
from slurmscope.simulator.history.history import PastJob
from slurmscope.simulator.history.requests import GPU_KINDS, SEVERAL_NODES, SHARES
from slurmscope.simulator.history.workload_kinds import WorkloadKind, make_workload
from slurmscope.simulator.history.workloads import Workload, draw_program
from slurmscope.slurm.states import WAITING_STATES

_ENDED_KINDS = frozenset(
    {
        WorkloadKind.OUT_OF_MEMORY,
        WorkloadKind.TIMED_OUT,
        WorkloadKind.TOO_SHORT,
        WorkloadKind.FAILED,
        WorkloadKind.NODE_FAILED,
    }
)
_SHORTEST_LENGTH_SECONDS = 900.0


class SimulatedAccounting:
    """Every job of a simulated cluster and the workload of each started one; safe for any thread."""

    def __init__(self, cluster: SimulatedCluster, past: Iterable[PastJob] = ()) -> None:
        """Take the queue of now, and the jobs that ended before."""
        self._cluster = cluster.name
        running = tuple(_running_jobs(cluster))
        self._ended = sorted((job.record for job in past), key=lambda record: record.end_seconds or 0)
        self._ends = [record.end_seconds or 0 for record in self._ended]
        self._current = (
            *(job.record for job in running),
            *(record_of(cluster, job) for job in cluster.jobs if job.state in WAITING_STATES),
        )
        self._workloads = {job.record.job_id: job.workload for job in (*running, *past)}
        self.running_workloads = tuple(job.workload for job in running)
        self._by_id = _index((*self._ended, *self._current))

    def find_workload(self, job_id: int) -> Workload | None:
        return self._workloads.get(job_id)

    def clusters(self) -> tuple[str, ...]:
        return (self._cluster,)

    def of(self, cluster: str) -> SimulatedAccounting:
        """Return itself."""
        return self

    def read_jobs(self, job_ids: Sequence[int]) -> tuple[JobRecord, ...]:
        """Return these jobs; the number of an array or heterogeneous job stands for all its parts."""
        found = {record.job_id: record for job_id in job_ids for record in self._by_id.get(job_id, ())}
        return tuple(found.values())

    def read_ended(self, since_seconds: int, until_seconds: int) -> Iterator[JobRecord]:
        """Yield jobs that ended in this time, in the order of their ends."""
        yield from self._ended[bisect_left(self._ends, since_seconds) : bisect_right(self._ends, until_seconds)]

    def read_current(self) -> Iterator[JobRecord]:
        """Yield jobs that run or wait now."""
        yield from self._current

    def read_user(self, user: str, since_seconds: int, until_seconds: int) -> Iterator[JobRecord]:
        """Yield the runs of a user that were pending or running at any time in this period."""
        known = (*self._ended[bisect_left(self._ends, since_seconds) :], *self._current)
        yield from (record for record in known if record.user == user and record.submit_seconds <= until_seconds)


class JoinedAccounting:
    """Several simulated clusters in one accounting, as slurmdbd does."""

    def __init__(self, members: Mapping[str, SimulatedAccounting]) -> None:
        """Take the accounting of each cluster, by name."""
        self._members = members

    def clusters(self) -> tuple[str, ...]:
        return tuple(self._members)

    def of(self, cluster: str) -> SimulatedAccounting:
        return self._members[cluster]

    def read_jobs(self, job_ids: Sequence[int]) -> tuple[JobRecord, ...]:
        return tuple(record for member in self._members.values() for record in member.read_jobs(job_ids))

    def read_ended(self, since_seconds: int, until_seconds: int) -> Iterator[JobRecord]:
        """Yield jobs that ended in this time, cluster by cluster."""
        for member in self._members.values():
            yield from member.read_ended(since_seconds, until_seconds)

    def read_current(self) -> Iterator[JobRecord]:
        """Yield jobs that run or wait now."""
        for member in self._members.values():
            yield from member.read_current()

    def read_user(self, user: str, since_seconds: int, until_seconds: int) -> Iterator[JobRecord]:
        """Yield the runs of a user that were pending or running at any time in this period."""
        for member in self._members.values():
            yield from member.read_user(user, since_seconds, until_seconds)


def record_of(cluster: SimulatedCluster, job: SimulatedJob) -> JobRecord:
    """Return the accounting record of a queued job."""
    has_started = job.state == "RUNNING"
    is_array = job.array_id is not None
    return JobRecord(
        cluster=cluster.name,
        job_id=job.id,
        name=job.name,
        user=job.user.name,
        uid=job.user.uid,
        account=job.account or "",
        partition=job.partitions[0],
        qos=job.qos,
        state="RUNNING" if has_started else "PENDING",
        submit_seconds=job.submit_time,
        array_job_id=job.array_id,
        array_task_id=job.tasks[0] if is_array and has_started else None,
        het_job_id=job.het_id,
        het_offset=job.het_offset,
        eligible_seconds=job.submit_time,
        start_seconds=job.start_time if has_started else None,
        time_limit_seconds=job.time_limit_seconds,
        nodes=job.node_names,
        node_count=job.nodes,
        cpus=job.cpus,
        memory_bytes=job.memory_bytes or None,
        gres=(Gres(name="gpu", model=job.gpu_type, count=job.gpus),) if job.gpus else (),
        restarts=job.restarts,
        reason="" if has_started else job.reason,
        submit_line="sbatch job.sh",
        work_dir=f"/home/{job.user.name}",
    )


def _running_jobs(cluster: SimulatedCluster) -> Iterator[PastJob]:
    taken: Counter[str] = Counter()
    for job in cluster.jobs:
        if job.state == "RUNNING" and job.start_time is not None:
            record = record_of(cluster, job)
            kind = _running_kind(record)
            # It goes on for a while: what grows must not have stopped growing already.
            length_seconds = max(_SHORTEST_LENGTH_SECONDS, 1.2 * (cluster.now - job.start_time))
            program = draw_program(record.job_id, record.gpus)
            made = make_workload(record, kind, length_seconds=length_seconds, program=program)
            yield PastJob(record, kind, _place_gpus(made, taken))


def _place_gpus(workload: Workload, taken: Counter[str]) -> Workload:
    """Give a job the GPUs of its nodes behind those that are taken."""
    nodes = []
    for node in workload.nodes:
        first = taken[node.name]
        nodes.append(replace(node, gpus=tuple(replace(gpu, number=first + gpu.number) for gpu in node.gpus)))
        taken[node.name] += len(node.gpus)
    return workload._replace(nodes=tuple(nodes))


def _running_kind(record: JobRecord) -> WorkloadKind:
    """Choose a kind that such a job can have: a job with one core cannot leave cores idle."""
    random = Random(f"kind of {record.job_id}")
    can = [kind for kind in SHARES if kind not in _ENDED_KINDS and _suits(kind, record)]
    return random.choices(can, weights=[SHARES[kind] for kind in can])[0]


def _suits(kind: WorkloadKind, record: JobRecord) -> bool:
    if (kind in GPU_KINDS) != bool(record.gpus) or (kind in SEVERAL_NODES and record.node_count < 2):
        return False
    if kind in {WorkloadKind.SERIAL, WorkloadKind.CORE_IMBALANCE}:
        return record.node_count == 1 and (record.cpus or 0) > 1
    return True


def _index(records: Iterable[JobRecord]) -> Mapping[int, list[JobRecord]]:
    found: dict[int, list[JobRecord]] = {}
    for record in records:
        for job_id in dict.fromkeys((record.job_id, record.array_job_id, record.het_job_id)):
            if job_id is not None:
                found.setdefault(job_id, []).append(record)
    return found
