# SPDX-License-Identifier: Apache-2.0
"""Run a real trace endpoint over a list of jobs that the test holds."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from slurmscope.core.clock import Clock
from slurmscope.core.errors import CommandRefused
from slurmscope.exporter.reading import SharedReading
from slurmscope.http.server.address import ListenHost, parse_networks
from slurmscope.http.server.app import ExporterApp
from slurmscope.http.server.connection import ConnectionLimits
from slurmscope.http.server.server import Server
from slurmscope.slurm.munge import MungeCredential
from slurmscope.trace.callers import CallerFinder
from slurmscope.trace.endpoint import SlurmCheck, TraceEndpoint, TraceReceiver, is_quick
from slurmscope.trace.owners import OwnerFinder
from slurmscope.trace.samples import RunningJobOwner, TracedProcess
from slurmscope.trace.settings import TraceLimits
from slurmscope.trace.store import TraceStore
from slurmscope.trace.tokens import JobToken, make_token
from tests.fakes.exposition import FakeExposition
from tests.fakes.raw_http import Answer, connect, read_answer

KEYS = {"new": b"n" * 32, "old": b"o" * 32}
ADA = RunningJobOwner(4711, 1000, "ada", "physics", "RUNNING", "n[1-2]", 8, 1 << 30)
EVE = RunningJobOwner(4712, 1001, "eve", "physics", "RUNNING", "n2", 1, 1 << 20)
FAR_FUTURE = 4_000_000_000


@dataclass(slots=True)
class Time:
    """Hold a monotonic clock that the test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@dataclass(slots=True)
class FakeSlurm:
    """Hold the running jobs; while ``is_down``, no list can be read, and without ``answers`` squeue hangs."""

    jobs: dict[int, RunningJobOwner] = field(default_factory=lambda: {ADA.job_id: ADA, EVE.job_id: EVE})
    hosts: Mapping[str, str] = field(default_factory=dict)
    is_down: bool = False
    answers: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        """Answer at first."""
        self.answers.set()

    def read_jobs(self) -> dict[int, RunningJobOwner]:
        """Return the list of running jobs."""
        self.answers.wait(60)
        if self.is_down:
            raise CommandRefused(("squeue",), "Unable to contact slurm controller")
        return dict(self.jobs)


@dataclass(slots=True, kw_only=True)
class RunningEndpoint:
    """Hold an endpoint that answers, and what it is made of."""

    address: ListenHost
    store: TraceStore
    owners: OwnerFinder
    slurm: FakeSlurm
    time: Time
    server: Server

    def post(self, body: object, *, credential: str = "", **headers: str) -> Answer:
        """Post a body as JSON, or bytes as they are, on a connection of its own."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        if credential:
            given["Authorization"] = credential
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = ["POST /trace HTTP/1.1", "Host: test", *(f"{name}: {value}" for name, value in given.items() if value)]
        with connect(self.address) as sock:
            sock.sendall("\r\n".join((*lines, "", "")).encode() + data)
            return read_answer(sock, method="POST")

    def processes(self) -> tuple[TracedProcess, ...]:
        """Return what is stored for jobs that are still there."""
        self.owners.refresh()
        return self.store.snapshot(self.owners.is_known)


def token(
    owner: RunningJobOwner = ADA,
    *,
    node: str = "n1",
    uid: int | None = None,
    key: str = "new",
    expiry: int = FAR_FUTURE,
) -> str:
    """Return the header of a job token."""
    claims = JobToken(job_id=owner.job_id, uid=owner.uid if uid is None else uid, node=node, expiry_seconds=expiry)
    return f"Bearer {make_token(claims, key, KEYS[key])}"


@contextmanager
def open_endpoint(
    *,
    limits: TraceLimits | None = None,
    plain: str = "",
    decode_munge: Callable[[str], MungeCredential | None] | None = None,
    hidden_labels: frozenset[str] = frozenset(),
    grace_seconds: float = 30.0,
    connection_limits: ConnectionLimits | None = None,
) -> Iterator[RunningEndpoint]:
    """Run an endpoint on a free port of the loopback."""
    clock, slurm = Time(), FakeSlurm()
    settings = limits or TraceLimits()
    store = TraceStore(settings, clock)
    jobs = SharedReading("job_owners", slurm.read_jobs, interval_seconds=0.0, clock=Clock(monotonic=clock))
    hosts = SharedReading("node_hosts", lambda: slurm.hosts, interval_seconds=0.0, clock=Clock(monotonic=clock))
    owners = OwnerFinder(jobs, hosts, grace_seconds=grace_seconds, clock=clock)
    finder = CallerFinder(
        keys=lambda: KEYS,
        decode_munge=decode_munge,
        plain_networks=parse_networks(plain),
        wall_clock=time.time,
        clock=clock,
    )
    receiver = TraceReceiver(
        find_caller=finder.find,
        check=SlurmCheck(owners, lambda: {0}),
        deliver=store.put,
        count_refusal=store.count_refusal,
        limits=settings,
        is_quick=partial(is_quick, finder, owners),
    )
    endpoint = TraceEndpoint(
        receiver, processes=lambda: store.snapshot(owners.is_known), hidden_labels=lambda: hidden_labels
    )
    app = ExporterApp(FakeExposition(), find_routes=lambda: {"/trace": endpoint.route})
    server = Server(app, addresses=("127.0.0.1:0",), find_upload=app.find_upload, limits=connection_limits)
    server.start()
    try:
        yield RunningEndpoint(
            address=server.addresses[0], store=store, owners=owners, slurm=slurm, time=clock, server=server
        )
    finally:
        server.close(1)
