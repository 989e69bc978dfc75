# SPDX-License-Identifier: Apache-2.0
"""Send one remote write request, and distinguish temporary from permanent failures."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from slurmscope.core.errors import ConfigError, MalformedAnswer, OutputError, ServerError
from slurmscope.core.log import escape, fields
from slurmscope.http.client.address import ServerAddress
from slurmscope.http.client.credentials import Certificates, hide_values, read_headers
from slurmscope.http.client.request import ClientRequest, HttpAnswer, post
from slurmscope.remote_write.encoding import WriteRequest
from slurmscope.remote_write.feature import RemoteWriteSettings, check_certificates

if TYPE_CHECKING:
    from ssl import SSLContext

logger = logging.getLogger(__name__)


MAX_AGE_SECONDS = 3600.0
"""How long samples are kept that the server has not accepted: Prometheus rejects older ones."""


class BufferedRequest(NamedTuple):
    """A request and the monotonic time at which it was made."""

    request: WriteRequest
    made_at: float


class RequestBuffer:
    """Queue requests in order; thread-safe."""

    def __init__(self, *, max_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Set the size; beyond it, or when they are too old, the oldest requests are dropped."""
        self.dropped: Counter[str] = Counter()
        """Dropped samples by reason: size or age."""
        self._max_bytes = max_bytes
        self._clock = clock
        self._queue: deque[BufferedRequest] = deque()
        self._bytes = 0
        self._is_closed = False
        self._changed = threading.Condition()

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def samples(self) -> int:
        with self._changed:
            return sum(entry.request.samples for entry in self._queue)

    def add(self, request: WriteRequest) -> None:
        with self._changed:
            self._queue.append(BufferedRequest(request, self._clock()))
            self._bytes += len(request.body)
            self._drop_excess()
            self._changed.notify()

    def take(self) -> BufferedRequest | None:
        """Remove and return the oldest request, and wait for one; None when there is none and will be none."""
        with self._changed:
            while True:
                self._drop_excess()
                if self._queue:
                    entry = self._queue.popleft()
                    self._bytes -= len(entry.request.body)
                    return entry
                if self._is_closed:
                    return None
                self._changed.wait()

    def give_back(self, entry: BufferedRequest) -> None:
        """Put a request back that was not accepted; it is the oldest again."""
        with self._changed:
            self._queue.appendleft(entry)
            self._bytes += len(entry.request.body)
            self._drop_excess()

    def close(self) -> None:
        """Let ``take`` end when the queue is empty."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _drop_excess(self) -> None:
        oldest = self._clock() - MAX_AGE_SECONDS
        while self._queue and (self._is_too_large() or self._queue[0].made_at < oldest):
            entry = self._queue.popleft()
            reason = "age" if entry.made_at < oldest else "size"
            self._bytes -= len(entry.request.body)
            self.dropped[reason] += entry.request.samples
            described = fields(reason, reason=reason, samples=entry.request.samples)
            logger.warning("samples that were not sent yet are dropped", extra=described)

    def _is_too_large(self) -> bool:
        """Return whether the oldest request must go; one that is alone may be larger than the buffer."""
        return self._bytes > self._max_bytes and len(self._queue) > 1


TIMEOUT_SECONDS = 30.0
LONGEST_RETRY_AFTER_SECONDS = 300.0
_BUSY = 429
"""The only status from 400 to 499 after which the protocol lets a request be sent again."""

_HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}


class WriteRefused(OutputError):
    """The server refuses the request, and would refuse it again."""


class WriteFailed(OutputError):
    """The request may succeed later, not before ``retry_after_seconds``."""

    def __init__(self, message: str, *, kind: str, retry_after_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.kind = kind
        """What went wrong, of a small set: a status, or the name of an exception."""
        self.retry_after_seconds = retry_after_seconds


class RemoteWriteClient:
    """Send requests to one server; not thread-safe."""

    def __init__(
        self, settings: RemoteWriteSettings, address: ServerAddress, wall_clock: Callable[[], float] = time.time
    ) -> None:
        """Take the address of the endpoint and the settings; nothing is sent yet."""
        check_certificates(settings)
        self._settings = settings
        self._certificates = Certificates(settings.ca_file, settings.cert_file, settings.key_file)
        self._address = address
        self._wall_clock = wall_clock

    def send(self, body: bytes, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """Send a request; raise WriteFailed or WriteRefused with one sentence."""
        secrets: tuple[str, ...] = ()
        try:
            headers = read_headers(self._settings.headers)
            secrets = tuple(headers.values())
            request = ClientRequest(method="POST", headers={**headers, **_HEADERS}, body=body)
            deadline = time.monotonic() + timeout_seconds
            answer = post(self._address, request, deadline=deadline, tls=self._tls())
        except (ServerError, MalformedAnswer, ValueError) as error:
            raise WriteFailed(hide_values(str(error), secrets), kind=type(error).__name__) from error
        if not 200 <= answer.status < 300:
            raise self._failure(answer, secrets)

    def _tls(self) -> SSLContext | None:
        try:
            return self._certificates.context() if self._address.is_tls else None
        except ConfigError as error:  # the files may be valid again later
            raise WriteFailed(str(error), kind="certificates") from error

    def _failure(self, answer: HttpAnswer, secrets: tuple[str, ...]) -> OutputError:
        text = hide_values(answer.body.decode("utf-8", "replace").strip(), secrets)
        message = f"{self._address} answered {answer.status}: {escape(text, 300)}"
        if 400 <= answer.status < 500 and answer.status != _BUSY:
            return WriteRefused(message)
        seconds = parse_retry_after(answer.retry_after, self._wall_clock())
        return WriteFailed(message, kind=str(answer.status), retry_after_seconds=seconds)


def parse_retry_after(value: str, now_seconds: float) -> float:
    """Parse a Retry-After header, a number of seconds or a date; 0 if it is neither, at most five minutes."""
    if value.isascii() and value.isdecimal():
        seconds = float(value[:9])
    else:
        from email.utils import parsedate_to_datetime  # seldom needed

        try:
            seconds = parsedate_to_datetime(value).timestamp() - now_seconds
        except (TypeError, ValueError, OverflowError):
            seconds = 0.0
    return min(max(0.0, seconds), LONGEST_RETRY_AFTER_SECONDS)
