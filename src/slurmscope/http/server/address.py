# SPDX-License-Identifier: Apache-2.0
"""Parse the addresses to listen on, open unix sockets, and match the addresses of clients with networks."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurmscope.core.errors import ConfigError
from slurmscope.core.settings import parse_list

BACKLOG = 1024
_ADDRESS = re.compile(r"(?:\[(?P<bracketed>[^\[\]]+)\]|(?P<plain>[^:\[\]]*)):(?P<port>[0-9]{1,5})\Z")
_WITHOUT_IPV6 = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT})

_Target = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]

OpenSocket = Callable[[int, int], socket.socket]
"""Open a socket of a family and a type; tests use it to simulate a machine without IPv6."""


@dataclass(frozen=True, slots=True)
class ListenHost:
    """Host and port; an empty host means all addresses of the machine, port 0 any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> ListenHost:
    match = _ADDRESS.match(text)
    if match is None or int(match["port"]) > 65535:
        raise ConfigError(f"listen address {text!r} is not :PORT, HOST:PORT or [IPV6]:PORT")
    return ListenHost(match["bracketed"] or match["plain"] or "", int(match["port"]))


def open_listeners(addresses: Sequence[str], open_socket: OpenSocket = socket.socket) -> list[socket.socket]:
    """Listen on all addresses; if one fails, close the others and raise ConfigError."""
    parsed = [parse_address(address) for address in addresses]
    listeners: list[socket.socket] = []
    try:
        for address in parsed:
            listeners.append(_open_listener(address, open_socket))
    except OSError as error:
        for listener in listeners:
            listener.close()
        raise ConfigError(f"cannot listen on {address}: {error.strerror or error}") from error
    return listeners


def bound_address(listener: socket.socket) -> ListenHost:
    """Return the address a socket listens on, with the port the kernel chose."""
    host, port = listener.getsockname()[:2]
    return ListenHost(host, port)


def _open_listener(address: ListenHost, open_socket: OpenSocket) -> socket.socket:
    if address.host not in ("", "::"):
        family, target = _resolve(address)
        return _listen(open_socket(family, socket.SOCK_STREAM), target)
    try:
        return _listen_on_all(address.port, open_socket)
    except OSError as error:
        # IPv6 is disabled in the kernel or on every interface.
        if address.host or error.errno not in _WITHOUT_IPV6:
            raise
    return _listen(open_socket(socket.AF_INET, socket.SOCK_STREAM), ("0.0.0.0", address.port))  # noqa: S104 - asked for


def _resolve(address: ListenHost) -> tuple[int, _Target]:
    """Return one address of a host; IPv4 first, as Go does, so ``localhost`` means the same here."""
    # Of text, Python makes a name of IDNA first, for which it loads its tables: 0.3 MB, also for 127.0.0.1.
    host = address.host.encode("ascii") if address.host.isascii() else address.host
    found = socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    found.sort(key=lambda item: item[0] != socket.AF_INET)
    return found[0][0], found[0][4]


def _listen_on_all(port: int, open_socket: OpenSocket) -> socket.socket:
    listener = open_socket(socket.AF_INET6, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    except OSError:
        listener.close()
        raise
    return _listen(listener, ("::", port))


def _listen(listener: socket.socket, target: _Target) -> socket.socket:
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(target)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


# Linux limits the path of a socket; the temporary name is a little longer than the final one.
_LONGEST_PATH_BYTES = 90


def open_unix_listener(path: Path) -> socket.socket:
    """Return a listening socket; raise ConfigError if it cannot be made.

    It is made under another name and moved into place, so clients never find a socket that refuses them, and a socket
    left behind by an agent that was killed is replaced.
    """
    if len(os.fsencode(path)) > _LONGEST_PATH_BYTES:
        raise ConfigError(f"the path of the socket {path} is longer than {_LONGEST_PATH_BYTES} bytes")
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        beside.unlink(missing_ok=True)
        listener.bind(str(beside))
        beside.chmod(0o666)
        listener.listen(BACKLOG)
        listener.setblocking(False)
        beside.replace(path)
    except OSError as error:
        listener.close()
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise ConfigError(f"cannot listen on {path}: {error.strerror or error}") from error
    return listener


def remove_socket(path: Path, inode: int) -> None:
    """Remove a socket, unless another one has taken its place."""
    with contextlib.suppress(OSError):
        if path.stat().st_ino == inode:
            path.unlink()


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_networks(given: object) -> tuple[Network, ...]:
    """Parse networks such as 127.0.0.0/8; the mask is required, so that no network is larger than intended."""
    networks = []
    for text in parse_list(given):
        if "/" not in text:
            raise ValueError(f"{text!r} has no mask; use for example 127.0.0.0/8")
        try:
            networks.append(ipaddress.ip_network(text))
        except ValueError as error:
            raise ValueError(f"{text!r} is not a network such as 127.0.0.0/8: {error}") from error
    return tuple(networks)


def is_listed(peer: str, networks: Iterable[Network]) -> bool:
    """Return whether the address of a client is in one of the networks; what is not an address never is."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    return any(address in network for network in networks)
