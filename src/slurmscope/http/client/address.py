# SPDX-License-Identifier: Apache-2.0
"""Parse the address of a server, and apply one deadline to all reads of a connection to it."""

from __future__ import annotations

import io
import re
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


_FORM = "http://HOST[:PORT][/PREFIX], https://HOST[:PORT][/PREFIX] or unix:/PATH"
_HOST = re.compile(r"[A-Za-z0-9._:%-]+\Z")
_PREFIX = re.compile(r"[!-~]*\Z")
# A unix socket's address has 108 bytes in Linux, its closing zero included.
_LONGEST_SOCKET_PATH = 107


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """The address of one server; where ``socket_path`` is set, host and port are not used."""

    host: str = "localhost"
    port: int = 80
    is_tls: bool = False
    prefix: str = ""
    socket_path: str = ""

    def __str__(self) -> str:
        if self.socket_path:
            return f"unix:{self.socket_path}"
        return f"{'https' if self.is_tls else 'http'}://{self.host_and_port}{self.prefix}"

    @property
    def host_and_port(self) -> str:
        """Return the value of the Host header."""
        if self.socket_path:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(given: object, *, default_port: int | None = None) -> ServerAddress:
    """Parse the address of a server; without a port, it is the default one or else that of http or https.

    Raise ValueError without repeating the address, which may contain a password.
    """
    text = given if isinstance(given, str) and given.isprintable() else ""
    if text.startswith("unix:"):
        path = "/" + text.removeprefix("unix:").lstrip("/")
        if path == "/" or len(path.encode()) > _LONGEST_SOCKET_PATH:
            raise ValueError(f"the address is not of the form {_FORM}, with a path of 1 to 107 bytes")
        return ServerAddress(socket_path=path)
    try:
        parts = urlsplit(text)
        host, is_tls = parts.hostname or "", parts.scheme == "https"
        port = (default_port or (443 if is_tls else 80)) if parts.port is None else parts.port
    except ValueError:
        raise ValueError(f"the address is not of the form {_FORM}") from None
    is_valid = parts.scheme in {"http", "https"} and _HOST.match(host) and _PREFIX.match(parts.path) and port
    if not is_valid or "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(f"the address is not of the form {_FORM}")
    return ServerAddress(host=host, port=port, is_tls=is_tls, prefix=parts.path.rstrip("/"))


def seconds_left(deadline: float) -> float:
    """Return the time until a monotonic deadline; raise TimeoutError when it has passed."""
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining


class DeadlineReader(io.RawIOBase):
    """Let HTTPResponse read from a connection, which the caller closes, until a deadline.

    A socket's own timeout restarts with every byte.
    """

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        super().__init__()
        self._connection = connection
        self._deadline = deadline

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._connection.settimeout(seconds_left(self._deadline))
        return self._connection.recv_into(buffer)
