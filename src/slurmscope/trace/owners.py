# SPDX-License-Identifier: Apache-2.0
"""Find the owner and the nodes of a job, from Slurm and never from what a sender says.

The list of running jobs is polled while samples arrive. A job that is no longer in it is known for a grace period.
While Slurm does not answer, the jobs of the last list stay known for as long as the exporter keeps a reading; other
jobs are neither accepted nor said to be missing.

No column holds text that a user can choose freely, so no job can forge a row.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache

from slurmscope.cluster.sources import Sources
from slurmscope.core.errors import MalformedAnswer
from slurmscope.core.hostlist import expand_hosts
from slurmscope.core.tres import parse_tres
from slurmscope.exporter.collector import SLOW_SECONDS, Reading
from slurmscope.exporter.reading import SharedReading, Snapshot
from slurmscope.trace.callers import Refusal
from slurmscope.trace.samples import RunningJobOwner

SEPARATOR = "\x1f"
COLUMNS = ("JobID", "UserID", "UserName", "Account", "State", "NodeList", "NumCPUs", "tres-alloc")
# States in which processes of a job may run.
STATES = ("running", "suspended", "completing")
OWNER_ARGUMENTS = (
    "--noheader",
    "--all",
    "--array",
    "--local",
    f"--states={','.join(STATES)}",
    "--Format=" + "".join(f"{column}:{SEPARATOR}," for column in COLUMNS[:-1]) + f"{COLUMNS[-1]}:",
)
_NOTHING = frozenset({"", "N/A", "(null)"})


def parse_owners(answer: bytes) -> Mapping[int, RunningJobOwner]:
    """Parse the output of squeue; an invalid row is skipped."""
    if answer and not answer.endswith(b"\n"):
        raise MalformedAnswer("squeue: the answer ends in the middle of a line")
    rows = answer.decode("utf-8", "surrogateescape").split("\n")[:-1]
    jobs: dict[int, RunningJobOwner] = {}
    for row in rows:
        with contextlib.suppress(ValueError):
            owner = _parse_row(row.split(SEPARATOR))
            jobs[owner.job_id] = owner
    return jobs


def _parse_row(fields: list[str]) -> RunningJobOwner:
    job_id, uid, user, account, state, nodes, cpus, tres = fields
    return RunningJobOwner(
        job_id=int(job_id),
        uid=int(uid),
        user=user,
        account="" if account in _NOTHING else account,
        state=state,
        node_list="" if nodes in _NOTHING else nodes,
        cpus=int(cpus),
        memory_bytes=parse_tres(tres).memory_bytes,
    )


HOST_ARGUMENTS = ("--noheader", "--all", "--Node", f"--Format=NodeList:{SEPARATOR},NodeHost:")


def parse_hosts(answer: bytes) -> Mapping[str, str]:
    if answer and not answer.endswith(b"\n"):
        raise MalformedAnswer("sinfo: the answer ends in the middle of a line")
    pairs = (line.partition(SEPARATOR) for line in answer.decode("utf-8", "replace").splitlines())
    return {node: host.partition(".")[0] for node, separator, host in pairs if separator and node and host}


def _read_owners(slurm: Sources) -> Mapping[int, RunningJobOwner]:
    owners = parse_owners(slurm.run("squeue", OWNER_ARGUMENTS))
    slurm.require_all_jobs()
    return owners


def _read_hosts(slurm: Sources) -> Mapping[str, str]:
    return parse_hosts(slurm.run("sinfo", HOST_ARGUMENTS))


JOB_OWNERS = Reading(name="job_owners", read=_read_owners)
NODE_HOSTS = Reading(name="node_hosts", read=_read_hosts, every_seconds=2 * SLOW_SECONDS)

WAIT_SECONDS = 3.0
"""How long a post for an unknown job waits for a new list of jobs."""

_PARALLEL_WAITS = 2
_FRESH_SECONDS = 0.1
"""The list of jobs is looked at this often, not for every post."""


class OwnerFinder:
    """Find owners of jobs; every method may be called from any thread."""

    def __init__(
        self,
        jobs: SharedReading,
        hosts: SharedReading,
        *,
        grace_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._jobs = jobs
        self._hosts = hosts
        self._grace_seconds = grace_seconds
        self._clock = clock
        self._own_host = socket.gethostname().partition(".")[0]
        self._lock = threading.Lock()
        # Few: those who send for jobs that do not exist must not occupy the threads that serve all others.
        self._waiting = threading.BoundedSemaphore(_PARALLEL_WAITS)
        self._version = 0
        self._fresh_until = 0.0
        self._known: dict[int, tuple[RunningJobOwner, float]] = {}

    def find(self, job_id: int) -> RunningJobOwner:
        """Return the owner of a job, or raise Refusal."""
        owner = self._known.get(job_id)
        if owner is not None and self._clock() < self._fresh_until:
            return owner[0]
        self._jobs.request()
        snapshot = self._update(self._jobs.wait(0.0))
        self._fresh_until = self._clock() + _FRESH_SECONDS
        owner = self._known.get(job_id)
        if (owner is None or not snapshot.has_value) and self._waiting.acquire(blocking=False):
            try:
                snapshot = self._update(self._jobs.wait(self._clock() + WAIT_SECONDS))
            finally:
                self._waiting.release()
            owner = self._known.get(job_id)
        if not snapshot.has_value:
            raise Refusal(503, "slurm", "Slurm does not answer, so the owner of the job is unknown.", retry_seconds=10)
        if owner is not None:
            return owner[0]
        if snapshot.error is not None:
            raise Refusal(503, "slurm", "Slurm does not answer, and the job is not known yet.", retry_seconds=10)
        raise Refusal(404, "job", f"Job {job_id} is not running.", retry_seconds=self._jobs.interval_seconds)

    def refresh(self) -> None:
        """Forget jobs that have ended, from the latest list."""
        self._jobs.request()
        self._update(self._jobs.wait(self._clock() + WAIT_SECONDS))

    def is_known(self, job_id: int) -> bool:
        """Return whether a job runs or ended within the grace period."""
        return job_id in self._known

    def find_node(self, owner: RunningJobOwner, host: str) -> str:
        """Return the node of a job that a host is, or raise Refusal if the job does not run there."""
        nodes = _expand(owner.node_list)
        short = host.partition(".")[0]
        for name in (host, short):
            if name in nodes:
                return name
        hosts = self._host_names()
        matching = [node for node in nodes if self._is_same(hosts.get(node, ""), short)]
        if not matching:
            raise Refusal(409, "host", f"Job {owner.job_id} does not run on this host.")
        return matching[0] if len(matching) == 1 else short

    def is_host_of(self, node: str, host: str) -> bool:
        short = host.partition(".")[0]
        return node in (host, short) or self._is_same(self._host_names().get(node, ""), short)

    def _is_same(self, node_host: str, host: str) -> bool:
        """Return whether a host is that of a node; localhost in Slurm's configuration means this machine."""
        return node_host == host or (node_host == "localhost" and host == self._own_host)

    def single_node(self, owner: RunningJobOwner) -> str:
        """Return the node of a job that has only one, or raise Refusal."""
        nodes = _expand(owner.node_list)
        if len(nodes) != 1:
            raise Refusal(400, "host", "The key hostname is missing; the job has several nodes.")
        return next(iter(nodes))

    def _host_names(self) -> Mapping[str, str]:
        self._hosts.request()
        snapshot = self._hosts.wait(0.0)
        if not snapshot.has_value:
            snapshot = self._hosts.wait(self._clock() + WAIT_SECONDS)
        return snapshot.value if isinstance(snapshot.value, Mapping) else {}

    def _update(self, snapshot: Snapshot) -> Snapshot:
        """Add the jobs of a new list, and drop those that are missing for longer than the grace period."""
        with self._lock:
            if not snapshot.has_value:
                self._known, self._version = {}, 0
            elif snapshot.version != self._version and isinstance(snapshot.value, Mapping):
                self._version = snapshot.version
                seen_at = snapshot.taken_at
                kept = {job: item for job, item in self._known.items() if seen_at - item[1] <= self._grace_seconds}
                self._known = kept | {job: (owner, seen_at) for job, owner in snapshot.value.items()}
        return snapshot


@lru_cache(maxsize=4096)
def _expand(node_list: str) -> frozenset[str]:
    try:
        return frozenset(expand_hosts(node_list))
    except ValueError:
        return frozenset()
