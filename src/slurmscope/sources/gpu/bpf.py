# SPDX-License-Identifier: Apache-2.0
"""Read the device programs of a cgroup from the kernel.

Needs CAP_SYS_ADMIN to read the programs. Everything is read, nothing is attached or loaded.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import struct
from pathlib import Path

MOST_PROGRAMS = 64
MOST_PROGRAM_BYTES = 1 << 20

# The system call's number is the machine's own; the commands are the same on all (linux/bpf.h).
_SYSTEM_CALLS = {"x86_64": 321, "aarch64": 280, "ppc64le": 361, "s390x": 351, "riscv64": 280}
_PROG_GET_FD_BY_ID, _OBJ_GET_INFO_BY_FD, _PROG_QUERY = 13, 15, 16
_CGROUP_DEVICE = 6
_EFFECTIVE = 1

_QUERY = struct.Struct("=IIIIQI4x")  # cgroup, kind of program, query flags, attach flags, ids, count
_BY_ID = struct.Struct("=III")  # id, next id, flags
_BY_DESCRIPTOR = struct.Struct("=IIQ")  # descriptor, length, address
# The head of bpf_prog_info: kind, id, tag, length of machine code and of instructions, addresses of both.
_INFO = struct.Struct("=II8sIIQQ")
# Zero bytes for fields that a newer kernel may have after the known ones.
_ROOM_BYTES = 256


def read_device_programs(cgroup: Path) -> list[bytes]:
    """Return the instructions of every device program that applies to a cgroup, those of its parents included.

    A device may be opened if all of them allow it. Raises OSError: EPERM without the privilege, ENOENT when the
    cgroup is gone, EINVAL where it is no cgroup v2 or the kernel has no such programs.
    """
    folder = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        identifiers = _query(folder)
    finally:
        os.close(folder)
    programs = []
    for identifier in identifiers:
        descriptor = _call(_PROG_GET_FD_BY_ID, bytearray(_BY_ID.pack(identifier, 0, 0)))
        try:
            programs.append(_read_instructions(descriptor))
        finally:
            os.close(descriptor)
    return programs


def _query(folder: int) -> list[int]:
    identifiers = (ctypes.c_uint32 * MOST_PROGRAMS)()
    request = bytearray(
        _QUERY.pack(folder, _CGROUP_DEVICE, _EFFECTIVE, 0, ctypes.addressof(identifiers), MOST_PROGRAMS)
    )
    _call(_PROG_QUERY, request)
    return list(identifiers[: _QUERY.unpack_from(request)[-1]])


def _read_instructions(descriptor: int) -> bytes:
    """Ask twice: how long the program is, then for its text."""
    size = _INFO.unpack_from(_read_info(descriptor, 0, 0))[4]
    if not 0 < size <= MOST_PROGRAM_BYTES:
        raise OSError(errno.EPERM if size == 0 else errno.E2BIG, "the kernel does not show the program")
    text = ctypes.create_string_buffer(size)
    _read_info(descriptor, size, ctypes.addressof(text))
    return text.raw


def _read_info(descriptor: int, size: int, address: int) -> bytes:
    info = ctypes.create_string_buffer(_INFO.pack(0, 0, b"", 0, size, 0, address), _INFO.size + _ROOM_BYTES)
    _call(_OBJ_GET_INFO_BY_FD, bytearray(_BY_DESCRIPTOR.pack(descriptor, len(info), ctypes.addressof(info))))
    return info.raw


def _call(command: int, request: bytearray) -> int:
    number = _SYSTEM_CALLS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, "the number of the system call bpf is not known on this kind of machine")
    buffer = (ctypes.c_char * len(request)).from_buffer(request)
    result = int(_libc().syscall(ctypes.c_long(number), ctypes.c_int(command), buffer, ctypes.c_uint(len(request))))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc
