# SPDX-License-Identifier: Apache-2.0
"""Accept trace samples on a unix socket of the node agent, and expose or forward them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from slurmscope.model.trace import JobOwner, TracedProcess, Traces, TraceSample
from slurmscope.outputs.http.request import HttpRequest
from slurmscope.outputs.http.response import Response, text_response
from slurmscope.outputs.http.server import Server
from slurmscope.outputs.http.unix_socket import open_unix_listener, remove_socket
from slurmscope.services.exporter.readings import SharedReading
from slurmscope.services.node.senders import SenderFinder
from slurmscope.services.trace.callers import Caller
from slurmscope.services.trace.checks import check_user
from slurmscope.services.trace.endpoint import TraceReceiver
from slurmscope.services.trace.forwarding import Forwarder
from slurmscope.services.trace.key_file import KeyFile
from slurmscope.services.trace.refusal import Refusal
from slurmscope.services.trace.settings import NodeTraceSettings, check_forwarding
from slurmscope.services.trace.store import TraceStore

# Each has a thread; the agent's unit allows all that connections can take, and those that read jobs (TasksMax).
MAX_CONNECTIONS = 32
CLOSE_SECONDS = 1.0


class NodeTracing:
    """Hold the traced processes of this node."""

    def __init__(self, settings: NodeTraceSettings, jobs: SharedReading, procfs_root: Path) -> None:
        """Start empty; ``open`` makes the socket."""
        self._settings = settings
        self._store = TraceStore(settings)
        self._senders = SenderFinder(jobs, procfs_root)
        self._own_host = socket.gethostname().partition(".")[0]

    @contextmanager
    def open(self) -> Iterator[None]:
        """Accept samples until the block ends; do nothing if no socket is configured."""
        check_forwarding(self._settings)
        path = self._settings.socket
        if path is None:
            yield
            return
        with ExitStack() as stack:
            deliver = self._store.put
            if self._settings.forward is not None and self._settings.key_file is not None:
                keys = KeyFile(self._settings.key_file)
                deliver = stack.enter_context(Forwarder(self._settings.forward, keys, self._store, self._settings)).put
            receiver = TraceReceiver(
                find_caller=self._senders.find,
                check=self._check,
                deliver=deliver,
                count_refusal=self._store.count_refusal,
                limits=self._settings,
            )
            listener = open_unix_listener(path)
            stack.callback(remove_socket, path, path.stat().st_ino)
            server = Server(
                SocketApp(receiver),
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
        if self._settings.socket is None:
            return Traces()
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
        return TracedProcess(JobOwner(job_id, uid, user), node, caller.way, sample)


class SocketApp:
    """Answer requests on the socket: posts on any path, nothing else."""

    def __init__(self, receiver: TraceReceiver) -> None:
        """Take the receiver of posts."""
        self._receiver = receiver

    def __call__(self, request: HttpRequest) -> Response:
        """Answer a request."""
        if request.method != "POST":
            return text_response(405, "This socket accepts trace samples only.", ("Allow", "POST"))
        return self._receiver.receive(request)
