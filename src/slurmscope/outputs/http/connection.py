# SPDX-License-Identifier: Apache-2.0
"""Serve the requests of one connection, one after the other."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from slurmscope.log import fields
from slurmscope.outputs.http.counters import RequestCounters
from slurmscope.outputs.http.gate import Gate, Rules
from slurmscope.outputs.http.request import BadRequest, HttpRequest, body_length, parse_head
from slurmscope.outputs.http.response import App, Response, Route, sentence
from slurmscope.outputs.http.sending import send_response, started
from slurmscope.outputs.http.wire import ClientLeft, Wire

logger = logging.getLogger(__name__)
_TLS_HANDSHAKE_BYTE = b"\x16"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Hold how long a client may take for each step, and how much one connection may ask."""

    handshake_seconds: float = 5.0
    head_seconds: float = 5.0
    body_seconds: float = 10.0
    write_seconds: float = 30.0
    # Longer than the usual scrape intervals: a reused connection saves the TLS handshake.
    idle_seconds: float = 120.0
    drain_seconds: float = 1.0
    requests_per_connection: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Hold what all connections of a server share."""

    app: App
    gate: Gate
    counters: RequestCounters
    limits: ConnectionLimits = ConnectionLimits()
    clock: Callable[[], float] = time.monotonic


class Connection:
    """Own one socket until it is closed; ``run`` belongs to one thread, the rest to any.

    ``waiting_since`` is a time while nothing but the client is waited for, ``None`` while an answer
    is made or sent: only a waiting connection may be cut to make room for another one.
    """

    def __init__(self, sock: socket.socket, peer: str, serving: Serving) -> None:
        """Take a connected socket."""
        self.waiting_since: float | None = serving.clock()
        self._sock = sock
        self._peer = peer
        self._serving = serving
        self._wire = Wire(sock, serving.clock)
        self._rules = Rules()
        self._served = 0
        self._is_ending = False
        self._is_closed = False
        self._closing = threading.Lock()

    def run(self) -> None:
        """Serve until either side ends it; nothing that happens here leaves the thread."""
        try:
            if self._open():
                while self._serve_one():
                    pass
        except (OSError, ClientLeft) as error:
            logger.debug("connection ended", extra=fields(peer=self._peer, error=str(error)))
        except Exception:
            logger.exception("connection ended by a bug", extra=fields(peer=self._peer))
        finally:
            self.close()

    def close(self) -> None:
        """Close the socket; a second time does nothing."""
        with self._closing:
            self._is_closed = True
            self._sock.close()

    def end(self) -> None:
        """Let a running request finish, and take no further one."""
        self._is_ending = True
        if self.waiting_since is not None:
            self.cut()

    def cut(self) -> None:
        """End the connection now: whoever waits in its thread wakes up."""
        with self._closing, contextlib.suppress(OSError):
            if not self._is_closed:
                # Not the method of a TLS socket: that one first forgets that there is TLS, and the
                # thread could send its answer in the clear.
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def _open(self) -> bool:
        """Do the TLS handshake where TLS is asked for."""
        self._rules = self._serving.gate()
        tls = self._rules.tls
        if tls is None:
            return True
        if self._rules.is_closed:
            return False
        until = self._serving.clock() + self._serving.limits.handshake_seconds
        self._sock.settimeout(self._serving.limits.handshake_seconds)
        if self._sock.recv(1, socket.MSG_PEEK) not in (_TLS_HANDSHAKE_BYTE, b""):
            self._respond(None, sentence(400, "This address speaks HTTPS only."), is_last=True)
            return False
        with self._closing:
            self._sock = tls.wrap(self._sock)
        self._wire = Wire(self._sock, self._serving.clock)
        tls.handshake(self._sock, max(until - self._serving.clock(), 0.001))
        return True

    def _serve_one(self) -> bool:
        """Answer one request and tell whether a further one may follow."""
        limits, clock = self._serving.limits, self._serving.clock
        # First say that we wait, then look whether the end was called: end() does it the other way
        # round, so that one of the two always sees the other.
        self.waiting_since = now = clock()
        if self._is_ending:
            return False
        if not self._wire.wait(now + (limits.idle_seconds if self._served else limits.head_seconds)):
            return False
        try:
            began = clock() if self._served else now
            request = parse_head(self._wire.read_head(began + limits.head_seconds), peer=self._peer)
        except BadRequest as problem:
            self._respond(None, sentence(problem.status, problem.sentence), is_last=True)
            return False
        self.waiting_since = None
        return self._is_admitted() and self._answer(request)

    def _is_admitted(self) -> bool:
        """Tell whether what the handshake checked is still what is asked for."""
        before, self._rules = self._rules, self._serving.gate()
        return self._rules is before or (self._rules.tls is None and before.tls is None)

    def _answer(self, request: HttpRequest) -> bool:
        self._served += 1
        request, response = self._make_response(request)
        self.waiting_since = None
        is_last = (
            request.wants_close
            or (request.has_body and not request.body)
            or self._is_ending
            or self._served >= self._serving.limits.requests_per_connection
        )
        return self._respond(request, response, is_last=is_last) and not is_last

    def _make_response(self, request: HttpRequest) -> tuple[HttpRequest, Response]:
        """Return the request, with its body if one was read, and the answer to it."""
        try:
            refusal = self._rules.refuse(request)
            if refusal is not None:
                return request, refusal
            route = self._serving.app(request)
            request = self._with_body(request, route)
            return request, started(route.answer(request))
        except BadRequest as problem:
            return request, sentence(problem.status, problem.sentence)
        except ClientLeft:
            raise
        except Exception:
            # Whatever it was: the client gets one sentence, the log the details.
            logger.exception("request failed", extra=fields(method=request.method, path=request.path))
            return request, sentence(500, "The request failed; the log of the server says why.")

    def _with_body(self, request: HttpRequest, route: Route) -> HttpRequest:
        if not route.body_limit_bytes or not request.has_body:
            return request
        limits = self._serving.limits
        length = body_length(request, route.body_limit_bytes)
        expect = request.headers.get("expect", "").lower()
        if expect not in ("", "100-continue"):
            raise BadRequest(417, "This expectation cannot be met.")
        if expect and request.is_http11:
            self._wire.start_sending(limits.write_seconds)
            self._wire.ask_for_body()
        self.waiting_since = now = self._serving.clock()
        return replace(request, body=self._wire.read_body(length, now + limits.body_seconds))

    def _respond(self, request: HttpRequest | None, response: Response, *, is_last: bool) -> bool:
        """Send a response and tell whether it went out whole."""
        try:
            self._serving.counters.count(request.method if request else "", response.status)
            self._wire.start_sending(self._serving.limits.write_seconds)
            is_whole = send_response(self._wire, request, response, site_headers=self._rules.headers, is_last=is_last)
        finally:
            response.close()
        if is_last and is_whole:
            self.waiting_since = now = self._serving.clock()
            self._wire.finish(now + self._serving.limits.drain_seconds)
        return is_whole
