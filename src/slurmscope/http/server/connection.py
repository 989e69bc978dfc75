# SPDX-License-Identifier: Apache-2.0
"""Serve the requests of one connection, one after the other."""

from __future__ import annotations

import contextlib
import enum
import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from slurmscope.core.log import fields
from slurmscope.http.server.gate import Gate, Rules
from slurmscope.http.server.page_slots import STALLED_SECONDS
from slurmscope.http.server.request import BadRequest, HttpRequest, PeerCredentials, parse_head
from slurmscope.http.server.response import (
    App,
    FindUpload,
    RequestCounters,
    Response,
    Upload,
    send_response,
    started,
    text_response,
)
from slurmscope.http.server.wire import ClientLeft, Wire

logger = logging.getLogger(__name__)


GZIP = "gzip"
_PLAIN_ENCODINGS = ("", "identity")


def body_length(request: HttpRequest, limit_bytes: int, *, accepts_gzip: bool = False) -> int:
    """Return the length of the body in bytes; raise BadRequest if it is too large, compressed or of unknown length."""
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in _PLAIN_ENCODINGS and not (accepts_gzip and encoding == GZIP):
        allowed = "in no way but gzip" if accepts_gzip else "not"
        raise BadRequest(415, f"The body must {allowed} be compressed.", "encoding")
    if "transfer-encoding" in request.headers or "content-length" not in request.headers:
        raise BadRequest(400, "The header content-length is required; chunked bodies are not accepted.", "length")
    length = int(request.headers["content-length"])
    if length > limit_bytes:
        raise BadRequest(413, f"The body is larger than {limit_bytes} bytes.", "too_large")
    return length


_TLS_HANDSHAKE_BYTE = b"\x16"
# A thread that serves many connections waits for none of them: a client that does not read is cut.
_PARKED_SECONDS = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limit how long a client may take for each step, and how many requests one connection may send."""

    handshake_seconds: float = 5.0
    head_seconds: float = 5.0
    body_seconds: float = 5.0
    write_seconds: float = 30.0
    # Longer than the usual scrape intervals: a reused connection saves the TLS handshake.
    idle_seconds: float = 120.0
    drain_seconds: float = 1.0
    requests_per_connection: int = 1000
    uploads_per_connection: int = 100_000
    # New connections of one address: Prometheus keeps its own, and the tasks of an array may all push at once.
    new_per_second: float = 200.0
    new_at_once: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What all connections of a server share."""

    app: App
    gate: Gate
    counters: RequestCounters
    find_upload: FindUpload = lambda _: None
    limits: ConnectionLimits = ConnectionLimits()
    clock: Callable[[], float] = time.monotonic


class Readiness(enum.Enum):
    """What a parked connection needs next: nothing, a thread of its own, or to be closed."""

    PARKED = "parked"
    NEEDS_THREAD = "needs thread"
    GONE = "gone"


class Connection:
    """Own one socket until it is closed; ``run`` is for one thread, the other methods for any.

    ``waiting_since`` is set while the connection waits for its client and None while a response is made or sent. Only
    a connection that waits for its client, or for its client to read, may be cut to make room for another one.
    """

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        serving: Serving,
        credentials: PeerCredentials | None = None,
        *,
        group: str = "",
    ) -> None:
        """Take a connected socket, the credentials of a client of a unix socket, and whose limits it shares."""
        self.waiting_since: float | None = serving.clock()
        self._sock = sock
        self.group = group
        self._peer = peer
        self._credentials = credentials
        self._serving = serving
        self._wire = Wire(sock, serving.clock)
        self._rules = Rules()
        self._served = 0
        self._is_body_unread = False
        self._is_open = False
        self._is_parkable = False
        self._pending: HttpRequest | None = None
        self._write_seconds = serving.limits.write_seconds
        self._drain_seconds = serving.limits.drain_seconds
        self._is_ending = False
        self._is_closed = False
        self._closing = threading.Lock()

    @property
    def stalled_since(self) -> float | None:
        """Return since when the client keeps the connection from going on; None while it does not."""
        if self.waiting_since is not None:
            return self.waiting_since
        since = self._wire.sending_since
        is_stalled = since is not None and self._serving.clock() - since >= STALLED_SECONDS
        return since if is_stalled else None

    @property
    def descriptor(self) -> int:
        return self._sock.fileno()

    def run(self, *, may_park: bool = False) -> bool:
        """Serve until either side ends the connection; no exception leaves this method.

        With ``may_park``, return True as soon as the connection only waits for a further quick upload.
        """
        self._write_seconds = self._serving.limits.write_seconds
        self._drain_seconds = self._serving.limits.drain_seconds
        is_parked = False
        try:
            is_parked = self._serve_all(may_park=may_park)
        except (OSError, ClientLeft) as error:
            logger.debug("connection ended", extra=fields(peer=self._peer, error=str(error)))
        except Exception:
            logger.exception("connection failed", extra=fields(peer=self._peer))
        finally:
            if not is_parked:
                self.close()
        return is_parked

    def serve_ready(self) -> Readiness:
        """Answer the uploads that have arrived, without waiting for the client; no exception leaves this method."""
        self._write_seconds = self._drain_seconds = _PARKED_SECONDS
        try:
            return self._serve_received()
        except (OSError, ClientLeft) as error:
            logger.debug("connection ended", extra=fields(peer=self._peer, error=str(error)))
        except Exception:
            logger.exception("connection failed", extra=fields(peer=self._peer))
        return Readiness.GONE

    def _serve_all(self, *, may_park: bool) -> bool:
        if self._pending is not None:
            request, self._pending = self._pending, None
            if not self._answer(request, self._serving.find_upload(request)):
                return False
        elif not self._is_open:
            self._is_open = self._open()
            if not self._is_open:
                return False
        while self._serve_one():
            if may_park and self._is_parkable and self._wire.is_shared and self._wire.is_empty:
                self.waiting_since = self._serving.clock()
                return not self._is_ending
        return False

    def _serve_received(self) -> Readiness:
        if not self._wire.take():
            return Readiness.GONE
        while self._wire.has_whole_request():
            request = self._next_request(self._serving.clock())
            if request is None or not self._is_admitted():
                return Readiness.GONE
            upload = self._serving.find_upload(request)
            if upload is None or not upload.is_quick or request.wants_close or "expect" in request.headers:
                self._pending = request
                return Readiness.NEEDS_THREAD
            if not self._answer(request, upload):
                return Readiness.GONE
        self.waiting_since = self._serving.clock()
        if self._is_ending:
            return Readiness.GONE
        return Readiness.PARKED if self._wire.is_empty else Readiness.NEEDS_THREAD

    def close(self) -> None:
        """Close the socket; closing twice is fine."""
        with self._closing:
            self._is_closed = True
            self._sock.close()

    def detach(self) -> socket.socket:
        return self._sock

    def end(self) -> None:
        """Finish a running request and accept no further one."""
        self._is_ending = True
        if self.waiting_since is not None:
            self.cut()

    def cut(self) -> None:
        """Shut the connection down now; its thread wakes up."""
        with self._closing, contextlib.suppress(OSError):
            if not self._is_closed:
                # Not the method of a TLS socket: that one drops TLS first, and the thread could then send its
                # response in clear text.
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def _open(self) -> bool:
        """Do the TLS handshake if TLS is configured."""
        self._rules = self._serving.gate()
        tls = self._rules.tls
        if tls is None:
            return True
        if self._rules.is_closed:
            return False
        until = self._serving.clock() + self._serving.limits.handshake_seconds
        self._sock.settimeout(self._serving.limits.handshake_seconds)
        if self._sock.recv(1, socket.MSG_PEEK) not in (_TLS_HANDSHAKE_BYTE, b""):
            self._respond(None, text_response(400, "This address speaks HTTPS only."), is_last=True)
            return False
        with self._closing:
            self._sock = tls.wrap(self._sock)
        self._wire = Wire(self._sock, self._serving.clock)
        tls.handshake(self._sock, max(until - self._serving.clock(), 0.001))
        return True

    def _serve_one(self) -> bool:
        """Answer one request and return whether a further one may follow."""
        limits, clock = self._serving.limits, self._serving.clock
        # First mark the connection as waiting, then check whether end() was called: end() does it the other way
        # round, so that one of the two always sees the other.
        self.waiting_since = now = clock()
        if self._is_ending:
            return False
        if not self._wire.wait(now + (limits.idle_seconds if self._served else limits.head_seconds)):
            return False
        request = self._next_request(clock() if self._served else now)
        if request is None or not self._is_admitted():
            return False
        return self._answer(request, self._serving.find_upload(request))

    def _next_request(self, began: float) -> HttpRequest | None:
        """Read the head of the next request; None if it was refused."""
        try:
            head = self._wire.read_head(began + self._serving.limits.head_seconds)
            request = parse_head(
                head,
                peer=self._peer,
                credentials=self._credentials,
                is_authenticated=self._rules.are_clients_authenticated,
                group=self.group,
            )
        except BadRequest as problem:
            self._respond(None, text_response(problem.status, problem.message), is_last=True)
            return None
        self.waiting_since = None
        return request

    def _is_admitted(self) -> bool:
        """Return whether the rules that the handshake was checked against still apply."""
        before, self._rules = self._rules, self._serving.gate()
        return self._rules is before or (self._rules.tls is None and before.tls is None)

    def _answer(self, request: HttpRequest, upload: Upload | None) -> bool:
        self._served += 1
        self._is_body_unread = request.has_body
        self._is_parkable = upload is not None and upload.is_quick
        response = self._make_response(request, upload)
        limits = self._serving.limits
        is_last = (
            request.wants_close
            or self._is_body_unread
            or self._is_ending
            or self._served >= (limits.uploads_per_connection if upload else limits.requests_per_connection)
        )
        return self._respond(request, response, is_last=is_last) and not is_last

    def _make_response(self, request: HttpRequest, upload: Upload | None) -> Response:
        try:
            has_credential = upload is not None and upload.has_credential
            if refusal := self._rules.refuse(request, has_credential=has_credential):
                return refusal
            if upload is not None:
                request = request.with_body(self._read_body(request, upload))
            return started(self._serving.app(request))
        except BadRequest as problem:
            return upload.refuse(problem) if upload else text_response(problem.status, problem.message)
        except ClientLeft:
            raise
        except Exception:
            # The client gets one sentence, the log the details.
            logger.exception("request failed", extra=fields(method=request.method, path=request.path))
            return text_response(500, "The request failed; the log of the server says why.")

    def _read_body(self, request: HttpRequest, upload: Upload) -> bytes:
        length = body_length(request, upload.limit_bytes, accepts_gzip=upload.accepts_gzip)
        self._wire.start_sending(self._write_seconds)
        if request.headers.get("expect", "").lower() == "100-continue" and request.is_http11:
            self._wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        # A client that sends its body slowly may be cut to make room for another one.
        self.waiting_since = now = self._serving.clock()
        body = self._wire.read_body(length, now + self._serving.limits.body_seconds)
        self.waiting_since = None
        self._is_body_unread = False
        return body

    def _respond(self, request: HttpRequest | None, response: Response, *, is_last: bool) -> bool:
        """Send a response and return whether all of it was sent."""
        try:
            self._serving.counters.count(request.method if request else "", response.status)
            self._wire.start_sending(self._write_seconds)
            is_whole = send_response(self._wire, request, response, site_headers=self._rules.headers, is_last=is_last)
        finally:
            response.close()
        if is_last and is_whole:
            self.waiting_since = now = self._serving.clock()
            self._wire.finish(now + self._drain_seconds)
        return is_whole
