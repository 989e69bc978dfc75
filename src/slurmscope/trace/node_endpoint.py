# SPDX-License-Identifier: Apache-2.0
"""Accept trace samples on a unix socket of the node agent, and expose or forward them.

A user may own cgroups with any names (systemd delegates some), so what is found here is a claim: the caller checks that
the job runs on this node and belongs to the user of the process.

The kernel names process and user. The job is that of the process' cgroup, or the one that the agent found the process
in; it must run on this node and belong to that user. So a PID that was reused meanwhile, or a cgroup whose name was
made up, can only lead to a job of the same user.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from slurmscope.exporter.reading import SharedReading, Snapshot
from slurmscope.http.server.address import open_unix_listener, remove_socket
from slurmscope.http.server.request import HttpRequest, PeerCredentials
from slurmscope.http.server.response import Response, text_response
from slurmscope.http.server.server import Server
from slurmscope.node.cgroup.names import ProcessPlace, job_of, parse_place
from slurmscope.node.job_use import JobUse, NodeJobs
from slurmscope.node.kernel_files import read_bytes
from slurmscope.trace.callers import SOCKET, Caller, Refusal
from slurmscope.trace.endpoint import TraceReceiver, check_user
from slurmscope.trace.samples import RunningJobOwner, TracedProcess, Traces, TraceSample
from slurmscope.trace.settings import NodeTraceSettings, limits_of
from slurmscope.trace.store import TraceStore
from slurmscope.trace.tokens import KeyFile

_SIZE_LIMIT_BYTES = 64 * 1024


def read_place(procfs_root: Path, pid: int) -> ProcessPlace:
    """Return the job in whose cgroup a process is; none if the process is gone."""
    return parse_place(read_bytes(procfs_root / str(pid) / "cgroup", _SIZE_LIMIT_BYTES))


FRESH_SECONDS = 30.0
"""Posts do not make the agent read all jobs again if they were read within this time."""

WAIT_SECONDS = 3.0
"""How long a sender waits until the agent has found its job: a new one is found within a second."""

_PAUSE_SECONDS = 0.1
_PARALLEL_WAITS, _WAITS_OF_USER = 24, 8


class SenderFinder:
    """Find the jobs of senders; every method may be called from any thread."""

    def __init__(
        self,
        jobs: SharedReading,
        procfs_root: Path,
        *,
        read_cgroup: Callable[[Path, int], ProcessPlace] = read_place,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Take the reading of the jobs on this node, and the function that reads the cgroup of a process."""
        self._jobs = jobs
        self._procfs_root = procfs_root
        self._read_cgroup = read_cgroup
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._waiting: Counter[int] = Counter()

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
        with self._wait_of(sender.uid):
            return self._wait_for_job(claim, sender)

    @contextmanager
    def _wait_of(self, uid: int) -> Iterator[None]:
        """Let few senders of a user wait, and few in all: each takes a thread."""
        with self._lock:
            if self._waiting[uid] >= _WAITS_OF_USER or self._waiting.total() >= _PARALLEL_WAITS:
                raise Refusal(503, "unavailable", "Too many senders wait for their job to be found.", retry_seconds=1)
            self._waiting[uid] += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= Counter((uid,))

    def _wait_for_job(self, claim: ProcessPlace, sender: PeerCredentials) -> tuple[JobUse | None, NodeJobs]:
        """Read the jobs again, until the job appears with its user: new jobs and processes take a moment."""
        until = self._clock() + WAIT_SECONDS
        version = self._jobs.version
        while True:
            self._jobs.request()
            jobs = _jobs_of(self._jobs.wait(until))
            job = _match(jobs.jobs, claim, sender)
            is_settled = job.uid is not None if job else not claim.is_in_job and self._jobs.version > version
            if is_settled or self._clock() >= until:
                return job, jobs
            self._sleep(_PAUSE_SECONDS)


def _match(jobs: Iterable[JobUse], claim: ProcessPlace, sender: PeerCredentials) -> JobUse | None:
    """Return the running job of a process: by its cgroup, or else by the processes that the agent saw."""
    running = [job for job in jobs if not job.has_ended]
    by_process = next((job for job in running if sender.pid in job.pids), None)
    if by_process is not None and by_process.uid == sender.uid:
        return by_process
    named = [job for job in running if job_of(claim, [job.key])]
    return next((job for job in named if job.uid == sender.uid), named[0] if named else by_process)


def _jobs_of(snapshot: Snapshot) -> NodeJobs:
    return snapshot.value if isinstance(snapshot.value, NodeJobs) else NodeJobs()


# Each has a thread; the agent's unit allows all that connections can take, and those that read jobs (TasksMax).
MAX_CONNECTIONS = 32
CLOSE_SECONDS = 1.0


class NodeTracing:
    def __init__(self, path: Path, settings: NodeTraceSettings, jobs: SharedReading, procfs_root: Path) -> None:
        self._path = path
        self._settings = settings
        self._limits = limits_of(settings)
        self._store = TraceStore(self._limits)
        self._senders = SenderFinder(jobs, procfs_root)
        self._own_host = socket.gethostname().partition(".")[0]

    @contextmanager
    def open(self) -> Iterator[None]:
        """Accept samples until the block ends."""
        path = self._path
        with ExitStack() as stack:
            deliver = self._store.put
            if self._settings.forward is not None and self._settings.key_file is not None:
                from slurmscope.trace.forwarding import Forwarder

                keys = KeyFile(self._settings.key_file)
                deliver = stack.enter_context(Forwarder(self._settings.forward, keys, self._store, self._limits)).put
            receiver = TraceReceiver(
                find_caller=self._senders.find,
                check=self._check,
                deliver=deliver,
                count_refusal=self._store.count_refusal,
                limits=self._limits,
            )
            listener = open_unix_listener(path)
            stack.callback(remove_socket, path, path.stat().st_ino)
            server = Server(
                lambda request: receiver.receive(request) if request.method == "POST" else _not_a_post(),
                sockets=(listener,),
                find_upload=receiver.find_upload,
                max_connections=MAX_CONNECTIONS,
            )
            stack.callback(server.close, CLOSE_SECONDS)
            server.start()
            yield

    def read(self) -> Traces:
        """Return the traced processes of running and just ended jobs, and the counters.

        The last sample of a process has its final totals, and arrives when the job is about to end.
        """
        jobs = self._senders.current_jobs().jobs if len(self._store) else ()
        known = {job.key.job_id for job in jobs}
        return Traces(
            processes=self._store.snapshot(known.__contains__),
            accepted=self._store.accepted,
            refused=self._store.refused,
            is_enabled=True,
        )

    def _check(self, caller: Caller, sample: TraceSample) -> TracedProcess:
        """Name owner and node of a sample by what the kernel and the agent know."""
        job_id, uid, node = caller.job_id, caller.uid, caller.node
        if job_id is None or uid is None or node is None or job_id != sample.job_id:
            raise Refusal(403, "owner", f"The sender is not a process of job {sample.job_id}.")
        jobs = self._senders.last_jobs()
        user = jobs.users.get(uid, "")
        if user:
            check_user(sample, user)
        if sample.host and sample.host.partition(".")[0] not in (node.partition(".")[0], self._own_host):
            raise Refusal(409, "host", "The sender is not on this host.")
        return TracedProcess(RunningJobOwner(job_id, uid, user), node, caller.way, sample)


def _not_a_post() -> Response:
    return text_response(405, "This socket accepts trace samples only.", ("Allow", "POST"))
