# SPDX-License-Identifier: Apache-2.0
"""Read from the kernel which GPUs the processes of a job may open.

This also covers a job that holds a GPU and has no process on it. With cgroup v2 this is in the kernel's device
programs, which only root may read; with v1 the file ``devices.list``, where it lists devices at all: Slurm denies
single devices and leaves "everything" in the list, which is meaningless.

Needs CAP_SYS_ADMIN to read the programs. Everything is read, nothing is attached or loaded.

With cgroup v2 Slurm, systemd and container runtimes attach a small program to a cgroup, and the kernel runs it
to decide whether a process may open a device. We run it in the same way. Only what such programs are made of is
understood; anything else is an error, never a guess.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import operator
import os
import platform
import re
import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurmscope.node.gpu.records import Gpu, GpuReason, Vendor
from slurmscope.node.job_use import JobKey

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
    """Query twice: how long the program is, then for its text."""
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


CHARACTER_DEVICE = 2
READ_AND_WRITE = 2 | 4

_INSTRUCTION = struct.Struct("=BBhi")  # code, registers, offset, immediate
_MOST_STEPS = 100_000
_REGISTERS = 11
_CONTEXT_REGISTER = 1
_WORD = (1 << 32) - 1
_LONG = (1 << 64) - 1

# Classes of instructions, and where their operand comes from (linux/bpf_common.h and linux/bpf.h).
_LDX, _ALU, _JUMP, _JUMP32, _ALU64 = 0x01, 0x04, 0x05, 0x06, 0x07
_FROM_REGISTER = 0x08
_EXIT, _ALWAYS = 0x90, 0x00
_MEMORY_MODE = 0x60
_LOAD_BYTES = {0x00: 4, 0x08: 2, 0x10: 1, 0x18: 8}
_MOVE = 0xB0
_OPERATIONS = {
    0x00: operator.add,
    0x10: operator.sub,
    0x40: operator.or_,
    0x50: operator.and_,
    0x60: operator.lshift,
    0x70: operator.rshift,
    0xA0: operator.xor,
}
_SHIFTS = (0x60, 0x70)
_CONDITIONS = {
    0x10: operator.eq,
    0x20: operator.gt,
    0x30: operator.ge,
    0x40: operator.and_,
    0x50: operator.ne,
    0xA0: operator.lt,
    0xB0: operator.le,
}


class UnknownProgram(Exception):
    """The program does something that device programs do not do."""


@dataclass(frozen=True, slots=True)
class DeviceDecision:
    """Return whether a device may be opened, and at which instruction that was decided."""

    is_allowed: bool
    decided_at: int


def judge(program: bytes, major: int, minor: int) -> DeviceDecision:
    access = READ_AND_WRITE << 16 | CHARACTER_DEVICE
    return _run(program, struct.pack("=III", access, major, minor))


def _run(program: bytes, context: bytes) -> DeviceDecision:
    if len(program) % _INSTRUCTION.size:
        raise UnknownProgram("half an instruction at its end")
    instructions = list(_INSTRUCTION.iter_unpack(program))
    registers = [0] * _REGISTERS
    position = 0
    for _ in range(_MOST_STEPS):
        if not 0 <= position < len(instructions):
            raise UnknownProgram("a jump out of the program")
        code, pair, offset, immediate = instructions[position]
        target, source = (pair & 15, pair >> 4) if sys.byteorder == "little" else (pair >> 4, pair & 15)
        if target >= _REGISTERS or source >= _REGISTERS:
            raise UnknownProgram("an unknown register")
        kind = code & 7
        if kind == _JUMP and code & 0xF0 == _EXIT:
            return DeviceDecision(registers[0] & _WORD != 0, position)
        if kind in (_JUMP, _JUMP32):
            operand = registers[source] if code & _FROM_REGISTER else immediate & _LONG
            position += offset if _is_taken(code, registers[target], operand) else 0
        elif kind in (_ALU, _ALU64):
            operand = registers[source] if code & _FROM_REGISTER else immediate & _LONG
            registers[target] = _calculate(code, registers[target], operand)
        elif kind == _LDX and source == _CONTEXT_REGISTER:
            registers[target] = _load(code, context, offset)
        else:
            raise UnknownProgram(f"an unknown instruction {code:#x}")
        position += 1
    raise UnknownProgram("no end")


def _is_taken(code: int, left: int, right: int) -> bool:
    operation = code & 0xF0
    if operation == _ALWAYS and code & 7 == _JUMP:
        return True
    condition = _CONDITIONS.get(operation)
    if condition is None:
        raise UnknownProgram(f"an unknown jump {code:#x}")
    mask = _WORD if code & 7 == _JUMP32 else _LONG
    return bool(condition(left & mask, right & mask))


def _calculate(code: int, left: int, right: int) -> int:
    bits = 32 if code & 7 == _ALU else 64
    mask = (1 << bits) - 1
    what = code & 0xF0
    if what == _MOVE:
        return right & mask
    if what not in _OPERATIONS:
        raise UnknownProgram(f"an unknown operation {code:#x}")
    by = right % bits if what in _SHIFTS else right & mask
    return int(_OPERATIONS[what](left & mask, by)) & mask


def _load(code: int, context: bytes, offset: int) -> int:
    size = _LOAD_BYTES[code & 0x18]
    if code & 0xE0 != _MEMORY_MODE or offset < 0 or offset + size > len(context):
        raise UnknownProgram("a read outside the context")
    return int.from_bytes(context[offset : offset + size], sys.byteorder)


GPU_MAJOR = 195
RENDER_MAJOR = 226
LIST_LIMIT_BYTES = 64 * 1024
KEEP_SECONDS = 60.0

# No such GPU: what a program says of it is what it says of devices that it does not name.
_NO_MINOR = 0xFFFFE
_EVERYTHING = re.compile(r"a \*:\* ")
_RULE = re.compile(r"c (\d+):(\d+|\*) r?w?m?\Z")
_CAPABILITY_MINOR = re.compile(r"DeviceFileMinor:\s*(\d+)")
_CAPABILITY_MAJOR = re.compile(r"^\s*(\d+) nvidia-caps$", re.MULTILINE)
# The job is gone, its folder is not of cgroup v2, or the kernel has no device programs: nothing is known, and nothing
# is wrong.
_SILENT = frozenset({errno.ENOENT, errno.ENODEV, errno.ESRCH, errno.EBADF, errno.EINVAL})

Device = tuple[int, int]


class GpuDevices:
    """Cache the GPUs that each job may open, and read them again after a while. Not thread-safe."""

    def __init__(
        self,
        *,
        procfs_root: Path,
        clock: Callable[[], float],
        read_programs: Callable[[Path], list[bytes]] = read_device_programs,
    ) -> None:
        self.problem: GpuReason | None = None
        self._procfs_root = procfs_root
        self._clock = clock
        self._read_programs = read_programs
        self._known: dict[JobKey, tuple[float, frozenset[str] | None]] = {}

    def read(self, gpus: Iterable[Gpu], cgroups: Mapping[JobKey, Path]) -> dict[JobKey, frozenset[str]]:
        """Return the GPU UUIDs that each job may open; jobs that are not restricted, or not readable, are left out.

        ``cgroups`` are the jobs' folders, for v1 those of the devices controller. After :attr:`problem` is set to
        "no permission" no further job is read.
        """
        if self.problem is GpuReason.NO_PERMISSION:
            return {}
        self.problem = None
        devices = {gpu.uuid: device for gpu in gpus if gpu.is_holdable and (device := self._device(gpu))}
        now = self._clock()
        before, self._known = self._known, {}
        for key, cgroup in cgroups.items() if devices else ():
            read_at, allowed = before.get(key, (None, None))
            if read_at is None or now - read_at >= KEEP_SECONDS:
                read_at, allowed = now, self._read_allowed(cgroup, devices)
            self._known[key] = (read_at, allowed)
        return {key: allowed for key, (_, allowed) in self._known.items() if allowed is not None}

    def _read_allowed(self, cgroup: Path, devices: Mapping[str, Device]) -> frozenset[str] | None:
        try:
            return self._allowed_by_list(cgroup, devices)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._note(error)
            return None
        try:
            return allowed_by_programs(self._read_programs(cgroup), devices)
        except UnknownProgram:
            self.problem = GpuReason.MALFORMED
        except OSError as error:
            self._note(error)
        return None

    def _allowed_by_list(self, cgroup: Path, devices: Mapping[str, Device]) -> frozenset[str] | None:
        with (cgroup / "devices.list").open("rb", buffering=0) as file:
            return allowed_by_list((file.read(LIST_LIMIT_BYTES) or b"").decode("ascii", "replace"), devices)

    def _note(self, error: OSError) -> None:
        if error.errno in (errno.EPERM, errno.EACCES):
            self.problem = GpuReason.NO_PERMISSION
        elif error.errno not in _SILENT:
            self.problem = GpuReason.FAILED

    def _device(self, gpu: Gpu) -> Device | None:
        """Return the numbers of the device file of a GPU, or of the one that grants a MIG instance."""
        if not gpu.parent_uuid:
            major = GPU_MAJOR if gpu.vendor is Vendor.NVIDIA else RENDER_MAJOR
            return None if gpu.minor is None else (major, gpu.minor)
        if gpu.minor is None:
            return None
        folder = self._procfs_root / "driver/nvidia/capabilities" / f"gpu{gpu.minor}" / "mig"
        try:
            text = (folder / f"gi{gpu.gpu_instance}" / f"ci{gpu.compute_instance}" / "access").read_text("ascii")
            majors = (self._procfs_root / "devices").read_text("ascii", "replace")
        except (OSError, UnicodeDecodeError):
            return None
        minor, found = _CAPABILITY_MINOR.search(text), _CAPABILITY_MAJOR.search(majors)
        return (int(found[1]), int(minor[1])) if found and minor else None


def allowed_by_list(text: str, devices: Mapping[str, Device]) -> frozenset[str] | None:
    """Read a ``devices.list`` of v1; None where it allows all GPUs without naming any."""
    rules = set()
    for line in text.splitlines():
        if match := _RULE.match(line):
            rules.add((match[1], match[2]))
        elif _EVERYTHING.match(line):
            return None
    if any((str(major), "*") in rules for major, _ in devices.values()):
        return None
    return frozenset(uuid for uuid, (major, minor) in devices.items() if (str(major), str(minor)) in rules)


def allowed_by_programs(programs: Sequence[bytes], devices: Mapping[str, Device]) -> frozenset[str] | None:
    """Run all programs for all GPUs; None where none is named, so that nothing is known.

    A GPU that may be opened, but only like every device that is not named, was not given to this job: systemd
    allows GPUs in this way, and Slurm those that gres.conf leaves out.
    """
    named, allowed = set(), set()
    for uuid, (major, minor) in devices.items():
        verdicts = [judge(program, major, minor) for program in programs]
        others = [judge(program, major, _NO_MINOR) for program in programs]
        if any(verdict.decided_at != other.decided_at for verdict, other in zip(verdicts, others, strict=True)):
            named.add(uuid)
        if all(verdict.is_allowed for verdict in verdicts):
            allowed.add(uuid)
    return frozenset(named & allowed) if named else None
