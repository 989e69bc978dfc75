# SPDX-License-Identifier: Apache-2.0
"""Find the job of a process that connected to the agent's socket.

The kernel names process and user. The job is that of the process' cgroup, or the one that the agent found the process
in; it must run on this node and belong to that user. So a PID that was reused meanwhile, or a cgroup whose name was
made up, can only lead to a job of the same user.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from slurmscope.model.job_use import JobUse, NodeJobs
from slurmscope.outputs.http.request import HttpRequest, PeerCredentials
from slurmscope.services.exporter.readings import SharedReading, Snapshot
from slurmscope.services.trace.callers import SOCKET, Caller
from slurmscope.services.trace.refusal import Refusal
from slurmscope.sources.cgroup.membership import Membership, read_membership

FRESH_SECONDS = 30.0
"""Posts do not make the agent read all jobs again if they were read within this time."""

WAIT_SECONDS = 3.0
"""How long a sender waits until the agent has found its job: a new one is found within a second."""

_PAUSE_SECONDS = 0.1
_PARALLEL_WAITS = 8


class SenderFinder:
    """Find the jobs of senders; every method may be called from any thread."""

    def __init__(
        self,
        jobs: SharedReading,
        procfs_root: Path,
        *,
        read_cgroup: Callable[[Path, int], Membership | None] = read_membership,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Take the reading of the jobs on this node, and the function that reads the cgroup of a process."""
        self._jobs = jobs
        self._procfs_root = procfs_root
        self._read_cgroup = read_cgroup
        self._clock = clock
        self._sleep = sleep
        self._waiting = threading.BoundedSemaphore(_PARALLEL_WAITS)

    def find(self, request: HttpRequest) -> Caller:
        """Return the job and the user of a sender, or raise Refusal."""
        if request.credentials is None:
            raise Refusal(401, "credential", "Samples are accepted from a unix socket only.")
        job, jobs = self._find_job(request.credentials)
        if job is None:
            raise Refusal(403, "job", "The sender is not a process of a job on this node.")
        if job.uid != request.credentials.uid:
            raise Refusal(403, "owner", f"Job {job.key.job_id} belongs to another user.")
        node = job.key.node_name or jobs.host_name
        return Caller(way=SOCKET, uid=job.uid, job_id=job.key.job_id, node=node)

    def last_jobs(self) -> NodeJobs:
        """Return the jobs of the last reading."""
        return _jobs_of(self._jobs.wait(0.0))

    def current_jobs(self) -> NodeJobs:
        """Return the jobs of a reading that is not older than its interval."""
        self._jobs.request()
        return _jobs_of(self._jobs.wait(self._clock() + WAIT_SECONDS))

    def _find_job(self, sender: PeerCredentials) -> tuple[JobUse | None, NodeJobs]:
        claim = self._read_cgroup(self._procfs_root, sender.pid)
        age = self._jobs.age_seconds()
        if age is None or age > FRESH_SECONDS:
            self._jobs.request()
            self._jobs.wait(self._clock() + WAIT_SECONDS)
        jobs = self.last_jobs()
        if (job := _match(jobs.jobs, claim, sender)) is not None:
            return job, jobs
        if not self._waiting.acquire(blocking=False):
            raise Refusal(503, "unavailable", "Too many senders wait for their job to be found.", retry_seconds=1)
        try:
            return self._wait_for_job(claim, sender)
        finally:
            self._waiting.release()

    def _wait_for_job(self, claim: Membership | None, sender: PeerCredentials) -> tuple[JobUse | None, NodeJobs]:
        """Read the jobs again, until the job appears with its user: new jobs and processes take a moment."""
        until = self._clock() + WAIT_SECONDS
        version = self._jobs.version
        while True:
            self._jobs.request()
            jobs = _jobs_of(self._jobs.wait(until))
            job = _match(jobs.jobs, claim, sender)
            is_settled = job.uid is not None if job else claim is None and self._jobs.version > version
            if is_settled or self._clock() >= until:
                return job, jobs
            self._sleep(_PAUSE_SECONDS)


def _match(jobs: Iterable[JobUse], claim: Membership | None, sender: PeerCredentials) -> JobUse | None:
    """Return the running job of a process: by its cgroup, or else by the processes that the agent saw."""
    running = [job for job in jobs if not job.has_ended]
    by_process = next((job for job in running if sender.pid in job.pids), None)
    if by_process is not None and by_process.uid == sender.uid:
        return by_process
    named = [job for job in running if claim is not None and _is_claimed(job, claim)]
    return next((job for job in named if job.uid == sender.uid), named[0] if named else by_process)


def _is_claimed(job: JobUse, claim: Membership) -> bool:
    if job.key.node_name != claim.node_name:
        return False
    return job.key.sluid == claim.job.sluid if claim.job.sluid else job.key.job_id == claim.job.job_id


def _jobs_of(snapshot: Snapshot) -> NodeJobs:
    return snapshot.value if isinstance(snapshot.value, NodeJobs) else NodeJobs()
