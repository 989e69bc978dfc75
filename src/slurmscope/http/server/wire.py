# SPDX-License-Identifier: Apache-2.0
"""Receive and send bytes over one socket without waiting past a deadline."""

from __future__ import annotations

import contextlib
import math
import re
import select
import socket
import struct
from collections.abc import Callable

from slurmscope.http.server.request import HEAD_LIMIT_BYTES, REQUEST_LINE_LIMIT_BYTES, BadRequest, PeerCredentials

RECEIVE_BYTES = 16 * 1024
DRAIN_LIMIT_BYTES = 16 * 1024 * 1024
_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,15})[ \t]*\r\n", re.IGNORECASE)
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class ClientLeft(Exception):
    """The client closed or reset the connection in the middle of a request."""


class ClientTooSlow(TimeoutError):
    """The client does not read its response fast enough."""


class Wire:
    """One socket and the bytes received but not used yet; deadlines are times of ``clock``."""

    def __init__(self, sock: socket.socket, clock: Callable[[], float]) -> None:
        """Take a connected socket; the caller closes it."""
        self._sock = sock
        self._clock = clock
        self._buffer = bytearray()
        # TLS may hold data that the kernel does not know of, so a TLS socket has to wait itself.
        self._poller = None if hasattr(sock, "unwrap") else _non_blocking(sock)
        self._send_seconds_left = 0.0
        self.sending_since: float | None = None
        """Since when one block is being sent: a client that reads takes milliseconds."""

    def wait(self, until: float) -> bool:
        """Wait for the next request; return False if the client leaves or sends nothing in time."""
        try:
            while not self._has_request_byte():
                if not self._receive(until):
                    return False
        except TimeoutError:
            return False
        return True

    @property
    def is_empty(self) -> bool:
        """Return whether all received bytes are used."""
        return not self._buffer

    @property
    def is_shared(self) -> bool:
        """Return whether another thread may wait for data; one with TLS holds some itself."""
        return self._poller is not None

    def take(self) -> bool:
        """Receive what is there without waiting; return False if the client has left."""
        try:
            data = self._sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return True
        self._buffer += data
        return bool(data)

    def has_whole_request(self) -> bool:
        """Return whether a head and the body that it announces were received; a guess, but never too early."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        length = _CONTENT_LENGTH.search(self._buffer, 0, end + 2)
        return len(self._buffer) >= end + 4 + (int(length[1]) if length else 0)

    def read_head(self, until: float) -> bytes:
        """Return the next request head without its empty line; further bytes stay in the buffer."""
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            self._check_head_so_far(len(self._buffer))
            try:
                is_open = self._receive(until)
            except TimeoutError as error:
                raise BadRequest(408, "The request did not arrive in time.") from error
            if not is_open:
                raise ClientLeft("in the middle of a request")
        self._check_head_so_far(end)
        head = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        return head

    def read_body(self, length: int, until: float) -> bytes:
        """Return a body of a known length; bytes of the next request stay in the buffer."""
        while len(self._buffer) < length:
            try:
                is_open = self._receive(until)
            except TimeoutError as error:
                raise BadRequest(408, "The body did not arrive in time.", "timeout") from error
            except OSError as error:
                raise ClientLeft("in the middle of a body") from error
            if not is_open:
                raise ClientLeft("in the middle of a body")
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return body

    def start_sending(self, seconds: float) -> None:
        """Set how many seconds the client may block the sending of one response."""
        self._send_seconds_left = seconds

    def send(self, data: bytes) -> None:
        """Send all data; only the time spent here counts, not the time the page takes to build."""
        if self._send_seconds_left <= 0:
            raise ClientTooSlow("the client reads too slowly")
        self.sending_since = started = self._clock()
        try:
            self._send_all(data, started + self._send_seconds_left)
        finally:
            self.sending_since = None
        self._send_seconds_left -= self._clock() - started

    def finish(self, until: float) -> None:
        """Shut down the sending side and discard what is still received.

        Closing with unread bytes would make the kernel send a reset, which can overtake the response.
        """
        with contextlib.suppress(OSError):
            self._close_tls()
            self._sock.shutdown(socket.SHUT_WR)
            received = 0
            while received < DRAIN_LIMIT_BYTES and (left := until - self._clock()) > 0:
                self._sock.settimeout(left)
                data = self._sock.recv(RECEIVE_BYTES)
                if not data:
                    break
                received += len(data)

    def abort(self) -> None:
        """Make the coming close a reset, so that a page cut in the middle never looks complete."""
        with contextlib.suppress(OSError):
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)

    def _close_tls(self) -> None:
        """Send the closing message of TLS; without it the end looks like a cut to the client."""
        unwrap: Callable[[], object] | None = getattr(self._sock, "unwrap", None)
        if unwrap is not None:
            self._sock.settimeout(0.2)
            with contextlib.suppress(OSError):
                unwrap()

    def _has_request_byte(self) -> bool:
        """Skip the empty lines that old clients send after a body."""
        while self._buffer.startswith(b"\r\n"):
            del self._buffer[:2]
        return bool(self._buffer) and self._buffer != b"\r"

    def _check_head_so_far(self, length: int) -> None:
        line_end = self._buffer.find(b"\r\n", 0, REQUEST_LINE_LIMIT_BYTES + 2)
        if line_end < 0 and length > REQUEST_LINE_LIMIT_BYTES:
            raise BadRequest(414, f"The request line is longer than {REQUEST_LINE_LIMIT_BYTES} bytes.")
        if length > HEAD_LIMIT_BYTES:
            raise BadRequest(431, f"The head of the request is larger than {HEAD_LIMIT_BYTES} bytes.")
        if self._buffer and not 0x21 <= self._buffer[0] <= 0x7E:
            # A TLS handshake, for instance: no need to wait for the end of something that is not HTTP.
            raise BadRequest(400, "This is not an HTTP request.")

    def _receive(self, until: float) -> bool:
        left = until - self._clock()
        if left <= 0:
            raise TimeoutError
        if self._poller is None:
            self._sock.settimeout(left)
        elif not self._poller.poll(math.ceil(left * 1000)):
            raise TimeoutError
        try:
            data = self._sock.recv(RECEIVE_BYTES)
        except BlockingIOError:  # the kernel dropped what it had announced
            return True
        self._buffer += data
        return bool(data)

    def _send_all(self, data: bytes, until: float) -> None:
        if self._poller is None:
            self._sock.settimeout(until - self._clock())
            self._sock.sendall(data)
            return
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._sock.send(rest) :]
            except BlockingIOError:
                left = until - self._clock()
                if left <= 0 or not _wait_until_writable(self._sock, left):
                    raise ClientTooSlow("the client reads too slowly") from None


def _non_blocking(sock: socket.socket) -> select.poll:
    """Return what waits for data of a socket that never blocks itself.

    A socket with a timeout makes six system calls for a small request and its response, and gives up the interpreter
    lock at each: far too many for thousands of posts a second.
    """
    sock.setblocking(False)
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return poller


def _wait_until_writable(sock: socket.socket, seconds: float) -> bool:
    poller = select.poll()
    poller.register(sock, select.POLLOUT)
    return bool(poller.poll(math.ceil(seconds * 1000)))


def peer_credentials(sock: socket.socket) -> PeerCredentials:
    """Return process and user that connected to a unix socket."""
    pid, uid, _ = struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return PeerCredentials(pid, uid)
