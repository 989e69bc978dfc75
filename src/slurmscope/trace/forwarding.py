# SPDX-License-Identifier: Apache-2.0
"""Forward samples from a node agent to the trace endpoint, with a job token for each job.

Only the latest sample of each process waits. What the endpoint cannot take now is sent again later, until the sample
has expired; what it refuses is dropped. Both are counted. A job that the endpoint does not take delays no other job.
"""

from __future__ import annotations

import enum
import json
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from slurmscope.core.errors import SourceError
from slurmscope.core.log import fields
from slurmscope.core.rate_limit import backoff_seconds
from slurmscope.http.client.address import ServerAddress
from slurmscope.http.client.request import ClientRequest, send
from slurmscope.trace.callers import JSON_TYPE, Refusal
from slurmscope.trace.samples import FIELDS, TracedProcess
from slurmscope.trace.settings import TraceLimits
from slurmscope.trace.store import TraceStore, lifetime_seconds
from slurmscope.trace.tokens import JobToken, KeyFile

if TYPE_CHECKING:
    from ssl import SSLContext

logger = logging.getLogger(__name__)


INTERVAL_SECONDS = 1.0
TIMEOUT_SECONDS = 5.0
TOKEN_SECONDS = 300
BATCH_SAMPLES = 50
_ANSWER_LIMIT_BYTES = 64 * 1024
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0
_RETRIED = frozenset({404, 408, 429, 500, 502, 503, 504})
"""Not now, and perhaps for this job only: the endpoint does not know it yet, or it sends too much."""

_Key = tuple[str, int | None]


class _Outcome(enum.Enum):
    """What became of a post: settled for good, the job has to wait, or nothing can be sent now."""

    SETTLED = "settled"
    JOB_WAITS = "job waits"
    ALL_WAIT = "all wait"


class _Waiting(NamedTuple):
    process: TracedProcess
    expires_at: float


class Forwarder:
    """Send samples in a thread of its own; ``with`` starts and ends it."""

    def __init__(
        self,
        address: ServerAddress,
        keys: KeyFile,
        store: TraceStore,
        limits: TraceLimits,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the endpoint, the keys of its tokens, and the store that counts what is lost."""
        self._address = address
        self._keys = keys
        self._store = store
        self._limits = limits
        self._clock = clock
        self._tls = _tls_context() if address.is_tls else None
        self._lock = threading.Lock()
        self._pending: dict[int, dict[_Key, _Waiting]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trace-forward", daemon=True)
        self._failures = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(TIMEOUT_SECONDS)

    def put(self, processes: Sequence[TracedProcess]) -> None:
        """Take samples of one job to be sent, or raise Refusal if too many wait, of all jobs or of this one."""
        now, limits = self._clock(), self._limits
        new = {_key(p): _Waiting(p, now + lifetime_seconds(p.sample, limits.rate)) for p in processes}
        job_id = processes[0].sample.job_id
        with self._lock:
            known = self._pending.get(job_id, {})
            added = len(new.keys() - known.keys())
            if len(known) + added > limits.processes_per_job:
                raise Refusal(429, "too_many", "Too many samples of this job wait to be forwarded.", retry_seconds=10)
            if added > self._room_of_user(processes[0].owner.uid):
                raise Refusal(429, "too_many", "Too many samples of this user wait to be forwarded.", retry_seconds=10)
            if added > self._room():
                raise Refusal(503, "unavailable", "Too many samples wait to be forwarded.", retry_seconds=10)
            self._pending[job_id] = known | new
        self._store.count_accepted(len(processes))

    @property
    def pause_seconds(self) -> float:
        """Return how long to wait after failures; 0 if there were none."""
        return backoff_seconds(self._failures, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS) if self._failures else 0.0

    def _run(self) -> None:
        while not self._stopping.wait(self.pause_seconds or INTERVAL_SECONDS):
            try:
                self.send_pending()
            except Exception:  # a bug must not end the forwarding
                logger.exception("trace samples not forwarded")
                self._failures += 1

    def send_pending(self) -> None:
        """Send what waits; keep what could not be sent."""
        by_job: defaultdict[tuple[int, int, str], list[_Waiting]] = defaultdict(list)
        for waiting in self._take_pending():
            owner = waiting.process.owner
            by_job[owner.job_id, owner.uid, waiting.process.host].append(waiting)
        can_send = True
        for (job_id, uid, node), samples in by_job.items():
            outcome = _Outcome.SETTLED if can_send else _Outcome.ALL_WAIT
            for batch in _batches(samples):
                if outcome is _Outcome.SETTLED and not self._stopping.is_set():
                    token = JobToken(job_id=job_id, uid=uid, node=node, expiry_seconds=_expiry())
                    outcome = self._send(token, [waiting.process for waiting in batch])
                if outcome is not _Outcome.SETTLED:
                    self._keep(batch)
            can_send = outcome is not _Outcome.ALL_WAIT
        if by_job and can_send:
            self._failures = 0

    def _take_pending(self) -> list[_Waiting]:
        """Take all that waits, and drop and count what has expired: shown now, it would look like a new sample."""
        with self._lock:
            pending, self._pending = self._pending, {}
        now = self._clock()
        taken = [waiting for samples in pending.values() for waiting in samples.values()]
        fresh = [waiting for waiting in taken if waiting.expires_at > now]
        for _ in range(len(taken) - len(fresh)):
            self._store.count_refusal("forward")
        return fresh

    def _room(self) -> int:
        return self._limits.processes - sum(map(len, self._pending.values()))

    def _room_of_user(self, uid: int) -> int:
        of_jobs = (tuple(samples.values()) for samples in self._pending.values())
        return self._limits.processes_per_user - sum(len(job) for job in of_jobs if job[0].process.owner.uid == uid)

    def _keep(self, batch: Sequence[_Waiting]) -> None:
        """Keep what could not be sent, unless a newer sample of the process waits already."""
        with self._lock:
            room = min(self._room(), self._room_of_user(batch[0].process.owner.uid))
            for waiting in islice(batch, max(0, room)):
                samples = self._pending.setdefault(waiting.process.sample.job_id, {})
                if len(samples) < self._limits.processes_per_job:
                    samples.setdefault(_key(waiting.process), waiting)

    def _send(self, token: JobToken, batch: Sequence[TracedProcess]) -> _Outcome:
        signed = self._keys.sign(token)
        if signed is None:
            return self._fail("there is no key to sign job tokens with")
        body = json.dumps([_encode(process) for process in batch]).encode()
        headers = {"Content-Type": JSON_TYPE, "Authorization": f"Bearer {signed}"}
        request = ClientRequest(method="POST", headers=headers, body=body)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        try:
            answer = send(self._address, request, deadline=deadline, tls=self._tls, limit_bytes=_ANSWER_LIMIT_BYTES)
        except SourceError as error:
            return self._fail(str(error))
        if answer.status in _RETRIED:
            logger.debug("trace samples not forwarded", extra=fields(status=answer.status, job=token.job_id))
            return _Outcome.JOB_WAITS
        if answer.status >= 300:
            self._store.count_refusal("forward")
            logger.warning("trace samples refused by the endpoint", extra=fields(status=answer.status))
        return _Outcome.SETTLED

    def _fail(self, error: str) -> _Outcome:
        self._failures += 1
        logger.warning("trace samples not forwarded", extra=fields(error=error))
        return _Outcome.ALL_WAIT


def _key(process: TracedProcess) -> _Key:
    return process.host, process.sample.pid


def _batches(samples: list[_Waiting]) -> Iterator[list[_Waiting]]:
    items = iter(samples)
    while batch := list(islice(items, BATCH_SAMPLES)):
        yield batch


def _encode(process: TracedProcess) -> dict[str, object]:
    """Return a sample as senders write it, with the node's name instead of what the sender said."""
    sample = process.sample._replace(host=process.host, user=None)
    values = {key: getattr(sample, attribute) for key, (attribute, _) in FIELDS.items()}
    return {key: value for key, value in values.items() if value is not None}


def _expiry() -> int:
    return int(time.time()) + TOKEN_SECONDS


def _tls_context() -> SSLContext:
    import ssl  # 6 MB that an agent without TLS does not need

    return ssl.create_default_context()
