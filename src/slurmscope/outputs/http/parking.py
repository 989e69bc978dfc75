# SPDX-License-Identifier: Apache-2.0
"""Serve many connections that send quick uploads with one thread.

A thread for each of hundreds of senders would spend more time on switching between threads than on their posts; so do
two threads, since both need Python's lock again after each read and write. After its first upload a connection is
parked here; whatever cannot be answered at once gets a thread of its own again.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable

from slurmscope.outputs.http.connection import Connection, Readiness

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
        """Take over a connection."""
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
