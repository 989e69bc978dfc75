# SPDX-License-Identifier: Apache-2.0
"""Ask the kernel which user opened a connection that comes from this machine.

The kernel is asked for this one connection through sock_diag, as ss does: 60 µs. Where that is not allowed, its tables
are searched; to write them it walks through all of its memory of connections, which takes milliseconds.
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
_QUESTION = struct.Struct("=BBBxI2s2s16s16sI8s")
_ANSWER = struct.Struct("=BBBB2s2s16s16sI8sIIIII")


def find_owner(client: Endpoint, server: Endpoint) -> int | None:
    """Return the user number of the process at the client's end, or None when the kernel does not tell.

    A connection that its process has closed already belongs to nobody: it has no inode, and its user of 0 means
    nothing.
    """
    asked = ask_for_owner(client, server)
    return asked if asked is not None else search_for_owner(client, server)


def ask_for_owner(client: Endpoint, server: Endpoint) -> int | None:
    """Ask for one connection; None when it is not there, or asking is not possible."""
    ends = _parse(client, server)
    if ends is None:
        return None
    ports = [port.to_bytes(2, "big") for _, port in ends]
    addresses = [address.packed.ljust(16, b"\0") for address, _ in ends]
    family = socket.AF_INET if ends[0][0].version == 4 else socket.AF_INET6
    question = _QUESTION.pack(family, socket.IPPROTO_TCP, 0, _ANY_STATE, *ports, *addresses, 0, b"\xff" * 8)
    head = _HEADER.pack(_HEADER.size + len(question), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(_WAIT_SECONDS)
            kernel.send(head + question)
            answer = kernel.recv(8192)
    except OSError:
        return None
    return _read_answer(answer, ports)


def search_for_owner(client: Endpoint, server: Endpoint, *, net: Path = _NET) -> int | None:
    """Search the tables of all connections.

    ::

        sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
       608: 0100007F:DF4A 0100007F:88FB 01 00000000:00000000 00:00000000 00000000  1000        0 13787313 2 ...
    """
    ends = _parse(client, server)
    if ends is None:
        return None
    # A program may reach IPv4 through a socket of IPv6: its row is in the other table.
    for table, is_ipv6 in (("tcp", False), ("tcp6", True)):
        if is_ipv6 or ends[0][0].version == 4:
            uid = _find_in(net / table, " ".join(_spell(*end, is_ipv6=is_ipv6) for end in ends))
            if uid is not None:
                return uid
    return None


def _parse(client: Endpoint, server: Endpoint) -> _Ends | None:
    """Read both ends; IPv4 that is written as IPv6 is IPv4."""
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
    # Without such a connection, the kernel may tell of somebody who listens on the client's port.
    uid, inode = found[13], found[14]
    return int(uid) if list(found[4:6]) == ports and inode else None


def _spell(address: _Address, port: int, *, is_ipv6: bool) -> str:
    """Write an end as the tables do: words of 32 bits in the machine's order."""
    packed = bytes(10) + b"\xff\xff" + address.packed if is_ipv6 and address.version == 4 else address.packed
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"


def _find_in(table: Path, ends: str) -> int | None:
    try:
        with table.open("rb") as file:
            rows = file.read(_TABLE_LIMIT_BYTES)
    except OSError:
        return None
    # A plain search is many times faster than taking the rows apart.
    at = rows.find(f": {ends} ".encode("ascii"))
    if at < 0:
        return None
    columns = rows[at : at + 400].split(b"\n", 1)[0].split()
    # The columns behind the colon: ends, state, queues, timer, retransmissions, user, timeout, inode.
    uid, inode = columns[7], columns[9]
    return int(uid) if int(inode) else None
