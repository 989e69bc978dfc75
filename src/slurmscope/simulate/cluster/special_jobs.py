# SPDX-License-Identifier: Apache-2.0
"""Generate jobs that are rare in real queues and break parsers: every state, reason, name, dialect, kind of array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from slurmscope.simulate.cluster.people import HOSTILE_NAMES
from slurmscope.simulate.cluster.placement import ResourceRequest
from slurmscope.simulate.cluster.records import SimulatedJob
from slurmscope.simulate.cluster.submission import Submission
from slurmscope.simulate.cluster.texts import MIB

_HOLDING = ("CONFIGURING", "COMPLETING", "SUSPENDED", "RESIZING", "SIGNALING", "STOPPED")

# State, reason, wait status as squeue prints it: exit code times 256, or the signal.
_ENDED = (
    ("COMPLETED", "None", 0),
    ("CANCELLED", "None", 15),
    ("FAILED", "NonZeroExitCode", 256),
    ("TIMEOUT", "TimeLimit", 0),
    ("OUT_OF_MEMORY", "OutOfMemory", 125 * 256),
    ("NODE_FAIL", "NodeDown", 1),
    ("PREEMPTED", "None", 0),
    ("BOOT_FAIL", "None", 0),
    ("DEADLINE", "DeadLine", 0),
    ("STAGE_OUT", "None", 0),
)

_WAITING = (
    ("REQUEUED", "BeginTime"),
    ("REQUEUE_FED", "None"),
    ("REQUEUE_HOLD", "job requeued in held state"),
    ("RESV_DEL_HOLD", "ReservationDeleted"),
    ("REVOKED", "Revoked"),
    ("SPECIAL_EXIT", "JobHeldUser"),
)

PENDING_REASONS = (
    "Priority", "Resources", "Dependency", "JobHeldUser", "JobHeldAdmin", "BeginTime", "Licenses",
    "QOSMaxJobsPerUserLimit", "QOSGrpCpuLimit", "AssocGrpCpuLimit", "AssocGrpGRES", "AssocMaxJobsLimit",
    "PartitionTimeLimit", "PartitionDown", "Reservation", "DependencyNeverSatisfied", "ReqNodeNotAvail",
    "ReqNodeNotAvail, UnavailableNodes:node[03,07-09],gpu02",
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
    "JobArrayTaskLimit,JobHeldUser", "None", "InvalidQOS", "BadConstraints", "MaxMemPerLimit",
)  # fmt: skip
HELD_REASONS = frozenset({"JobHeldUser", "JobHeldAdmin"})

# A list whose text is longer than the 64 bytes after which squeue cuts it.
_SCATTERED = (*range(1, 120, 7), 121, 122, 130, 133, 137, 144, 150, 151, 155, 163, 168, 170)


# Indexes and the limit of tasks that may run at once.
_ARRAYS = (((1, 3, 5, 9), 1), (tuple(range(0, 16, 3)), None), ((7,), None), (_SCATTERED, None), (_SCATTERED, 2))

_COMPONENT_CPUS = (1, 2, 4)

# Nodes, memory per node, GPUs per node: memory that prints in M, G, T, halves of them, and not at all.
_REQUESTS = (
    (1, 1_572_864, 0),
    (4, 524_288, 0),
    (1, 300_000, 0),
    (3, 716_800, 0),
    (1, 2560, 0),
    (1, 0, 0),
    *((2, 65_536, 4),) * 10,
)


def add_special_jobs(submission: Submission) -> None:
    """Add special jobs until none is left or the queue is as long as wanted."""
    for make in (_every_state, _arrays, _heterogeneous, _requests, _reasons, _names):
        for job in make(submission):
            submission.add(job)


def wait(submission: Submission, job: SimulatedJob, reason: str) -> SimulatedJob:
    """Make a job pending for a reason; a held job has no priority, a dependency names another job."""
    start_time = submission.now + 3600 if reason in {"BeginTime", "Resources"} else None
    limit = job.time_limit_seconds
    return replace(
        job,
        reason=reason,
        priority=0 if reason in HELD_REASONS else job.priority,
        dependency=f"afterok:{job.id - 1}(unfulfilled)" if reason.startswith("Dependency") else None,
        start_time=start_time,
        end_time=None if start_time is None or limit is None else start_time + limit,
    )


def _every_state(submission: Submission) -> Iterator[SimulatedJob]:
    for state in _HOLDING:
        started = submission.start(_small(submission), state) if submission.wants() else None
        if started:
            yield started
    for state, reason, exit_status in _ENDED:
        if submission.wants():
            yield submission.finish(_small(submission), state, reason=reason, exit_status=exit_status)
    for state, reason in _WAITING:
        if submission.wants():
            yield replace(wait(submission, _small(submission), reason), state=state, restarts=1)


def _arrays(submission: Submission) -> Iterator[SimulatedJob]:
    for tasks, limit in _ARRAYS:
        if submission.wants(len(tasks)):
            base = wait(submission, _small(submission), "JobArrayTaskLimit" if limit else "Priority")
            yield replace(base, array_id=base.id, tasks=tasks, task_limit=limit)


def _heterogeneous(submission: Submission) -> Iterator[SimulatedJob]:
    for is_running in (True, False):
        if not submission.wants(len(_COMPONENT_CPUS)):
            return
        leader = _small(submission)
        for offset, cpus in enumerate(_COMPONENT_CPUS):
            draft = replace(_small(submission, cpus), id=leader.id) if not offset else _small(submission, cpus)
            part = replace(draft, het_id=leader.id, het_offset=offset, user=leader.user, account=leader.account)
            yield (submission.start(part) if is_running else None) or wait(submission, part, "Resources")


def _requests(submission: Submission) -> Iterator[SimulatedJob]:
    names = tuple(submission.partitions)
    with_gpus = "gpu" if "gpu" in names else names[-1]
    for number, (nodes, memory_mib, gpus) in enumerate(_REQUESTS):
        if submission.wants():
            request = ResourceRequest(nodes=nodes, cpus=4, memory_bytes=memory_mib * MIB, gpus=gpus)
            job = submission.draft(with_gpus if gpus else names[0], request, submission.age())
            gpu_type = "a100" if gpus and number % 2 else ""
            yield replace(job, gpu_type=gpu_type, dialect=number % 5, is_memory_per_cpu=False, priority=2**32 - 2)
    for partitions in (names[:2], names[:3], names[-2:]):
        if submission.wants():
            yield replace(_small(submission), partitions=partitions)
    if submission.wants():
        yield replace(_small(submission), account=None, qos="", time_limit_seconds=None)


def _reasons(submission: Submission) -> Iterator[SimulatedJob]:
    for reason in PENDING_REASONS:
        if submission.wants():
            yield wait(submission, _small(submission), reason)


def _names(submission: Submission) -> Iterator[SimulatedJob]:
    for number, name in enumerate(HOSTILE_NAMES):
        if submission.wants():
            job = replace(_small(submission), name=name)
            yield (submission.start(job) if number % 2 else None) or job


def _small(submission: Submission, cpus: int = 1) -> SimulatedJob:
    return submission.draft(
        next(iter(submission.partitions)), ResourceRequest(cpus=cpus, memory_bytes=cpus * 1024 * MIB), submission.age()
    )
