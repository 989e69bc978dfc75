# SPDX-License-Identifier: Apache-2.0
"""Submit simulated jobs: assign ids, owners, times and nodes, and count the rows that are still needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from slurmscope.core.units import MIB
from slurmscope.simulator.cluster.machines import FreeMachines, ResourceRequest
from slurmscope.simulator.cluster.records import Partition, SimulatedJob, User, pick_job_name, pick_user

# Finished jobs stay this long in squeue: MinJobAge.
KEPT_SECONDS = 300

_WINDOW_SECONDS = 30 * 86_400
_FIRST_ID = 4_000_000
_MEMORY_PER_CPU_MIB = (1024, 1500, 2000, 2048, 3900, 4096)
_FEATURES = (None, None, None, "avx512", "avx512&ib", "[rack1*2&rack2*2]")
_LICENSES = (None, None, None, None, "matlab:1", "ansys@flex:4,matlab:2")


class Submission:
    """The state of a simulation while its jobs are made."""

    def __init__(
        self,
        random: Random,
        now: int,
        *,
        rows_wanted: int,
        users: tuple[User, ...],
        partitions: Mapping[str, Partition],
        floor: FreeMachines,
    ) -> None:
        self.random = random
        self.now = now
        self.users = users
        self.partitions = partitions
        self.floor = floor
        self.jobs: list[SimulatedJob] = []
        self.rows_wanted = rows_wanted
        self.rows_left = rows_wanted
        self._next_ids: dict[int, int] = {}

    def wants(self, rows: int = 1) -> bool:
        """Return whether that many rows still fit; check before a job starts, since a started job holds resources."""
        return self.rows_left >= rows

    def add(self, job: SimulatedJob) -> None:
        """Add a finished record."""
        self.jobs.append(job)
        self.rows_left -= job.rows

    def draft(self, partition: str, request: ResourceRequest, age_seconds: int, *, qos: str = "normal") -> SimulatedJob:
        """Make a pending job that was submitted ``age_seconds`` ago, with an owner, a name and a priority."""
        random = self.random
        user = pick_user(random, self.users)
        submit_time = self.now - age_seconds
        name, account = pick_job_name(random), random.choice(user.accounts) if user.accounts else None
        # A number that no job needs: without it, the same seed would give other jobs.
        random.random()
        return SimulatedJob(
            id=self.give_id(submit_time),
            name=name,
            user=user,
            account=account,
            partitions=(partition,),
            qos=qos,
            state="PENDING",
            reason="Priority",
            submit_time=submit_time,
            nodes=request.nodes,
            cpus_per_node=request.cpus,
            memory_per_node_bytes=request.memory_bytes,
            gpus_per_node=request.gpus,
            dialect=random.randrange(5),
            time_limit_seconds=self._limit(partition),
            priority=random.randrange(1, 2**31),
            features=random.choice(_FEATURES),
            licenses=random.choice(_LICENSES),
        )

    def start(self, job: SimulatedJob, state: str = "RUNNING") -> SimulatedJob | None:
        """Start a pending job some time after its submission, or return None when nothing is free."""
        names = self.floor.place(job.partitions[0], request_of(job), state)
        return self.started(job, names, state) if names else None

    def started(self, job: SimulatedJob, names: tuple[str, ...], state: str) -> SimulatedJob:
        """Put a job on the given nodes, where room was already taken."""
        start_time = self.now - self._run_seconds(job, self.now - job.submit_time)
        gpus = self.floor.rooms[names[0]].machine.gpus
        return replace(
            job,
            state=state,
            reason="None",
            partitions=job.partitions[:1],
            node_names=names,
            start_time=start_time,
            end_time=None if job.time_limit_seconds is None else start_time + job.time_limit_seconds,
            gpu_type=gpus[0].type if gpus and job.gpus_per_node else "",
        )

    def finish(self, job: SimulatedJob, state: str, *, reason: str = "None") -> SimulatedJob:
        """End a job a moment ago that ran on some nodes of its partition; it holds nothing any more."""
        names = self.partitions[job.partitions[0]].node_names[: job.nodes]
        end_time = self.now - self.random.randrange(min(KEPT_SECONDS, max(1, self.now - job.submit_time)))
        run_seconds = self._run_seconds(job, end_time - job.submit_time)
        return replace(
            self.started(job, names, state),
            start_time=end_time - run_seconds,
            end_time=end_time,
            time_limit_seconds=run_seconds // 60 * 60 if state == "TIMEOUT" else job.time_limit_seconds,
            reason=reason,
        )

    def age(self) -> int:
        """Draw how long ago a job was submitted: most in the last hours, none longer than ten hours ago."""
        return 1 + int(min(self.random.expovariate(1 / 7200), 10 * 3600))

    def request(self, partition: str) -> ResourceRequest:
        """Draw what a job of this partition requests."""
        random = self.random
        if partition == "gpu":
            gpus = random.choice((1, 1, 2, 4))
            return ResourceRequest(cpus=8 * gpus, memory_bytes=32_768 * gpus * MIB, gpus=gpus)
        cpus = random.choice((1, 1, 1, 2, 2, 4, 4, 8, 16, 32))
        spread = len(self.partitions[partition].node_names) // 4
        nodes = random.choice((2, 4, 8)) if cpus == 32 and random.random() < 0.5 else 1
        return ResourceRequest(
            nodes=max(1, min(nodes, spread)), cpus=cpus, memory_bytes=cpus * random.choice(_MEMORY_PER_CPU_MIB) * MIB
        )

    def give_id(self, moment: int) -> int:
        """Give a free job ID: later submissions get larger ids, with gaps for the jobs that have left the queue."""
        free = _FIRST_ID + max(0, moment - self.now + _WINDOW_SECONDS) // 3
        taken: list[int] = []
        while free in self._next_ids:
            taken.append(free)
            free = self._next_ids[free]
        # Remember the way, or a burst of submissions would walk through all of its ids again for each job.
        for step in (*taken, free):
            self._next_ids[step] = free + 1
        return free

    def _limit(self, partition: str) -> int | None:
        limit = self.partitions[partition].time_limit_seconds
        return None if limit is None else limit // self.random.choice((1, 1, 2, 4)) // 60 * 60

    def _run_seconds(self, job: SimulatedJob, available_seconds: int) -> int:
        """Draw how long a job has run: neither longer than it exists nor longer than it may."""
        limit = job.time_limit_seconds
        longest = available_seconds if limit is None else min(available_seconds, limit)
        return int(longest * self.random.random())


def request_of(job: SimulatedJob) -> ResourceRequest:
    return ResourceRequest(
        nodes=job.nodes, cpus=job.cpus_per_node, memory_bytes=job.memory_per_node_bytes, gpus=job.gpus_per_node
    )
