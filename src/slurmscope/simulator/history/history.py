# SPDX-License-Identifier: Apache-2.0
"""Generate the jobs that ended on a simulated cluster in the last weeks.

The same cluster and seed give the same history. People work by day and rest at the weekend, each has habits, and arrays
have a task or two that went wrong.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from slurmscope.core.tres import Gres
from slurmscope.core.units import DAY_SECONDS, MIB
from slurmscope.jobs.record import JobRecord, StepRecord
from slurmscope.jobs.submit_line import submit_options
from slurmscope.simulator.cluster.records import Partition, SimulatedCluster, User, pick_job_name, pick_user
from slurmscope.simulator.cluster.texts import duration_text, memory_text
from slurmscope.simulator.history.requests import (
    ENDINGS,
    FAILURES,
    GPU_KINDS,
    SHARES,
    SimulatedRequest,
    draw_kind,
    draw_request,
)
from slurmscope.simulator.history.workload_kinds import WorkloadKind, make_workload
from slurmscope.simulator.history.workloads import PROGRAM_ENDINGS, ProgramKind, Workload, draw_program

_ODD = re.compile(r"[^A-Za-z0-9_.-]+")


def make_script(record: JobRecord) -> str:
    """Return a script that requests what the job got; the job ID decides which mistake it has, if any."""
    kind = record.job_id % 4
    cores, minutes = record.cpus or 1, (record.time_limit_seconds or 3600) // 60
    name = _ODD.sub("_", record.name)[:40] or "job"
    memory = f"#SBATCH --mem={(record.memory_bytes or 1 << 30) // MIB // max(1, record.node_count)}M"
    has_threads = kind == 1 and cores > 1
    option = "cpus-per-task" if "cpus-per-task" in submit_options(record.submit_line) else "ntasks"
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name={name}",
        f"#SBATCH --nodes={max(1, record.node_count)}",
        f"#SBATCH --{option}={cores}",
        *([f"#SBATCH --time={minutes}"] if kind != 2 else ()),
        *([memory] if kind != 3 else ()),
        *([f"#SBATCH --gpus={record.gpus}"] if record.gpus else ()),
        "",
        "module load tools",
        *([memory] if kind == 3 else ()),
        *([f"export OMP_NUM_THREADS={cores}", f"./{name} input.dat"] if has_threads else [f"srun ./{name} input.dat"]),
    ]
    return "\n".join(lines) + "\n"


FIRST_ID = 4_000_000
WINDOW_SECONDS = 30 * DAY_SECONDS
"""Numbers of jobs are given as the queue of the simulated cluster gives them: one every three seconds."""

ARRAY_SHARE = 0.02
HETEROGENEOUS_SHARE = 0.01
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class PastJob:
    record: JobRecord
    kind: WorkloadKind
    workload: Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """What all tasks of an array have in common."""

    user: User
    account: str
    name: str
    submit_seconds: int


class History:
    """Make ended jobs of one cluster, newest last."""

    def __init__(self, cluster: SimulatedCluster, *, jobs: int = 3000, days: int = 28, seed: int = 1) -> None:
        """Take the cluster whose people, partitions and nodes the jobs have."""
        self._cluster = cluster
        self._random = Random(f"history {seed}")
        self._jobs = jobs
        self._days = days
        self._taken = {job.id for job in cluster.jobs}
        kinds = [kind for kind in SHARES if kind not in GPU_KINDS and kind not in ENDINGS]
        self._habits = {user.name: self._random.choice(kinds) for user in cluster.users}

    def make(self) -> tuple[PastJob, ...]:
        made = itertools.islice(self._generate(), self._jobs)
        return tuple(sorted(made, key=lambda job: (job.record.end_seconds or 0, job.record.job_id)))

    def _generate(self) -> Iterator[PastJob]:
        random = self._random
        # A job that would end in the future is drawn again, so there are some more attempts than jobs.
        for _ in range(_ATTEMPTS * self._jobs):
            draft = self._draft()
            draw = random.random()
            if draw < ARRAY_SHARE:
                yield from self._array(draft)
            elif draw < ARRAY_SHARE + HETEROGENEOUS_SHARE:
                yield from self._heterogeneous(draft)
            else:
                kind = draw_kind(random, self._habits[draft.user.name])
                job = self._job(draft, kind, draw_request(random, kind), self._give_id(draft.submit_seconds))
                yield from [job] if job else []

    def _draft(self) -> _Draft:
        random, cluster = self._random, self._cluster
        user = pick_user(random, cluster.users)
        return _Draft(
            user=user, account=random.choice(user.accounts), name=pick_job_name(random), submit_seconds=self._moment()
        )

    def _moment(self) -> int:
        """Draw when a job was submitted: mostly between nine and six on working days (UTC)."""
        random, now = self._random, self._cluster.now
        for _ in range(_ATTEMPTS):
            day = now // DAY_SECONDS - random.randrange(self._days)
            # 1970 began on a Thursday.
            is_weekend = (day + 3) % 7 >= 5
            if not is_weekend or random.random() < 0.35:
                break
        hour = random.gauss(13.5, 3.0) if random.random() < 0.75 else random.uniform(0, 24)
        return day * DAY_SECONDS + int(min(23.99, max(0.0, hour)) * 3600)

    def _array(self, draft: _Draft) -> Iterator[PastJob]:
        random = self._random
        requested = draw_request(random, WorkloadKind.GOOD)
        first_id = self._give_id(draft.submit_seconds)
        for task in range(random.randrange(6, 17)):
            kind = (
                WorkloadKind.GOOD
                if random.random() < 0.93
                else random.choice((WorkloadKind.LEAKING, WorkloadKind.IDLE, WorkloadKind.OUT_OF_MEMORY))
            )
            run_seconds = int(requested.run_seconds * random.uniform(0.9, 1.05))
            own = replace(requested, nodes=1, run_seconds=min(requested.limit_seconds - 1, run_seconds))
            job = self._job(draft, kind, own, first_id if not task else self._give_id(draft.submit_seconds))
            if job:
                record = replace(job.record, array_job_id=first_id, array_task_id=task)
                yield replace(job, record=record)

    def _heterogeneous(self, draft: _Draft) -> Iterator[PastJob]:
        random = self._random
        leader = self._give_id(draft.submit_seconds)
        requested = draw_request(random, WorkloadKind.GOOD)
        for offset, cpus in enumerate((4, 16)):
            part = replace(requested, nodes=1, cpus=cpus, memory_bytes=cpus << 31)
            job = self._job(
                draft, WorkloadKind.GOOD, part, leader if not offset else self._give_id(draft.submit_seconds)
            )
            if job:
                yield replace(job, record=replace(job.record, het_job_id=leader, het_offset=offset))

    def _job(self, draft: _Draft, kind: WorkloadKind, requested: SimulatedRequest, job_id: int) -> PastJob | None:
        """Make one job; None when it would not have ended by now."""
        random = Random(f"past {job_id}")
        start = draft.submit_seconds + 1 + int(random.expovariate(1 / 1200))
        end = start + requested.run_seconds
        if end > self._cluster.now:
            return None
        partition = _partition_for(random, self._cluster.partitions, requested)
        if partition is None:
            return None
        state, exit_code, exit_signal = ENDINGS.get(kind, ("COMPLETED", 0, 0))
        program = ProgramKind.TRAINING
        if kind is WorkloadKind.GPU_GOOD:
            program = draw_program(job_id, requested.gpus)
            state, exit_code, exit_signal = PROGRAM_ENDINGS.get(program, ("COMPLETED", 0, 0))
        if kind is WorkloadKind.FAILED:
            exit_code, exit_signal = Random(f"failure of {job_id}").choice(FAILURES)
        record = JobRecord(
            cluster=self._cluster.name,
            job_id=job_id,
            name=draft.name,
            user=draft.user.name,
            uid=draft.user.uid,
            account=draft.account,
            partition=partition.name,
            qos="normal",
            state=state,
            submit_seconds=draft.submit_seconds,
            eligible_seconds=draft.submit_seconds,
            start_seconds=start,
            end_seconds=end,
            time_limit_seconds=requested.limit_seconds,
            nodes=tuple(sorted(random.sample(partition.node_names, k=requested.nodes))),
            node_count=requested.nodes,
            cpus=requested.nodes * requested.cpus,
            memory_bytes=requested.nodes * requested.memory_bytes,
            gres=(Gres(name="gpu", count=requested.nodes * requested.gpus),) if requested.gpus else (),
            exit_code=exit_code,
            exit_signal=exit_signal,
            submit_line=submit_line(draft.name, requested),
            work_dir=f"/home/{draft.user.name}",
            cancelled_by_uid=draft.user.uid if state == "CANCELLED" else None,
        )
        workload = make_workload(record, kind, length_seconds=requested.run_seconds, program=program)
        return PastJob(with_use(record, workload, requested), kind, workload)

    def _give_id(self, moment: int) -> int:
        free = FIRST_ID + max(0, moment - self._cluster.now + WINDOW_SECONDS) // 3
        while free in self._taken:
            free += 1
        self._taken.add(free)
        return free


def _partition_for(random: Random, partitions: Sequence[Partition], requested: SimulatedRequest) -> Partition | None:
    fitting = [
        partition
        for partition in partitions
        if (partition.name == "gpu") == bool(requested.gpus)
        and len(partition.node_names) >= requested.nodes
        and (partition.time_limit_seconds is None or partition.time_limit_seconds >= requested.limit_seconds)
    ]
    return random.choice(fitting) if fitting else None


def with_use(record: JobRecord, workload: Workload, requested: SimulatedRequest) -> JobRecord:
    """Add what Slurm's accounting gathers by itself: CPU time, and the sampled memory of the largest task."""
    used = workload.cpu_seconds(requested.run_seconds)
    tasks = record.cpus if requested.is_parallel else 1
    seen = max(node.memory.anon_bytes(0.97 * requested.run_seconds) for node in workload.nodes)
    step = StepRecord(
        name="0",
        state=record.state,
        start_seconds=record.start_seconds,
        end_seconds=record.end_seconds,
        tasks=tasks,
        nodes=record.node_count,
        cpu_seconds=0.995 * used,
        max_rss_bytes=int(seen / (requested.cpus if requested.is_parallel else 1)),
        exit_code=record.exit_code,
        exit_signal=record.exit_signal,
        node_list=",".join(record.nodes),
    )
    return replace(record, cpu_seconds=0.998 * used, steps=(step,))


def submit_line(name: str, requested: SimulatedRequest) -> str:
    cores = (
        f"--nodes={requested.nodes} --ntasks-per-node={requested.cpus}"
        if requested.is_parallel
        else f"-c{requested.cpus}"
    )
    gpus = f" --gpus={requested.gpus}" if requested.gpus else ""
    limit = duration_text(requested.limit_seconds)
    return (
        f"sbatch {cores} --mem={memory_text(requested.memory_bytes)} --time={limit}{gpus} {name.removesuffix('.sh')}.sh"
    )
