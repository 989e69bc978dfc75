# SPDX-License-Identifier: Apache-2.0
"""Query the RAS service of NCCL on this machine, and find the jobs of the ranks that it reports.

The first process of a user that loads NCCL 2.24 or later listens on port 28028 of the loopback address; it knows the
ranks of its job on all nodes. Each query makes all processes of the job answer, so a job on many nodes is queried less
often. The service is a program of a user: it is trusted with the jobs of that user only, after it has accepted the
connection, so that the kernel says whose it is. Whatever it writes is checked, and bounded: a rank that does not have
the expected shape is left out.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from typing import TypeGuard

from slurmscope.core.connection_owner import find_owner
from slurmscope.core.errors import MalformedAnswer
from slurmscope.core.log import fields
from slurmscope.core.rate_limit import TokenBuckets
from slurmscope.http.client.address import seconds_left
from slurmscope.node.job_use import JobKey, JobUse
from slurmscope.node.nccl.collector import Communicator, JobCommunicator, Rank, RasState

logger = logging.getLogger(__name__)

PORT = 28028
ADDRESSES = ("127.0.0.1", "::1")
EVERY_SECONDS = 60.0
SECONDS_PER_HOST = 1.0
"""All nodes of a job query it: together they do so about once in this time."""
LONGEST_SECONDS = 1800.0
KEPT_INTERVALS = 3
TIMEOUT_SECONDS = 10.0
COLLECT_SECONDS = 5
"""How long the service waits for the processes of its job."""
MOST_BYTES = 2 << 20
"""About 3,000 ranks of all communicators; of more, nothing is known."""
MOST_LOCAL_RANKS = 256
NEW_RANKS_AN_HOUR = 2000
"""Of a user, and as many at once: each is a new series, and a service may invent others at each query.

Of more, some are left out until there is room for them.
"""
_LINE_BYTES = 256
_GREETING = b"CLIENT PROTOCOL 2\n"
_QUERY = b"TIMEOUT %d\nSET FORMAT json\nVERBOSE STATUS\n" % COLLECT_SECONDS

OK, NO_SERVICE, OTHER_USER, TIMEOUT, TOO_LONG, TOO_MANY, MALFORMED, TOO_OLD = (
    "ok", "no_service", "other_user", "timeout", "too_long", "too_many", "malformed", "too_old",
)  # fmt: skip


class RasFailure(Exception):
    """Name why a query gave nothing."""

    def __init__(self, result: str) -> None:
        super().__init__(result)
        self.result = result


class RasReader:
    """Query the service in a thread of its own, which may have to wait for it, and return what is known so far."""

    def __init__(
        self,
        read_jobs: Callable[[], Iterable[JobUse]],
        *,
        port: int = PORT,
        clock: Callable[[], float] = time.monotonic,
        timeout_seconds: float = TIMEOUT_SECONDS,
        is_own_address: Callable[[str], bool] | None = None,
    ) -> None:
        """Take what returns the running jobs."""
        self._read_jobs = read_jobs
        self._port = port
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._is_own_address = is_own_address or is_own_address_of_host
        self._queries: Counter[str] = Counter()
        self._jobs: Mapping[JobKey, tuple[JobCommunicator, ...]] = {}
        self._new_ranks = TokenBuckets(NEW_RANKS_AN_HOUR / 3600, NEW_RANKS_AN_HOUR, clock=clock)
        self._interval_seconds = EVERY_SECONDS
        self._due_at = 0.0
        self._known_until = 0.0
        self._thread: threading.Thread | None = None

    def read(self) -> RasState:
        """Return the last state, and start a query if it is time."""
        now = self._clock()
        if now >= self._due_at and (self._thread is None or not self._thread.is_alive()):
            jobs = [job for job in self._read_jobs() if job.uid is not None and not job.has_ended]
            self._due_at = now + self._interval_seconds
            if jobs:
                self._thread = threading.Thread(target=self._refresh, args=(jobs,), name="nccl-ras", daemon=True)
                self._thread.start()
        return RasState(jobs=self._jobs if now < self._known_until else {}, queries=dict(self._queries))

    def join(self) -> None:
        """Wait for the query that is under way."""
        if self._thread is not None:
            self._thread.join(2 * self._timeout_seconds)

    def _refresh(self, jobs: list[JobUse]) -> None:
        try:
            uid, communicators = self._query({job.uid for job in jobs if job.uid is not None})
        except RasFailure as failure:
            self._queries[failure.result] += 1
            return
        except Exception:
            self._queries[MALFORMED] += 1
            logger.exception("a query of NCCL's RAS service failed")
            return
        hosts = {rank.host for communicator in communicators for rank in communicator.ranks}
        own = {host for host in hosts if self._is_own_address(host)}
        self._interval_seconds = min(max(EVERY_SECONDS, SECONDS_PER_HOST * len(hosts)), LONGEST_SECONDS)
        found = find_jobs(communicators, [job for job in jobs if job.uid == uid], own)
        wanted, room = _names(found) - _names(self._jobs), int(self._new_ranks.left(uid))
        if len(wanted) > room:
            found = without(found, set(sorted(wanted)[room:]))
        self._new_ranks.spend(min(len(wanted), room), uid)
        self._jobs = found
        self._known_until = self._clock() + KEPT_INTERVALS * self._interval_seconds
        self._due_at = max(self._due_at, self._clock() + self._interval_seconds)
        self._queries[TOO_MANY if len(wanted) > room else OK] += 1

    def _query(self, uids: set[int]) -> tuple[int, tuple[Communicator, ...]]:
        deadline = time.monotonic() + self._timeout_seconds
        try:
            with closing(self._connect(deadline)) as connection:
                uid, text = exchange(connection, uids, deadline)
        except TimeoutError:
            raise RasFailure(TIMEOUT) from None
        except ConnectionError:  # closed before everything was read
            raise RasFailure(MALFORMED) from None
        except OSError:
            raise RasFailure(NO_SERVICE) from None
        try:
            return uid, parse_status(text)
        except MalformedAnswer as error:
            logger.info("NCCL's RAS service returned no status", extra=fields(error=str(error)))
            raise RasFailure(MALFORMED) from None

    def _connect(self, deadline: float) -> socket.socket:
        for address in ADDRESSES:
            with suppress(ConnectionRefusedError):
                return socket.create_connection((address, self._port), timeout=seconds_left(deadline))
        raise RasFailure(NO_SERVICE)


def exchange(connection: socket.socket, uids: set[int], deadline: float) -> tuple[int, bytes]:
    """Return the user of the service, and what it returned as its status; raise RasFailure or OSError."""
    received = _Received(connection, deadline)
    connection.sendall(_GREETING)
    received.line()
    # It has accepted the connection, so this end is that of its process.
    uid = find_owner(connection.getpeername()[:2], connection.getsockname()[:2])
    if uid is None or uid not in uids:
        raise RasFailure(OTHER_USER)
    connection.sendall(_QUERY)
    if received.line() != b"OK" or received.line() != b"OK":
        raise RasFailure(TOO_OLD)  # NCCL 2.27 and earlier write text for people
    return uid, received.rest()


class _Received:
    """Receive lines, then the rest, within a time and a size."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline
        self._data = b""

    def line(self) -> bytes:
        while b"\n" not in self._data:
            if len(self._data) > _LINE_BYTES:
                raise RasFailure(MALFORMED)
            self._data += self._receive(_LINE_BYTES) or self._end()
        line, _, self._data = self._data.partition(b"\n")
        return line.strip()

    def rest(self) -> bytes:
        pieces, size = [self._data], len(self._data)
        while piece := self._receive(1 << 16):
            pieces.append(piece)
            size += len(piece)
            if size > MOST_BYTES:
                raise RasFailure(TOO_LONG)
        return b"".join(pieces)

    def _receive(self, size: int) -> bytes:
        self._connection.settimeout(seconds_left(self._deadline))
        return self._connection.recv(size)

    def _end(self) -> bytes:
        raise RasFailure(MALFORMED)


def is_own_address_of_host(host: str) -> bool:
    """Return whether an IP address is one of this machine: only to such a one can a socket be bound."""
    try:
        address = ipaddress.ip_address(host)
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except (ValueError, OSError):
        return False
    return not address.is_unspecified and not address.is_multicast


def find_jobs(
    communicators: Iterable[Communicator], jobs: Iterable[JobUse], own_hosts: set[str]
) -> dict[JobKey, tuple[JobCommunicator, ...]]:
    """Find the jobs of the ranks on this node, by PID, or if the user has only one job here.

    In a container, processes have other PIDs than the kernel's.
    """
    keys = [job.key for job in jobs]
    job_of = {pid: job.key for job in jobs for pid in job.pids}
    only = keys[0] if len(keys) == 1 else None
    found: dict[JobKey, list[JobCommunicator]] = {}
    room = dict.fromkeys(keys, MOST_LOCAL_RANKS)
    for communicator in sorted(communicators, key=lambda communicator: (-communicator.size, communicator.name)):
        ranks: dict[JobKey, list[Rank]] = {}
        for rank in communicator.ranks:
            key = job_of.get(rank.pid, only) if rank.host in own_hosts else None
            if key is not None and room[key] > 0:
                ranks.setdefault(key, []).append(rank)
                room[key] -= 1
        for key, of_job in ranks.items():
            found.setdefault(key, []).append(
                JobCommunicator(
                    name=communicator.name,
                    size=communicator.size,
                    ranks=tuple(of_job),
                    missing=communicator.missing,
                )
            )
    return {key: tuple(of_job) for key, of_job in found.items()}


_RankName = tuple[int, str, str, int, int]


def _names(jobs: Mapping[JobKey, Iterable[JobCommunicator]]) -> set[_RankName]:
    """Return what distinguishes the ranks of jobs in series."""
    return {
        _name(key, communicator, rank)
        for key, communicators in jobs.items()
        for communicator in communicators
        for rank in communicator.ranks
    }


def _name(key: JobKey, communicator: JobCommunicator, rank: Rank) -> _RankName:
    return key.job_id, key.node_name, communicator.name, rank.number, rank.pid


def without(
    jobs: Mapping[JobKey, Iterable[JobCommunicator]], left_out: set[_RankName]
) -> dict[JobKey, tuple[JobCommunicator, ...]]:
    """Leave out some ranks, and communicators of which none is left."""
    kept = {
        key: [
            replace(each, ranks=tuple(rank for rank in each.ranks if _name(key, each, rank) not in left_out))
            for each in communicators
        ]
        for key, communicators in jobs.items()
    }
    return {key: tuple(each for each in communicators if each.ranks) for key, communicators in kept.items()}


SUCCESS, IN_PROGRESS = 0, 7
"""Codes of NCCL's results that are no errors."""

MOST_COUNT = (1 << 63) - 1
MOST_COMMUNICATORS = 10_000
MOST_RANKS = 100_000
_HASH = re.compile(r"0x[0-9a-f]{1,16}")
_MOST_OPERATIONS = 64
_HOST_CHARACTERS = 64


def parse_status(text: bytes) -> tuple[Communicator, ...]:
    """Parse the status of all communicators; raise MalformedAnswer if it is none."""
    try:
        status = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedAnswer(f"NCCL's RAS service returned no JSON: {text[:100]!r}") from error
    communicators = status.get("communicators") if isinstance(status, dict) else None
    if not isinstance(communicators, list):
        raise MalformedAnswer(f"NCCL's RAS service returned no communicators: {text[:100]!r}")
    return tuple(_parse_communicators(communicators[:MOST_COMMUNICATORS]))


def _parse_communicators(found: list[object]) -> Iterator[Communicator]:
    room = MOST_RANKS
    for item in found:
        if not isinstance(item, dict):
            continue
        name, size, ranks, missing = (item.get(key) for key in ("hash", "size", "ranks", "missing_ranks"))
        if not (isinstance(name, str) and _HASH.fullmatch(name) and isinstance(ranks, list) and _is_count(size)):
            continue
        known = tuple(rank for entry in ranks[:room] if (rank := _parse_rank(entry)) is not None)
        room -= len(known)
        yield Communicator(name=name, size=size, ranks=known, missing=len(missing) if isinstance(missing, list) else 0)


def _parse_rank(entry: object) -> Rank | None:
    if not isinstance(entry, dict):
        return None
    number, host, pid, status, counts = (
        entry.get(key) for key in ("rank", "host", "pid", "status", "collective_counts")
    )
    if not (_is_count(number) and _is_count(pid) and isinstance(host, str) and len(host) <= _HOST_CHARACTERS):
        return None
    if not (isinstance(counts, dict) and len(counts) <= _MOST_OPERATIONS and all(map(_is_count, counts.values()))):
        return None
    return Rank(number=number, host=host, pid=pid, operations=sum(counts.values()), has_failed=_has_failed(status))


def _has_failed(status: object) -> bool:
    if not isinstance(status, Mapping):
        return False
    error = status.get("async_error")
    return status.get("abort_flag") is True or (_is_count(error) and error not in (SUCCESS, IN_PROGRESS))


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_COUNT
