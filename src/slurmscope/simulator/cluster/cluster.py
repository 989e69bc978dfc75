# SPDX-License-Identifier: Apache-2.0
"""Generate a whole cluster from a shape and a time: the same shape and time give the same cluster, byte for byte.

Running jobs really fit: what sinfo reports for a node is the sum of what squeue reports for its jobs.

The simulation puts everything that can break a parser into one cluster: every state, every reason, names that break
programs. A demo should show what people know from their own cluster, so it is reduced to an ordinary day.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random

from slurmscope.core.units import MIB
from slurmscope.simulator.cluster.machines import (
    FreeMachines,
    Machine,
    ResourceRequest,
    Room,
    make_machines,
    make_partitions,
)
from slurmscope.simulator.cluster.records import (
    CPU_HOLDING_STATES,
    ENDED_STATES,
    HOSTILE_NAMES,
    QOS,
    Partition,
    Shape,
    SimulatedCluster,
    SimulatedJob,
    SimulatedNode,
    make_accounts,
    make_users,
)
from slurmscope.simulator.cluster.submission import Submission
from slurmscope.slurm.states import BASE_STATES, WAITING_STATES

_HOLDING = ("CONFIGURING", "COMPLETING", "SUSPENDED", "RESIZING", "SIGNALING", "STOPPED")

# State and reason.
_ENDED = (
    ("COMPLETED", "None"),
    ("CANCELLED", "None"),
    ("FAILED", "NonZeroExitCode"),
    ("TIMEOUT", "TimeLimit"),
    ("OUT_OF_MEMORY", "OutOfMemory"),
    ("NODE_FAIL", "NodeDown"),
    ("PREEMPTED", "None"),
    ("BOOT_FAIL", "None"),
    ("DEADLINE", "DeadLine"),
    ("STAGE_OUT", "None"),
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
    for state, reason in _ENDED:
        if submission.wants():
            yield submission.finish(_small(submission), state, reason=reason)
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
            yield replace(job, gpu_type=gpu_type, dialect=number % 5, priority=2**32 - 2)
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


CLUSTER_NAME = "simulated"

_ENDINGS = (
    ("COMPLETED", "None"),
    ("COMPLETED", "None"),
    ("FAILED", "NonZeroExitCode"),
    ("CANCELLED", "None"),
)
_ARRAY_SIZES = (4, 10, 20, 50, 100, 500)
_COMMON_REASONS = (*("Priority",) * 12, *("Resources",) * 4, *PENDING_REASONS[:9])
_SHARES = {"array": 0.03, "finished": 0.06, "running": 0.45}


def simulate(shape: Shape, *, now: int, name: str = CLUSTER_NAME) -> SimulatedCluster:
    """Make the cluster as it stands at ``now`` (seconds since 1970); another name changes nothing else."""
    if min(shape.nodes, shape.users, shape.accounts, shape.partitions) < 1 or min(shape.jobs, shape.gpus) < 0:
        raise ValueError(f"a cluster needs nodes, users, accounts and partitions: {shape}")
    random = Random(shape.seed)
    accounts = make_accounts(shape.accounts)
    users = make_users(random, shape.users, accounts)
    machines = make_machines(random, shape, users)
    partitions = make_partitions(random, shape, machines)
    submission = Submission(
        random,
        now,
        rows_wanted=shape.jobs,
        users=users,
        partitions={partition.name: partition for partition in partitions},
        floor=FreeMachines(machines, partitions),
    )
    _fill_conditioned_nodes(submission, machines)
    add_special_jobs(submission)
    _add_ordinary_jobs(submission)
    return SimulatedCluster(
        name=name,
        now=now,
        jobs=tuple(sorted(submission.jobs, key=_queue_order)),
        nodes=_make_nodes(submission, machines, partitions),
        partitions=partitions,
        users=users,
        accounts=accounts,
        qos=QOS,
    )


def _fill_conditioned_nodes(submission: Submission, machines: tuple[Machine, ...]) -> None:
    """Run the jobs that bring nodes into the condition they are meant to be in."""
    home = {name: partition.name for partition in submission.partitions.values() for name in partition.node_names}
    for machine in machines:
        for state, share in machine.condition.fills:
            if submission.wants():
                cpus = max(1, int(machine.cpus * share))
                request = ResourceRequest(cpus=cpus, memory_bytes=cpus * 1024 * MIB)
                job = submission.started(
                    submission.draft(home[machine.name], request, submission.age()), (machine.name,), state
                )
                submission.floor.rooms[machine.name].take(request, state)
                submission.add(job)


def _add_ordinary_jobs(submission: Submission) -> None:
    """Fill the queue up to exactly the rows wanted with what most queues hold."""
    random = submission.random
    names = list(submission.partitions)
    # Large partitions get most of the jobs.
    sizes = list(itertools.accumulate(len(partition.node_names) for partition in submission.partitions.values()))
    while submission.wants():
        partition = random.choices(names, cum_weights=sizes)[0]
        draft = submission.draft(partition, submission.request(partition), submission.age(), qos=random.choice(QOS))
        draw = random.random()
        if draw < _SHARES["array"]:
            # No array may be most of a small queue.
            size = min(random.choice(_ARRAY_SIZES), max(4, submission.rows_wanted // 20))
            _add_array(submission, draft, min(size, submission.rows_left))
        elif draw < _SHARES["array"] + _SHARES["finished"]:
            state, reason = random.choice(_ENDINGS)
            submission.add(submission.finish(draft, state, reason=reason))
        else:
            started = submission.start(draft) if draw < sum(_SHARES.values()) else None
            submission.add(started or wait(submission, draft, random.choice(_COMMON_REASONS)))


def _add_array(submission: Submission, draft: SimulatedJob, size: int) -> None:
    """Add an array: some of its tasks run, each a record of its own, the others wait in one record."""
    random = submission.random
    limit = random.choice((None, None, 5, 20))
    running = 0
    for task in range(random.randrange(min(size, (limit or size) + 1))):
        started = submission.start(draft)
        if not started:
            break
        task_id = submission.give_id(started.start_time or submission.now)
        submission.add(replace(started, id=task_id, array_id=draft.id, tasks=(task,)))
        running += 1
    reason = "JobArrayTaskLimit" if limit and running == limit else random.choice(("Priority", "Resources"))
    waiting = wait(submission, draft, reason)
    submission.add(replace(waiting, array_id=draft.id, tasks=tuple(range(running, size)), task_limit=limit))


def _make_nodes(
    submission: Submission, machines: tuple[Machine, ...], partitions: tuple[Partition, ...]
) -> tuple[SimulatedNode, ...]:
    homes: dict[str, list[str]] = {machine.name: [] for machine in machines}
    for partition in partitions:
        for name in partition.node_names:
            homes[name].append(partition.name)
    completing = {name for job in submission.jobs if job.state == "COMPLETING" for name in job.node_names}
    return tuple(
        _make_node(submission, room, tuple(homes[name]), is_completing=name in completing)
        for name, room in submission.floor.rooms.items()
    )


def _make_node(submission: Submission, room: Room, homes: tuple[str, ...], *, is_completing: bool) -> SimulatedNode:
    machine, random = room.machine, submission.random
    condition = machine.condition
    used = machine.cpus - room.cpus
    base = condition.base or ("idle" if not used else "mixed" if room.cpus else "allocated")
    flags = frozenset(condition.flags) - {"completing"} | ({"completing"} if is_completing else frozenset())
    has_reported = not flags & {"cloud", "not_responding"} and base not in {"down", "unknown", "future", "error"}
    free_bytes = int(
        (machine.memory_bytes - 0.7 * (machine.memory_bytes - room.memory_bytes)) * random.uniform(0.9, 0.99)
    )
    gpus_used = machine.gpus[0].total - room.gpus if machine.gpus else 0
    return SimulatedNode(
        name=machine.name,
        cpus=machine.cpus,
        memory_bytes=machine.memory_bytes,
        partitions=homes,
        base=base,
        flags=tuple(sorted(flags)),
        cpus_allocated=used,
        memory_allocated_bytes=machine.memory_bytes - room.memory_bytes,
        memory_free_bytes=free_bytes if has_reported else None,
        cpu_load=round(used * random.uniform(0.5, 1.05) + random.random() / 5, 2) if has_reported else None,
        gpus=tuple(replace(pool, used=gpus_used if not number else 0) for number, pool in enumerate(machine.gpus)),
        dialect=machine.dialect,
        features=machine.features,
        weight=machine.weight,
        reason=condition.reason,
        reason_user=machine.reason_user,
        reason_time=submission.now - machine.reason_age_seconds if condition.reason else None,
    )


def _queue_order(job: SimulatedJob) -> tuple[str, int, int, int]:
    """Sort as squeue does by default: partition, state, then falling priority."""
    if job.state in BASE_STATES:
        state = BASE_STATES.index(job.state)
    else:
        state = BASE_STATES.index("PENDING" if job.state in WAITING_STATES else "RUNNING")
    return ",".join(job.partitions), state, -job.priority, job.id


REASONS = frozenset(
    {"Priority", "Resources", "Dependency", "JobArrayTaskLimit", "QOSMaxJobsPerUserLimit", "Licenses", "BeginTime"}
)
TROUBLED_NODES = 5
"""So many nodes may be drained, failing or down."""


def calm(cluster: SimulatedCluster) -> SimulatedCluster:
    """Return the same jobs on the same nodes, with ordinary states, reasons and names."""
    return replace(
        cluster,
        jobs=tuple(_calm_job(job) for job in cluster.jobs if job.state not in ENDED_STATES or job.end_time),
        nodes=tuple(_calm_nodes(cluster.nodes)),
    )


def _calm_job(job: SimulatedJob) -> SimulatedJob:
    state = job.state
    if state in WAITING_STATES:
        state = "PENDING"
    elif state in CPU_HOLDING_STATES and state not in {"COMPLETING", "CONFIGURING"}:
        state = "RUNNING"
    is_odd = state == "PENDING" and job.reason not in REASONS
    return replace(
        job,
        name=f"job-{job.id % 1000}" if job.name in HOSTILE_NAMES else job.name,
        state="COMPLETED" if state == "STAGE_OUT" else state,
        reason="Priority" if is_odd else job.reason,
    )


def _calm_nodes(nodes: Iterable[SimulatedNode]) -> Iterator[SimulatedNode]:
    troubled = 0
    for node in nodes:
        is_known_trouble = bool(node.reason) and ("drain" in node.flags or node.base == "down")
        if is_known_trouble and troubled < TROUBLED_NODES:
            troubled += 1
            yield replace(node, flags=tuple(flag for flag in node.flags if flag in {"drain", "not_responding"}))
        else:
            yield _sound_node(node)


def _sound_node(node: SimulatedNode) -> SimulatedNode:
    used = node.cpus_allocated
    free_bytes = node.memory_bytes - 0.7 * node.memory_allocated_bytes
    return replace(
        node,
        base="idle" if not used else "mixed" if used < node.cpus else "allocated",
        flags=(),
        reason=None,
        reason_user=None,
        reason_time=None,
        cpu_load=round(0.9 * used + 0.1, 2) if node.cpu_load is None else node.cpu_load,
        memory_free_bytes=int(free_bytes) if node.memory_free_bytes is None else node.memory_free_bytes,
    )
