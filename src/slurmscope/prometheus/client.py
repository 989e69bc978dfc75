# SPDX-License-Identifier: Apache-2.0
"""Query Prometheus or a compatible server, with deadlines, size limits and retries.

A query is sent as a form, because a list of jobs can be longer than a URL. Temporary failures are retried after a
growing pause; a query that is too large raises ``QueryTooLarge``.
"""

from __future__ import annotations

import base64
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from slurmscope.core.errors import (
    ConfigError,
    MalformedAnswer,
    ServerBusy,
    ServerError,
    ServerRefused,
    ServerTimedOut,
    SourceError,
)
from slurmscope.core.rate_limit import backoff_seconds
from slurmscope.http.client.credentials import Certificates, hide_values, read_header_value, read_headers, read_secret
from slurmscope.http.client.request import AnswerTooLong, form_request, send
from slurmscope.prometheus.query_counters import QueryCounters
from slurmscope.prometheus.responses import AccessDenied, QueryFailed, QueryTooLarge, Reply, parse_answer
from slurmscope.prometheus.settings import PrometheusSettings

if TYPE_CHECKING:
    from ssl import SSLContext


_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 10.0
# VictoriaMetrics and Thanos then fail instead of answering with what the reachable part of them has; others ignore it.
_WHOLE_ANSWERS = {"deny_partial_response": "1", "partial_response": "false"}
# A job is measured again because samples may have arrived late, which caches do not notice: the parameter is for
# VictoriaMetrics, the header for the query frontends of Thanos, Mimir and Cortex.
_NO_CACHE = {"nocache": "1"}
_HEADERS = {"Accept": "application/json", "Cache-Control": "no-store"}
# The server gets a shorter timeout than ours: its error says that the query was too large, our timeout does not.
_SERVER_SHARE = 0.9


class Prometheus:
    """Query one server; any thread may, and ``max_queries`` limits the queries at the same time."""

    def __init__(
        self,
        settings: PrometheusSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Check the settings; no query is sent yet."""
        if settings.url is None:
            raise ConfigError("set --prometheus.url, for example http://localhost:9090")
        _check(settings)
        self.counters = QueryCounters()
        self._address = settings.url
        self._settings = settings
        self._certificates = Certificates(settings.ca_file, settings.cert_file, settings.key_file)
        self._tls()  # files that cannot be used are reported at once
        self._slots = threading.BoundedSemaphore(max(1, settings.max_queries))
        self._parsing = threading.Lock()  # one large answer at a time: parsing takes memory, and is not concurrent
        self._clock = clock
        self._sleep = sleep

    def query_instant(self, query: str, at_seconds: float | None, *, kind: str, until: float) -> Reply:
        """Evaluate at one time; ``until`` is a monotonic time, ``kind`` selects the counters.

        None is the current time by the server's own clock.
        """
        form = {"query": query} if at_seconds is None else {"query": query, "time": f"{at_seconds:.3f}"}
        return self._query("/api/v1/query", form, kind, until)

    def query_range(
        self, query: str, times: tuple[float, float], step_seconds: float, *, kind: str, until: float
    ) -> Reply:
        """Evaluate at the first time and at every step up to the last."""
        start, end = times
        form = {"query": query, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step_seconds:.3f}"}
        return self._query("/api/v1/query_range", form, kind, until)

    def _query(self, path: str, form: Mapping[str, str], kind: str, until: float) -> Reply:
        attempt = 0
        while True:
            try:
                with self._slot(until):
                    return self._query_once(path, form, kind, until)
            except ServerError as error:
                pause = backoff_seconds(attempt + 1, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
                if attempt >= self._settings.retries or not _is_temporary(error) or self._clock() + pause >= until:
                    raise
            self._sleep(pause)
            self.counters.note_retry(kind)
            attempt += 1

    @contextlib.contextmanager
    def _slot(self, until: float) -> Iterator[None]:
        if not self._slots.acquire(timeout=max(0.0, until - self._clock())):
            raise ServerTimedOut(f"{self._address}: no query was sent in time, other queries were still running")
        try:
            yield
        finally:
            self._slots.release()

    def _query_once(self, path: str, form: Mapping[str, str], kind: str, until: float) -> Reply:
        """Send one query and count it."""
        secrets: tuple[str, ...] = ()
        began = self._clock()
        deadline = min(until, began + self._settings.timeout)
        limit_seconds = max(0.1, (deadline - began) * _SERVER_SHARE)
        try:
            headers = self._read_headers()
            secrets = tuple(headers.values())
            fields = {**form, **_WHOLE_ANSWERS, **_NO_CACHE, "timeout": f"{limit_seconds:.3f}"}
            request = form_request(path, fields, {**_HEADERS, **headers})
            tls, limit_bytes = self._current_tls(), self._settings.max_answer_bytes
            answer = send(self._address, request, deadline=deadline, tls=tls, limit_bytes=limit_bytes)
            with self._parsing:
                reply = parse_answer(answer)
        except SourceError as error:
            # No variable holds it: with its traceback, it would keep the answer in memory.
            raise self._count_failure(kind, began, self._described(error, secrets)) from error
        seconds = self._clock() - began
        self.counters.note_answer(kind, seconds, points=reply.points, received_bytes=len(answer.body))
        return reply

    def _count_failure(self, kind: str, began: float, failure: SourceError) -> SourceError:
        is_up = isinstance(failure, QueryTooLarge)
        self.counters.note_failure(kind, self._clock() - began, failure.reason, is_up=is_up)
        return failure

    def _described(self, error: SourceError, secrets: Iterable[str]) -> SourceError:
        """Add the address to an error and remove our secrets, which a server may repeat."""
        message = hide_values(str(error), secrets)
        message = message if str(self._address) in message else f"{self._address}: {message}"
        if isinstance(error, AnswerTooLong):
            return QueryTooLarge(message)
        return type(error)(message) if isinstance(error, ServerError | MalformedAnswer) else error

    def _read_headers(self) -> dict[str, str]:
        """Return the configured headers and that of the current credentials; all values are secrets."""
        settings = self._settings
        try:
            headers = read_headers(settings.headers)
            if settings.bearer_token_file is not None:
                headers["Authorization"] = f"Bearer {read_header_value(settings.bearer_token_file)}"
            elif settings.password_file is not None:
                pair = f"{settings.user}:{read_secret(settings.password_file)}"
                headers["Authorization"] = f"Basic {base64.b64encode(pair.encode('utf-8')).decode('ascii')}"
        except ValueError as error:
            raise AccessDenied(str(error)) from error
        return headers

    def _tls(self) -> SSLContext | None:
        try:
            return self._certificates.context() if self._address.is_tls else None
        except ConfigError as error:
            raise ConfigError(f"{error}; see --prometheus.ca-file and --prometheus.cert-file") from error

    def _current_tls(self) -> SSLContext | None:
        """Return the context of files that may have been replaced, and that may be valid again later."""
        try:
            return self._tls()
        except ConfigError as error:
            raise AccessDenied(str(error)) from error


def _is_temporary(error: ServerError) -> bool:
    is_refused = isinstance(error, ServerRefused) and not isinstance(error, AccessDenied)
    return is_refused or isinstance(error, ServerBusy | QueryFailed)


def _check(settings: PrometheusSettings) -> None:
    """Raise ConfigError for settings that contradict each other."""
    if _sets_authorization(settings):
        raise ConfigError("--prometheus.headers sets Authorization, and so do the other settings: choose one")
    if bool(settings.user) != bool(settings.password_file) or (settings.user and settings.bearer_token_file):
        raise ConfigError(
            "set --prometheus.user together with --prometheus.password-file, or a bearer token, or neither"
        )
    if settings.key_file and not settings.cert_file:
        raise ConfigError("--prometheus.key-file needs --prometheus.cert-file")


def _sets_authorization(settings: PrometheusSettings) -> bool:
    """Return whether both the headers and other settings contain credentials."""
    is_set = bool(settings.bearer_token_file or settings.password_file)
    return is_set and any(header.name.lower() == "authorization" for header in settings.headers)
