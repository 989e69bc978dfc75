# SPDX-License-Identifier: Apache-2.0
"""Write device programs as Slurm and others do, and attach them to real cgroups."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

ACCEPT, DENY = 1, 0
CHARACTER = 2
GPU_MAJOR = 195

_LOAD, _ATTACH = 5, 8
_KIND, _ATTACH_KIND, _OVERRIDE = 15, 6, 1
_SYSTEM_CALL = {"x86_64": 321, "aarch64": 280}
_UNIFIED = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))


@dataclass(frozen=True)
class Rule:
    """Say what a program does with a character device; None means any."""

    major: int | None
    minor: int | None
    answer: int


def instruction(code: int, target: int = 0, source: int = 0, offset: int = 0, immediate: int = 0) -> bytes:
    """Encode one instruction as the kernel's documentation lays it out."""
    pair = source << 4 | target if sys.byteorder == "little" else target << 4 | source
    return struct.pack("=BBhi", code, pair, offset, immediate)


def slurm_program(rules: Iterable[Rule], default: int = ACCEPT) -> bytes:
    """Lay out a program as Slurm's cgroup v2 plugin does: load the question, compare rule by rule, answer."""
    parts = [
        instruction(0x61, 2, 1, 0),  # r2 = kind and access
        instruction(0x54, 2, immediate=0xFFFF),  # r2 &= 0xffff
        instruction(0x61, 3, 1, 0),
        instruction(0x74, 3, immediate=16),  # r3 >>= 16
        instruction(0x61, 4, 1, 4),  # r4 = major
        instruction(0x61, 5, 1, 8),  # r5 = minor
    ]
    for rule in rules:
        checks = [(2, CHARACTER), (4, rule.major), (5, rule.minor)]
        wanted = [(register, value) for register, value in checks if value is not None]
        for left, (register, value) in zip(range(len(wanted), 0, -1), wanted, strict=True):
            parts.append(instruction(0x55, register, offset=left + 1, immediate=value))  # jump if not equal
        parts += [instruction(0xB7, 0, immediate=rule.answer), instruction(0x95)]
    return b"".join([*parts, instruction(0xB7, 0, immediate=default), instruction(0x95)])


@contextmanager
def cgroup_with(*programs: bytes) -> Iterator[Path]:
    """Make nested cgroups of version 2, one per program, and give the innermost; skip where that is not possible."""
    root = next((path for path in _UNIFIED if (path / "cgroup.procs").exists()), None)
    if root is None or os.geteuid() != 0:
        pytest.skip("needs root and a cgroup v2 tree")
    made = []
    path = root
    try:
        for number, program in enumerate(programs):
            path = path / f"slurmscope-test-{os.getpid()}-{number}"
            path.mkdir()
            made.append(path)
            _attach(path, program)
        yield path
    finally:
        for folder in reversed(made):
            folder.rmdir()


def _attach(cgroup: Path, program: bytes) -> None:
    text, licence = ctypes.create_string_buffer(program, len(program)), ctypes.create_string_buffer(b"GPL")
    addresses = ctypes.addressof(text), ctypes.addressof(licence)
    loaded = _call(_LOAD, struct.pack("=IIQQ96x", _KIND, len(program) // 8, *addresses))
    try:
        folder = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _call(_ATTACH, struct.pack("=IIII", folder, loaded, _ATTACH_KIND, _OVERRIDE))
        finally:
            os.close(folder)
    finally:
        os.close(loaded)


def _call(command: int, request: bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    number = _SYSTEM_CALL.get(os.uname().machine)
    if number is None:
        pytest.skip("the system call bpf has an unknown number here")
    result = int(libc.syscall(ctypes.c_long(number), command, ctypes.create_string_buffer(request), len(request)))
    if result < 0:
        if ctypes.get_errno() in (errno.ENOSYS, errno.EPERM):
            pytest.skip("the kernel does not let us load device programs")
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
