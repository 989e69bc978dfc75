# SPDX-License-Identifier: Apache-2.0
"""Run a device program of a cgroup in our own head, to learn what it allows.

With cgroup v2 Slurm, systemd and container runtimes attach a small program to a cgroup, and the kernel runs it
to decide whether a process may open a device. We run it in the same way. Only what such programs are made of is
understood; anything else is an error, never a guess.
"""

from __future__ import annotations

import operator
import struct
import sys
from dataclasses import dataclass

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
class Verdict:
    """Return whether a device may be opened, and at which instruction that was decided."""

    is_allowed: bool
    decided_at: int


def judge(program: bytes, major: int, minor: int) -> Verdict:
    """Ask a program about reading and writing one character device."""
    access = READ_AND_WRITE << 16 | CHARACTER_DEVICE
    return _run(program, struct.pack("=III", access, major, minor))


def _run(program: bytes, context: bytes) -> Verdict:
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
            return Verdict(registers[0] & _WORD != 0, position)
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
