# SPDX-License-Identifier: Apache-2.0
"""Find the user who opened a connection from this machine.

The kernel is queried for this one connection through sock_diag, as ss does: 60 µs. Where that is not permitted, the
tables in /proc are searched; the kernel generates them from all connections, which takes milliseconds.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from pathlib import Path

Endpoint = tuple[str, int]

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Ends = tuple[tuple[_Address, int], tuple[_Address, int]]

_NET = Path("/proc/self/net")
_TABLE_LIMIT_BYTES = 256 * 1024 * 1024
_WAIT_SECONDS = 1.0
# From linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h.
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_ANY_STATE = 0xFFFFFFFF
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI2s2s16s16sI8s")
_ANSWER = struct.Struct("=BBBB2s2s16s16sI8sIIIII")


def find_owner(client: Endpoint, server: Endpoint) -> int | None:
    """Return the user ID of the process at the client's end, or None when it is not known.

    A connection that its process has already closed has no owner: it has no inode, and its user ID of 0 is
    meaningless.
    """
    owner = query_owner(client, server)
    return owner if owner is not None else search_owner(client, server)


def query_owner(client: Endpoint, server: Endpoint) -> int | None:
    """Query the kernel for one connection; None when it does not exist or the query is not possible."""
    ends = _parse(client, server)
    if ends is None:
        return None
    ports = [port.to_bytes(2, "big") for _, port in ends]
    addresses = [address.packed.ljust(16, b"\0") for address, _ in ends]
    family = socket.AF_INET if ends[0][0].version == 4 else socket.AF_INET6
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, _ANY_STATE, *ports, *addresses, 0, b"\xff" * 8)
    head = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(_WAIT_SECONDS)
            kernel.send(head + request)
            answer = kernel.recv(8192)
    except OSError:
        return None
    return _read_answer(answer, ports)


def search_owner(client: Endpoint, server: Endpoint, *, net: Path = _NET) -> int | None:
    """Search the tables of all connections in /proc.

    ::

        sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
       608: 0100007F:DF4A 0100007F:88FB 01 00000000:00000000 00:00000000 00000000  1000        0 13787313 2 ...
    """
    ends = _parse(client, server)
    if ends is None:
        return None
    # A program may use IPv4 through an IPv6 socket: its row is in the other table.
    for table, is_ipv6 in (("tcp", False), ("tcp6", True)):
        if is_ipv6 or ends[0][0].version == 4:
            uid = _find_in(net / table, " ".join(_format_end(*end, is_ipv6=is_ipv6) for end in ends))
            if uid is not None:
                return uid
    return None


def _parse(client: Endpoint, server: Endpoint) -> _Ends | None:
    """Parse both ends; an IPv4 address in IPv6 notation is IPv4."""
    try:
        here, there = (ipaddress.ip_address(host) for host, _ in (client, server))
    except ValueError:
        return None
    if here.version != there.version:
        return None
    return (_plain(here), client[1]), (_plain(there), server[1])


def _plain(address: _Address) -> _Address:
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address


def _read_answer(answer: bytes, ports: list[bytes]) -> int | None:
    if len(answer) < _HEADER.size + _ANSWER.size or _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    found = _ANSWER.unpack_from(answer, _HEADER.size)
    # Without such a connection, the kernel may return a socket that listens on the client's port.
    uid, inode = found[13], found[14]
    return int(uid) if list(found[4:6]) == ports and inode else None


def _format_end(address: _Address, port: int, *, is_ipv6: bool) -> str:
    """Return an end in the notation of the tables: 32-bit words in native byte order."""
    packed = bytes(10) + b"\xff\xff" + address.packed if is_ipv6 and address.version == 4 else address.packed
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"


def _find_in(table: Path, ends: str) -> int | None:
    try:
        with table.open("rb") as file:
            rows = file.read(_TABLE_LIMIT_BYTES)
    except OSError:
        return None
    # A plain search is many times faster than splitting the rows.
    at = rows.find(f": {ends} ".encode("ascii"))
    if at < 0:
        return None
    columns = rows[at : at + 400].split(b"\n", 1)[0].split()
    # The columns after the colon: ends, state, queues, timer, retransmissions, user, timeout, inode.
    uid, inode = columns[7], columns[9]
    return int(uid) if int(inode) else None
