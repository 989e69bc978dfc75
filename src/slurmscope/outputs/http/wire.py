# SPDX-License-Identifier: Apache-2.0
"""Receive and send bytes over one socket without waiting past a deadline."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable

from slurmscope.outputs.http.request import HEAD_LIMIT_BYTES, REQUEST_LINE_LIMIT_BYTES, BadRequest

RECEIVE_BYTES = 16 * 1024
DRAIN_LIMIT_BYTES = 16 * 1024 * 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class ClientLeft(Exception):
    """The client closed or reset the connection in the middle of a request."""


class ClientTooSlow(TimeoutError):
    """The client does not read its response fast enough."""


class Wire:
    """Hold one socket and the bytes received but not used yet; deadlines are times of ``clock``."""

    def __init__(self, sock: socket.socket, clock: Callable[[], float]) -> None:
        """Take a connected socket; the caller closes it."""
        self._sock = sock
        self._clock = clock
        self._buffer = bytearray()
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
            self._sock.settimeout(self._send_seconds_left)
            self._sock.sendall(data)
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
        self._sock.settimeout(left)
        data = self._sock.recv(RECEIVE_BYTES)
        self._buffer += data
        return bool(data)
