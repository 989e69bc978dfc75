# SPDX-License-Identifier: Apache-2.0
"""Ask a Prometheus, or a server that speaks like it, within a deadline and a size.

A question goes out as a form, for a list of jobs is soon longer than an address can be. What may pass is tried again
after a pause that grows; what is too much at once is told to the caller as ``TooMuchAsked``.
"""

from __future__ import annotations

import base64
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from slurmscope.errors import (
    ConfigError,
    MalformedAnswer,
    ServerBusy,
    ServerError,
    ServerRefused,
    ServerTimedOut,
    SourceError,
)
from slurmscope.http_client.request import AnswerTooLong, form_request, send, tls_context
from slurmscope.log import escape
from slurmscope.sources.prometheus.answers import NotLetIn, Reply, TooMuchAsked, parse_answer
from slurmscope.sources.prometheus.query_counters import QueryCounters
from slurmscope.sources.prometheus.settings import PrometheusSettings

if TYPE_CHECKING:
    from ssl import SSLContext

_SECRET_LIMIT_BYTES = 16 * 1024
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 10.0
# The server is told to give up a little before we do: its own words tell that it was too much, our clock does not.
_SERVER_SHARE = 0.9


def _random() -> float:
    return int.from_bytes(os.urandom(4), "big") / 2**32


class Prometheus:
    """Ask one server; several threads may ask at the same time, so many at once as is set."""

    def __init__(
        self,
        settings: PrometheusSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        random: Callable[[], float] = _random,
    ) -> None:
        """Take where it is; nothing is asked yet."""
        if settings.url is None:
            raise ConfigError("--prometheus.url is not set, such as http://localhost:9090")
        if bool(settings.user) != bool(settings.password_file) or (settings.user and settings.bearer_token_file):
            raise ConfigError("give --prometheus.user with --prometheus.password-file, or a bearer token, or neither")
        self.ledger = QueryCounters()
        self._address = settings.url
        self._settings = settings
        self._tls = _tls_context(settings.ca_file) if settings.url.is_tls else None
        self._free = threading.BoundedSemaphore(max(1, settings.max_questions))
        self._clock = clock
        self._sleep = sleep
        self._random = random

    def ask_instant(self, query: str, at_seconds: float, *, kind: str, until: float) -> Reply:
        """Evaluate at one time; ``until`` is a monotonic time, ``kind`` a word of the ledger."""
        form = {"query": query, "time": f"{at_seconds:.3f}"}
        return self._ask("/api/v1/query", form, kind, until)

    def ask_range(
        self, query: str, times: tuple[float, float], step_seconds: float, *, kind: str, until: float
    ) -> Reply:
        """Evaluate at the first time and at every step up to the last."""
        start, end = times
        form = {"query": query, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step_seconds:.3f}"}
        return self._ask("/api/v1/query_range", form, kind, until)

    def _ask(self, path: str, form: Mapping[str, str], kind: str, until: float) -> Reply:
        attempt = 0
        while True:
            try:
                with self._turn(until):
                    return self._ask_once(path, form, kind, until)
            except ServerError as error:
                pause = self._pause(attempt)
                if attempt >= self._settings.retries or not _may_pass(error) or self._clock() + pause >= until:
                    raise
            self._sleep(pause)
            self.ledger.note_retry(kind)
            attempt += 1

    @contextlib.contextmanager
    def _turn(self, until: float) -> Iterator[None]:
        if not self._free.acquire(timeout=max(0.0, until - self._clock())):
            raise ServerTimedOut(f"{self._address} was not asked: other questions took all the time")
        try:
            yield
        finally:
            self._free.release()

    def _ask_once(self, path: str, form: Mapping[str, str], kind: str, until: float) -> Reply:
        """Ask and note how it went."""
        secret = ""
        began = self._clock()
        deadline = min(until, began + self._settings.timeout)
        limit_seconds = max(0.1, (deadline - began) * _SERVER_SHARE)
        try:
            secret, headers = self._authorization()
            described = {"Accept": "application/json", **headers}
            request = form_request(path, {**form, "timeout": f"{limit_seconds:.3f}"}, described)
            limit_bytes = self._settings.max_answer_bytes
            answer = send(self._address, request, deadline=deadline, tls=self._tls, limit_bytes=limit_bytes)
            reply = parse_answer(answer)
        except SourceError as error:
            told = self._explained(error, secret)
            is_up = isinstance(told, TooMuchAsked)
            self.ledger.note_failure(kind, self._clock() - began, told.reason, is_up=is_up)
            raise told from error
        seconds = self._clock() - began
        self.ledger.note_answer(kind, seconds, points=reply.points, received_bytes=len(answer.body))
        return reply

    def _explained(self, error: SourceError, secret: str) -> SourceError:
        """Say who it was, and keep our secret out of what a server repeats."""
        words = str(error).replace(secret, "SECRET") if secret else str(error)
        words = words if str(self._address) in words else f"{self._address}: {words}"
        if isinstance(error, AnswerTooLong):
            return TooMuchAsked(words)
        return type(error)(words) if isinstance(error, ServerError | MalformedAnswer) else error

    def _authorization(self) -> tuple[str, dict[str, str]]:
        """Return the secret of this moment and the header that carries it."""
        if self._settings.bearer_token_file is not None:
            secret = _read_secret(self._settings.bearer_token_file)
            if not secret.isascii():  # a header is
                raise NotLetIn(escape(f"the file {self._settings.bearer_token_file} does not hold a token"))
            return secret, {"Authorization": f"Bearer {secret}"}
        if self._settings.password_file is not None:
            pair = f"{self._settings.user}:{_read_secret(self._settings.password_file)}"
            secret = base64.b64encode(pair.encode("utf-8")).decode("ascii")
            return secret, {"Authorization": f"Basic {secret}"}
        return "", {}

    def _pause(self, attempt: int) -> float:
        """Return how long to wait: twice as long each time, and never the same for two who failed together."""
        longest = min(_FIRST_PAUSE_SECONDS * (1 << attempt), _LONGEST_PAUSE_SECONDS)
        return longest * (0.5 + 0.5 * self._random())


def _may_pass(error: ServerError) -> bool:
    return isinstance(error, ServerBusy) or (isinstance(error, ServerRefused) and not isinstance(error, NotLetIn))


def _read_secret(path: Path) -> str:
    """Raise without the secret in the words."""
    try:
        with path.open("rb") as stream:
            data = stream.read(_SECRET_LIMIT_BYTES + 1)
    except OSError as error:
        raise NotLetIn(escape(f"the file {path} cannot be read: {error.strerror}")) from error
    try:
        secret = data.decode("utf-8").strip("\r\n")
    except UnicodeDecodeError:
        secret = ""
    if not secret or not secret.isprintable() or len(data) > _SECRET_LIMIT_BYTES:
        raise NotLetIn(escape(f"the file {path} does not hold one line of text"))
    return secret


def _tls_context(ca_file: Path | None) -> SSLContext:
    try:
        return tls_context(ca_file)
    except ConfigError as error:
        raise ConfigError(f"{error}; see --prometheus.ca-file") from error
