# SPDX-License-Identifier: Apache-2.0
"""Query RAS services that answer, hang, flood and lie."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from slurmscope.exporter.collector import NoOptions
from slurmscope.node.job_use import JobKey, JobUse, NodeJobs
from slurmscope.node.nccl import ras
from slurmscope.node.nccl.collector import Communicator, JobCommunicator, Rank, RasState, collect
from slurmscope.node.nccl.ras import NEW_RANKS_AN_HOUR, RasReader, find_jobs, is_own_address_of_host
from tests.processes import until

HERE = "127.0.0.1"
ELSEWHERE = "192.0.2.7"  # reserved for documentation
Serve = Callable[[socket.socket], None]


def status(*ranks: tuple[int, str, int, int]) -> bytes:
    """Write the status of one communicator: number, host, PID and operations of each rank."""
    entries = [
        {"rank": number, "host": host, "pid": pid, "status": {"async_error": 0}, "collective_counts": {"AllReduce": n}}
        for number, host, pid, n in ranks
    ]
    communicator = {"hash": "0xabc", "size": len(entries), "ranks": entries, "missing_ranks": []}
    return json.dumps({"communicators": [communicator]}).encode()


def answering(text: bytes, *, json_answer: bytes = b"OK\n") -> Serve:
    """Answer each command as NCCL does, and close after the status."""

    def serve(client: socket.socket) -> None:
        with client.makefile("rwb") as lines:
            for line in lines:
                word = line.split()[0]
                if word == b"VERBOSE":
                    lines.write(text)
                    return
                answers = {b"CLIENT": b"SERVER PROTOCOL 2\n", b"TIMEOUT": b"OK\n", b"SET": json_answer}
                lines.write(answers[word])
                lines.flush()

    return serve


class Service:
    """A RAS service of this user, on a port of its own."""

    def __init__(self, serve: Serve) -> None:
        self.asked = 0
        self._serve = serve
        self._listener = socket.create_server((HERE, 0))
        self.port: int = self._listener.getsockname()[1]
        self.clients: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.asked += 1
            self.clients.append(client)
            with contextlib.suppress(OSError):
                self._serve(client)
            if self._serve is not hang:
                client.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # closed by the test
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for client in self.clients:
            client.close()
        self._thread.join(10)


def hang(client: socket.socket) -> None:
    """Accept and say nothing."""


def drip(client: socket.socket) -> None:
    """Send one byte at a time, for ever, but never a line."""
    while True:
        client.sendall(b"S")
        time.sleep(0.001)


def flood(client: socket.socket) -> None:
    """Answer properly, and then never stop."""
    with client.makefile("rwb") as lines:
        for answer in (b"SERVER PROTOCOL 2\n", b"OK\n", b"OK\n"):
            lines.readline()
            lines.write(answer)
            lines.flush()
        while True:
            lines.write(b" " * 65536)


@pytest.fixture
def service() -> Iterator[Callable[[Serve], Service]]:
    started: list[Service] = []

    def start(serve: Serve) -> Service:
        started.append(Service(serve))
        return started[-1]

    yield start
    for each in started:
        each.close()


def job(number: int, *pids: int, uid: int | None = None) -> JobUse:
    return JobUse(key=JobKey(number), uid=os.getuid() if uid is None else uid, pids=frozenset(pids))


def asked(port: int, *jobs: JobUse, timeout_seconds: float = 20.0) -> RasState:
    """Query a service once and return what is known then."""
    reader = RasReader(lambda: jobs, port=port, timeout_seconds=timeout_seconds)
    reader.read()
    reader.join()
    return reader.read()


def test_ranks_on_this_node_are_those_of_the_jobs_of_their_processes(service: Callable[[Serve], Service]) -> None:
    text = status((0, HERE, 11, 500), (1, HERE, 22, 499), (2, ELSEWHERE, 11, 500))

    found = asked(service(answering(text)).port, job(7, 10, 11), job(8, 22))

    assert {"ok": 1} == found.queries
    ranks = {key: [(r.number, r.operations) for c in of_job for r in c.ranks] for key, of_job in found.jobs.items()}
    assert {JobKey(7): [(0, 500)], JobKey(8): [(1, 499)]} == ranks
    assert {JobKey(7): 500.0, JobKey(8): 499.0} == found.operations()


def test_rank_in_a_container_is_that_of_the_only_job_of_its_user(service: Callable[[Serve], Service]) -> None:
    port = service(answering(status((0, HERE, 3, 500)))).port

    assert [JobKey(7)] == [*asked(port, job(7, 4711)).jobs]
    assert {} == asked(port, job(7, 4711), job(8, 4712)).jobs


def test_service_of_a_user_without_a_job_is_not_believed(service: Callable[[Serve], Service]) -> None:
    found = asked(service(answering(status((0, HERE, 11, 500)))).port, job(7, 11, uid=os.getuid() + 1))

    assert ({"other_user": 1}, {}) == (found.queries, found.jobs)


def test_job_of_another_user_gets_no_ranks(service: Callable[[Serve], Service]) -> None:
    theirs = job(8, 11, uid=os.getuid() + 1)

    found = asked(service(answering(status((0, HERE, 11, 500)))).port, job(7, 10), theirs)

    assert [JobKey(7)] == [*found.jobs]


@pytest.mark.parametrize(
    ("serve", "result"),
    [
        (hang, "timeout"),
        (drip, "malformed"),
        (flood, "too_long"),
        (answering(b"no status"), "malformed"),
        (answering(b"", json_answer=b"ERROR: Unknown command set format json\n"), "too_old"),
        (lambda client: client.close(), "malformed"),
        (lambda client: client.sendall(bytes(100_000)), "malformed"),
    ],
)
def test_service_that_gives_nothing_is_counted_by_its_fault(
    service: Callable[[Serve], Service], serve: Serve, result: str
) -> None:
    found = asked(service(serve).port, job(7, 11), timeout_seconds=1.0 if serve is hang else 60.0)

    assert ({result: 1}, {}) == (found.queries, found.jobs)


def test_node_without_a_service_is_counted() -> None:
    with socket.create_server((HERE, 0)) as unused:
        port = unused.getsockname()[1]

    assert {"no_service": 1} == asked(port, job(7, 11)).queries


def test_node_without_jobs_is_not_queried(service: Callable[[Serve], Service]) -> None:
    started = service(answering(status()))

    assert {} == asked(started.port).queries == asked(started.port, JobUse(key=JobKey(1), uid=None)).queries
    assert 0 == started.asked


def test_reading_does_not_wait_for_a_service_that_hangs(service: Callable[[Serve], Service]) -> None:
    now = 1000.0
    started = service(hang)
    reader = RasReader(lambda: [job(7, 11)], port=started.port, clock=lambda: now, timeout_seconds=60.0)

    for _ in range(5):
        now += 100.0
        assert RasState() == reader.read()  # each of them would wait for a minute
        until(lambda: started.asked == 1)

    for client in started.clients:
        client.close()
    reader.join()
    assert 1 == started.asked


def test_job_on_many_nodes_is_queried_less_often(service: Callable[[Serve], Service]) -> None:
    now = 1000.0
    text = status((0, HERE, 11, 5), *((n, f"192.0.2.{n}", 1, 5) for n in range(1, 120)))
    started = service(answering(text))
    reader = RasReader(lambda: [job(7, 11)], port=started.port, clock=lambda: now)

    asked_at = []
    for _ in range(40):
        before = started.asked
        reader.read()
        reader.join()
        if started.asked > before:
            asked_at.append(now)
        now += 10.0

    assert [1000.0, 1120.0, 1240.0, 1360.0] == asked_at


def test_ranks_are_forgotten_when_the_service_stays_away(service: Callable[[Serve], Service]) -> None:
    now = 1000.0
    started = service(answering(status((0, HERE, 11, 5))))
    reader = RasReader(lambda: [job(7, 11)], port=started.port, clock=lambda: now)
    reader.read()
    reader.join()
    assert reader.read().jobs
    started.close()
    now += 61
    reader.read()
    reader.join()

    assert [JobKey(7)] == [*reader.read().jobs]
    now += 120
    assert {} == reader.read().jobs
    reader.join()


def test_service_that_invents_ranks_makes_no_more_series_than_a_user_may(service: Callable[[Serve], Service]) -> None:
    now, numbers = 1000.0, itertools.count()
    mine = [job(number, number) for number in range(1, 5)]

    def lie(client: socket.socket) -> None:
        ranks = [(next(numbers), HERE, each.key.job_id, 1) for each in mine for _ in range(200)]
        answering(status(*ranks))(client)

    def names() -> set[tuple[int, int]]:
        jobs = reader.read().jobs
        return {(key.job_id, rank.number) for key in jobs for each in jobs[key] for rank in each.ranks}

    reader = RasReader(lambda: mine, port=service(lie).port, clock=lambda: now)
    seen: set[tuple[int, int]] = set()
    for _ in range(60):
        reader.read()
        reader.join()
        seen |= names()
        now += 60
    queries = reader.read().queries
    reader.join()

    assert len(seen) <= 2 * NEW_RANKS_AN_HOUR
    assert queries["too_many"] > 50
    assert len(seen) > NEW_RANKS_AN_HOUR > queries["ok"] * 800


def test_job_with_more_ranks_than_are_new_in_an_hour_is_known_in_the_end(service: Callable[[Serve], Service]) -> None:
    now = 1000.0
    mine = [job(number, number) for number in range(1, 11)]
    ranks = [(rank, HERE, each.key.job_id, 1) for each in mine for rank in range(250)]
    started = service(answering(status(*ranks)))
    reader = RasReader(lambda: mine, port=started.port, clock=lambda: now)

    known: list[int] = []
    while not known or known[-1] < len(ranks):
        reader.read()
        reader.join()
        known.append(sum(len(each.ranks) for of_job in reader.read().jobs.values() for each in of_job))
        now += 60

    assert NEW_RANKS_AN_HOUR == known[0]
    assert sorted(known) == known
    # 500 more, 2,000 an hour.
    assert 15 <= len(known) <= 17


def test_addresses_of_this_machine_are_known() -> None:
    others = (ELSEWHERE, "unknown", "", "0.0.0.0", "::", "224.0.0.1", "localhost", "2001:db8::1")

    assert is_own_address_of_host(HERE)
    assert [False] * len(others) == [*map(is_own_address_of_host, others)]


def test_ranks_of_one_job_are_bounded_largest_communicators_first() -> None:
    def communicator(name: str, size: int) -> Communicator:
        ranks = tuple(Rank(number=n, host=HERE, pid=1, operations=1, has_failed=False) for n in range(200))
        return Communicator(name=name, size=size, ranks=ranks)

    found = find_jobs([communicator("0x1", 200), communicator("0x2", 400)], [job(7, 1)], {HERE})

    assert [("0x2", 200), ("0x1", ras.MOST_LOCAL_RANKS - 200)] == [(c.name, len(c.ranks)) for c in found[JobKey(7)]]


def test_ranks_are_exported_by_communicator() -> None:
    ranks = (
        Rank(number=3, host=HERE, pid=11, operations=499, has_failed=True),
        Rank(number=4, host=HERE, pid=12, operations=500, has_failed=False),
    )
    of_job = (JobCommunicator(name="0xabc", size=8, ranks=ranks, missing=2),)
    state = RasState(jobs={JobKey(7): of_job, JobKey(9): of_job}, queries={"ok": 3})

    families = collect(NoOptions(), nccl_ras=state, node_jobs=NodeJobs(jobs=(job(7),), host_name="n1"))

    served = {family.metric.name: dict(family.samples) for family in families}
    of_communicator = ("7", "n1", "0xabc")
    assert served == {
        "jobs_nccl_collectives_total": {(*of_communicator, "3", "11"): 499, (*of_communicator, "4", "12"): 500},
        "jobs_nccl_missing_ranks": {of_communicator: 2},
        "jobs_nccl_failed_ranks": {of_communicator: 1},
        "slurm_node_nccl_ras_queries_total": {("n1", "ok"): 3},
    }
