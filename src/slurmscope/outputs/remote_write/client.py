# SPDX-License-Identifier: Apache-2.0
"""Send one remote write request, and distinguish temporary from permanent failures."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from slurmscope.errors import ConfigError, MalformedAnswer, OutputError, ServerError
from slurmscope.http_client.address import ServerAddress
from slurmscope.http_client.certificates import Certificates
from slurmscope.http_client.headers import hide_values, read_headers
from slurmscope.http_client.post import post
from slurmscope.http_client.request import HttpAnswer, HttpRequest
from slurmscope.log import escape
from slurmscope.outputs.remote_write.settings import RemoteWriteSettings, check_certificates

if TYPE_CHECKING:
    from ssl import SSLContext

TIMEOUT_SECONDS = 30.0
LONGEST_RETRY_AFTER_SECONDS = 300.0
_REFUSALS = frozenset({400, 409, 413, 415, 422})
"""Statuses about the samples. Any other error is about the server, the path or the credentials, and may pass."""

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
            request = HttpRequest(method="POST", headers={**headers, **_HEADERS}, body=body)
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
        if answer.status in _REFUSALS:
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
