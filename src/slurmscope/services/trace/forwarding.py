# SPDX-License-Identifier: Apache-2.0
"""Forward samples from a node agent to the trace endpoint, with a job token for each job.

Only the latest sample of each process waits. What the endpoint cannot take now is sent again later; what it refuses is
dropped and counted.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Self

from slurmscope.errors import SourceError
from slurmscope.http_client.address import ServerAddress
from slurmscope.http_client.request import HttpRequest, send
from slurmscope.log import fields
from slurmscope.model.trace import TracedProcess
from slurmscope.services.trace.key_file import KeyFile
from slurmscope.services.trace.refusal import JSON_TYPE, Refusal
from slurmscope.services.trace.store import TraceStore
from slurmscope.services.trace.tokens import JobToken

if TYPE_CHECKING:
    from ssl import SSLContext

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0
TIMEOUT_SECONDS = 5.0
TOKEN_SECONDS = 300
BATCH_SAMPLES = 50
_ANSWER_LIMIT_BYTES = 64 * 1024
_PAUSES_SECONDS = (1.0, 2.0, 5.0, 15.0, 30.0)
_RETRIED = frozenset({404, 408, 429, 500, 502, 503, 504})

_Key = tuple[int, str, int | None]


class Forwarder:
    """Send samples in a thread of its own; ``with`` starts and ends it."""

    def __init__(self, address: ServerAddress, keys: KeyFile, store: TraceStore, *, limit: int) -> None:
        """Take the endpoint, the keys of its tokens, and the store that counts what is lost."""
        self._address = address
        self._keys = keys
        self._store = store
        self._limit = limit
        self._tls = _tls_context() if address.is_tls else None
        self._lock = threading.Lock()
        self._pending: dict[_Key, TracedProcess] = {}
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
        """Take samples to be sent, or raise Refusal if too many wait."""
        with self._lock:
            new = {_key(process): process for process in processes}
            if len(self._pending.keys() | new.keys()) > self._limit:
                raise Refusal(503, "unavailable", "Too many samples wait to be forwarded.", retry_seconds=10)
            self._pending.update(new)
        self._store.count_accepted(len(processes))

    def _run(self) -> None:
        while not self._stopping.wait(INTERVAL_SECONDS if not self._failures else _pause(self._failures)):
            try:
                self._send_pending()
            except Exception:  # a bug must not end the forwarding
                logger.exception("trace samples not forwarded")
                self._failures += 1

    def _send_pending(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, {}
        by_job: defaultdict[tuple[int, int, str], list[TracedProcess]] = defaultdict(list)
        for process in pending.values():
            by_job[process.owner.job_id, process.owner.uid, process.host].append(process)
        for (job_id, uid, node), processes in by_job.items():
            for batch in _batches(processes):
                if not self._send(JobToken(job_id=job_id, uid=uid, node=node, expiry_seconds=_expiry()), batch):
                    self._keep(batch)

    def _keep(self, batch: Iterable[TracedProcess]) -> None:
        """Keep what could not be sent, unless a newer sample of the process waits already."""
        with self._lock:
            for process in batch:
                if len(self._pending) < self._limit:
                    self._pending.setdefault(_key(process), process)

    def _send(self, token: JobToken, batch: Sequence[TracedProcess]) -> bool:
        """Send samples of one job; return False if they should be sent again."""
        signed = self._keys.sign(token)
        if signed is None:
            return self._fail("there is no key to sign job tokens with")
        body = json.dumps([_encode(process) for process in batch]).encode()
        headers = {"Content-Type": JSON_TYPE, "Authorization": f"Bearer {signed}"}
        request = HttpRequest(method="POST", headers=headers, body=body)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        try:
            answer = send(self._address, request, deadline=deadline, tls=self._tls, limit_bytes=_ANSWER_LIMIT_BYTES)
        except SourceError as error:
            return self._fail(str(error))
        if answer.status in _RETRIED:
            return self._fail(f"the endpoint answers {answer.status}")
        self._failures = 0
        if answer.status >= 300:
            self._store.count_refusal("forward")
            logger.warning("trace samples refused by the endpoint", extra=fields(status=answer.status))
        return True

    def _fail(self, error: str) -> bool:
        self._failures += 1
        logger.warning("trace samples not forwarded", extra=fields(error=error))
        return False


def _key(process: TracedProcess) -> _Key:
    return process.sample.job_id, process.host, process.sample.pid


def _batches(processes: list[TracedProcess]) -> Iterator[list[TracedProcess]]:
    items = iter(processes)
    while batch := list(islice(items, BATCH_SAMPLES)):
        yield batch


def _encode(process: TracedProcess) -> dict[str, object]:
    """Return a sample as senders write it, with the node's name instead of what the sender said."""
    sample = process.sample
    values = {
        "job_id": sample.job_id,
        "pid": sample.pid,
        "cpus": sample.cpu_percent,
        "threads": sample.threads,
        "mem": sample.memory_bytes,
        "read_bytes": sample.read_bytes,
        "write_bytes": sample.write_bytes,
        "hostname": process.host,
        "command": sample.command,
        "rank": sample.rank,
        "step_id": sample.step,
        "cpu_seconds": sample.cpu_seconds,
        "interval": sample.interval_seconds,
        "time": sample.time_seconds,
        "start_time": sample.start_time_seconds,
    }
    return {key: value for key, value in values.items() if value is not None}


def _expiry() -> int:
    return int(time.time()) + TOKEN_SECONDS


def _pause(failures: int) -> float:
    return _PAUSES_SECONDS[min(failures, len(_PAUSES_SECONDS)) - 1]


def _tls_context() -> SSLContext:
    import ssl  # 6 MB that an agent without TLS does not need

    return ssl.create_default_context()
