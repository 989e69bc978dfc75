# SPDX-License-Identifier: Apache-2.0
"""Accept connections and serve each in its own thread, up to a fixed number.

A thread waits for its client without blocking anything else, so a silent or slow client costs a few dozen kilobytes
and no time. At the limit, the connection that has waited longest for its client, to send or to read, is closed, of the
address with the most; only if all of these are busy making a response, a new one gets 503. One address never has more
than three of four connections, and no more than some hundred new ones a second. Of clients on the loopback, which have
millions of addresses, users count instead.

A thread for each of hundreds of senders would spend more time on switching between threads than on their posts; so do
two threads, since both need Python's lock again after each read and write. After its first upload a connection is
parked here; whatever cannot be answered at once gets a thread of its own again.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from slurmscope.core.connection_owner import query_owner
from slurmscope.core.log import fields
from slurmscope.core.rate_limit import TokenBuckets
from slurmscope.http.server.address import ListenHost, bound_address, open_listeners
from slurmscope.http.server.connection import Connection, ConnectionLimits, Readiness, Serving
from slurmscope.http.server.gate import FileGate, Rules, open_gate
from slurmscope.http.server.page_slots import find_rivals
from slurmscope.http.server.request import UNKNOWN_PID, PeerCredentials, is_loopback, peer_group
from slurmscope.http.server.response import App, FindUpload, RequestCounters, head_bytes, text_response
from slurmscope.http.server.wire import peer_credentials

logger = logging.getLogger(__name__)


_BATCH = 8
_POLL_SECONDS = 1.0
_EVENTS = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLONESHOT


class ParkedConnections:
    """Wait for parked connections and serve what they send; every method may be called from any thread."""

    def __init__(
        self,
        *,
        discard: Callable[[Connection], None],
        start_thread: Callable[[Connection], None],
        idle_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        """Take what ends a connection and what gives it a thread of its own; ours starts with the first connection."""
        self._discard = discard
        self._start_thread = start_thread
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._epoll = select.epoll()
        # Closing one end wakes the thread.
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._epoll.register(self._wake_reader, select.EPOLLIN)
        self._parked: dict[int, Connection] = {}
        self._thread: threading.Thread | None = None
        self._is_stopping = False

    def park(self, connection: Connection) -> None:
        with self._lock:
            descriptor = connection.descriptor
            if descriptor >= 0 and not self._is_stopping:
                self._parked[descriptor] = connection
                self._epoll.register(descriptor, _EVENTS)
                self._start()
                return
        connection.close()
        self._discard(connection)

    def close(self) -> None:
        """End the thread; connections are ended by the server before."""
        with self._lock:
            self._is_stopping = True
            self._wake_writer.close()
        if self._thread is not None:
            self._thread.join(2 * _POLL_SECONDS)
        self._epoll.close()
        self._wake_reader.close()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="http-parked", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while not self._is_stopping:
            try:
                events = self._epoll.poll(_POLL_SECONDS, _BATCH)
            except (OSError, ValueError):  # closed
                return
            for descriptor, _ in events:
                self._serve(descriptor)
            if not events:
                self._cut_idle()

    def _serve(self, descriptor: int) -> None:
        connection = self._parked.get(descriptor)
        if connection is None:
            return
        readiness = connection.serve_ready()
        if readiness is Readiness.PARKED:
            with contextlib.suppress(OSError):
                self._epoll.modify(descriptor, _EVENTS)
            return
        # Before it is closed: its descriptor may be that of a new connection a moment later.
        with self._lock, contextlib.suppress(OSError):
            del self._parked[descriptor]
            self._epoll.unregister(descriptor)
        if readiness is Readiness.NEEDS_THREAD:
            self._start_thread(connection)
        else:
            connection.close()
            self._discard(connection)

    def _cut_idle(self) -> None:
        with self._lock:
            parked = tuple(self._parked.values())
        now = self._clock()
        for connection in parked:
            if (since := connection.waiting_since) is not None and now - since > self._idle_seconds:
                connection.cut()


_STARVED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_STARVED_PAUSE_SECONDS = 0.1
_QUIET_SECONDS = 60.0
_ROOM_SECONDS = 1.0
_FEW_ENDING = 8
_ACCEPTED_AT_ONCE = 64

FindOwner = Callable[[tuple[str, int], tuple[str, int]], int | None]
"""Return the uid of the process at the client's end of a connection within this machine, None if it is not known."""


class Server:
    """Serve an app on one or more addresses; every method may be called from any thread."""

    def __init__(  # noqa: PLR0913 - all but the first are keyword-only
        self,
        app: App,
        *,
        addresses: Sequence[str] = (),
        sockets: Sequence[socket.socket] = (),
        find_upload: FindUpload = lambda _: None,
        find_owner: FindOwner | None = None,
        find_local_user: FindOwner = query_owner,
        config_file: Path | None = None,
        max_connections: int = 512,
        limits: ConnectionLimits | None = None,
    ) -> None:
        """Read the web configuration and listen; ``serve`` or ``start`` begins to accept connections.

        ``sockets`` listen already, such as unix sockets; the server closes them. ``find_upload`` says which bodies
        are read. With ``find_owner``, requests over TCP have credentials, too, if the client is on this machine.
        ``find_local_user`` only finds whose limits a client on the loopback shares.
        """
        self._find_owner = find_owner
        self._find_local_user = find_local_user
        self.counters = RequestCounters()
        self._gate = None if config_file is None else FileGate(config_file)
        self._serving = Serving(
            app=app,
            gate=open_gate(None) if self._gate is None else self._gate.rules,
            counters=self.counters,
            find_upload=find_upload,
            limits=limits or ConnectionLimits(),
        )
        opened = open_listeners(addresses)
        self.addresses: tuple[ListenHost, ...] = tuple(bound_address(listener) for listener in opened)
        self._listeners = [*opened, *sockets]
        self._max_connections = max_connections
        self._parked = ParkedConnections(
            discard=self._discard,
            start_thread=self._start_thread,
            idle_seconds=self._serving.limits.idle_seconds,
            clock=self._serving.clock,
        )
        self._new = TokenBuckets(self._serving.limits.new_per_second, self._serving.limits.new_at_once)
        self._connections: set[Connection] = set()
        self._ending: set[Connection] = set()
        """Those that were cut to make room, until their threads end."""
        self._changed = threading.Condition()
        self._serving_thread: threading.Thread | None = None
        self._is_stopping = False
        self._failed_at: float | None = None
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_writer.setblocking(False)

    @property
    def is_config_good(self) -> bool:
        """Return whether the web configuration is valid; if not, all requests are refused."""
        return not self._serving.gate().is_closed

    def rules(self) -> Rules:
        """Return what clients must fulfil now."""
        return self._serving.gate()

    def accept_config(self) -> None:
        """Read the web configuration again, and accept what it no longer protects."""
        if self._gate is not None:
            self._gate.accept()

    def start(self) -> None:
        threading.Thread(target=self.serve, name="http-accept", daemon=True).start()

    def serve(self) -> None:
        """Accept connections until ``stop`` or ``close`` is called, then release the addresses."""
        with self._changed:
            if self._is_stopping:
                # Stopped before it started; the sockets may be closed already.
                self._close_listeners()
                return
            self._serving_thread = threading.current_thread()
        poller = select.poll()
        listeners = {listener.fileno(): listener for listener in self._listeners}
        for descriptor in (*listeners, self._wake_reader.fileno()):
            poller.register(descriptor, select.POLLIN)
        try:
            while not self._is_stopping:
                for descriptor, _ in poller.poll(60_000):
                    if descriptor in listeners and not self._is_stopping:
                        self._accept_safely(listeners[descriptor])
        finally:
            with self._changed:
                self._close_listeners()
                self._serving_thread = None
                self._changed.notify_all()

    def stop(self) -> None:
        """Make ``serve`` return; takes no lock, so a signal handler may call it."""
        self._is_stopping = True
        with contextlib.suppress(OSError):
            self._wake_writer.send(b"x")

    def close(self, timeout_seconds: float = 10.0) -> int:
        """Stop, wait for running requests, cut those that do not finish in time and return their number."""
        self.stop()
        with self._changed:
            self._changed.wait_for(self._has_stopped_accepting, _ROOM_SECONDS)
            for connection in self._connections:
                connection.end()
            self._changed.wait_for(lambda: not self._connections, timeout_seconds)
            unfinished = tuple(self._connections)
            for connection in unfinished:
                connection.cut()
            self._changed.wait_for(lambda: not self._connections, _ROOM_SECONDS)
        self._parked.close()
        with self._changed:
            self._close_listeners()
            self._wake_reader.close()
            self._wake_writer.close()
        return len(unfinished)

    def _has_stopped_accepting(self) -> bool:
        return self._serving_thread in (None, threading.current_thread())

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()

    def _accept_safely(self, listener: socket.socket) -> None:
        """Survive any failure, even out of memory: losing a connection is better than not listening."""
        try:
            for _ in range(_ACCEPTED_AT_ONCE):
                if self._is_stopping or not self._accept(listener):
                    return
        except Exception:
            logger.exception("connection lost")
            self._pause()

    def _accept(self, listener: socket.socket) -> bool:
        """Accept a connection; return False if none is waiting, or none can be accepted."""
        try:
            sock, address = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            self._wait_after(error)
            return False
        if sock.family == socket.AF_UNIX:
            self._admit(sock, "unix", peer_credentials(sock))
            return True
        peer, credentials = str(address[0]).removeprefix("::ffff:"), self._owner_credentials(sock, address)
        is_unknown = credentials is None and is_loopback(peer)
        uid = self._find_local_user(address[:2], sock.getsockname()[:2]) if is_unknown else None
        self._admit(sock, peer, credentials, uid)
        return True

    def _owner_credentials(self, sock: socket.socket, address: tuple[str, int]) -> PeerCredentials | None:
        if self._find_owner is None:
            return None
        uid = self._find_owner(address[:2], sock.getsockname()[:2])
        return None if uid is None else PeerCredentials(UNKNOWN_PID, uid)

    def _wait_after(self, error: OSError) -> None:
        """Leave new connections in the kernel's queue for a moment, instead of retrying in a tight loop."""
        now = time.monotonic()
        if self._failed_at is None or now - self._failed_at > _QUIET_SECONDS:
            logger.error("cannot accept connections", extra=fields(error=error.strerror))
        self._failed_at = now
        if error.errno in _STARVED:
            with self._changed:
                if self._cut_longest_waiting(self._connections):
                    self._changed.wait(_STARVED_PAUSE_SECONDS)
                    return
        self._pause()

    def _pause(self) -> None:
        select.select([self._wake_reader], [], [], _STARVED_PAUSE_SECONDS)

    def _admit(
        self, sock: socket.socket, peer: str, credentials: PeerCredentials | None = None, uid: int | None = None
    ) -> None:
        with contextlib.suppress(OSError):
            # Otherwise the small last chunk waits for the client's acknowledgement of the one before.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        group, connection = peer_group(peer, credentials.uid if credentials else uid), None
        # Refused without more ado: a flood of connections must not delay those of others.
        if not self._new.take(group):
            with self._changed:
                if self._make_room(group):
                    connection = Connection(sock, peer, self._serving, credentials, group=group)
                    self._connections.add(connection)
        if connection is None:
            self._refuse(sock)
            return
        self._start_thread(connection)

    def _start_thread(self, connection: Connection) -> None:
        thread = threading.Thread(target=self._run, args=(connection,), name="http-connection", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            logger.warning("cannot serve a connection", extra=fields(error=error))
            self._discard(connection)
            self._refuse(connection.detach())

    def _run(self, connection: Connection) -> None:
        is_parked = False
        try:
            is_parked = connection.run(may_park=True)
        finally:
            if is_parked:
                self._parked.park(connection)
            else:
                self._discard(connection)

    def _discard(self, connection: Connection) -> None:
        with self._changed:
            self._connections.discard(connection)
            self._ending.discard(connection)
            self._changed.notify_all()

    def _make_room(self, group: str) -> bool:
        """Return whether there is room for a connection; one of those that must go is cut, and ends a moment later."""
        rivals = find_rivals(self._connections, group, self._max_connections)
        if not rivals:
            return True
        if not self._cut_longest_waiting(rivals):
            return False
        # The end of a connection that a greedy address loses is not waited for: that would delay those of others.
        is_greedy = len(self._connections) + 1 < self._max_connections
        return self._changed.wait_for(self._is_ending_few, 0 if is_greedy else _ROOM_SECONDS)

    def _is_ending_few(self) -> bool:
        return len(self._ending) <= max(_FEW_ENDING, self._max_connections // 8)

    def _cut_longest_waiting(self, connections: Iterable[Connection]) -> bool:
        waiting = [(since, c) for c in connections if (since := c.stalled_since) is not None]
        if not waiting:
            return False
        connection = min(waiting, key=lambda pair: pair[0])[1]
        connection.cut()
        self._connections.discard(connection)
        self._ending.add(connection)
        return True

    def _refuse(self, sock: socket.socket) -> None:
        """Answer 503 in one packet without waiting for the client."""
        self.counters.count("", 503)
        response = text_response(503, "Too many connections.", ("Connection", "close"))
        body = response.body if isinstance(response.body, bytes) else b""
        with contextlib.suppress(OSError):
            sock.setblocking(False)
            sock.send(head_bytes(503, (*response.headers, ("Content-Length", str(len(body))))) + body)
            sock.recv(4096)
        sock.close()
