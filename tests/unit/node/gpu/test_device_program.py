# SPDX-License-Identifier: Apache-2.0
"""Device programs answer us what they answer the kernel."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.node.gpu.devices import UnknownProgram, judge, read_device_programs
from tests.fakes.device_programs import ACCEPT, DENY, Rule, cgroup_with, instruction, slurm_program

# Of the first driver: null, zero, full, random, urandom. Everybody has them, and nothing happens when they are opened.
FILES = {3: "/dev/null", 5: "/dev/zero", 7: "/dev/full", 8: "/dev/random", 9: "/dev/urandom"}
OPEN = """
import os, sys
with open(sys.argv[1], "w") as file:
    file.write(str(os.getpid()))
for path in sys.argv[2:]:
    try:
        os.close(os.open(path, os.O_RDWR))
        print(1)
    except PermissionError:
        print(0)
"""
ANSWERS = st.sampled_from([ACCEPT, DENY])
RULES = st.lists(
    st.builds(Rule, major=st.sampled_from([1, 195, None]), minor=st.sampled_from([3, 5, 7, None]), answer=ANSWERS),
    max_size=4,
)


def first_match(rules: list[Rule], default: int, major: int, minor: int) -> bool:
    """Say what the rules mean, without any program."""
    for rule in rules:
        if rule.major in (None, major) and rule.minor in (None, minor):
            return rule.answer == ACCEPT
    return default == ACCEPT


@given(RULES, ANSWERS, st.sampled_from([1, 195]), st.integers(0, 10))
def test_rules_of_slurm_are_understood(rules: list[Rule], default: int, major: int, minor: int) -> None:
    assert first_match(rules, default, major, minor) == judge(slurm_program(rules, default), major, minor).is_allowed


@pytest.mark.parametrize(
    "program",
    [
        slurm_program([Rule(1, 5, DENY), Rule(1, 7, ACCEPT)]),
        slurm_program([Rule(1, 3, ACCEPT), Rule(1, None, DENY)]),
        slurm_program([Rule(1, 8, ACCEPT), Rule(1, 9, ACCEPT)], DENY),
        # Access and kind by halves, comparisons of registers and of 32 bits, as compilers write them.
        b"".join(
            [
                instruction(0x69, 2, 1, 0),  # r2 = kind
                instruction(0x69, 3, 1, 2),  # r3 = access
                instruction(0x61, 4, 1, 8),  # r4 = minor
                instruction(0xB4, 0, immediate=1),
                instruction(0xBC, 6, 4),  # r6 = r4
                instruction(0x64, 6, immediate=1),
                instruction(0x74, 6, immediate=1),
                instruction(0x07, 6, immediate=-5),
                instruction(0x5E, 6, 0, 2),  # 32 bits: unless minor - 5 = 1, skip the denial
                instruction(0xB7, 0, immediate=0),
                instruction(0x95),
                instruction(0x25, 4, offset=1, immediate=7),  # above 7: denied
                instruction(0x05, offset=1),
                instruction(0xA4, 0, immediate=1),
                instruction(0x95),
            ]
        ),
    ],
)
def test_kernel_opens_what_we_say_it_would(program: bytes) -> None:
    with cgroup_with(program) as cgroup:
        (fetched,) = read_device_programs(cgroup)
        argv = [sys.executable, "-c", OPEN, str(cgroup / "cgroup.procs"), *FILES.values()]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)

    opened = {minor: answer == "1" for minor, answer in zip(FILES, done.stdout.split(), strict=True)}
    assert opened == {minor: judge(fetched, 1, minor).is_allowed for minor in FILES}


@pytest.mark.parametrize(("code", "expected"), [(0x64, True), (0x67, False)])
def test_shift_wraps_at_its_width(code: int, *, expected: bool) -> None:
    """As the kernel's documentation says: the count is masked, by 31 for words and by 63 for long words."""
    program = [instruction(0xB7, 0, immediate=1), instruction(code, 0, immediate=33), instruction(0x95)]
    assert expected is judge(b"".join(program), 195, 0).is_allowed


def test_named_device_is_decided_elsewhere_than_others() -> None:
    program = slurm_program([Rule(195, 0, ACCEPT)], ACCEPT)
    assert judge(program, 195, 0).decided_at != judge(program, 195, 1).decided_at
    assert judge(program, 195, 2).decided_at == judge(program, 195, 1).decided_at


@pytest.mark.parametrize(
    "program",
    [
        b"",
        b"\x95",
        instruction(0x05, offset=-1),  # for ever
        instruction(0x05, offset=5) + instruction(0x95),  # out of the program
        instruction(0x85, immediate=1) + instruction(0x95),  # calls a helper
        instruction(0x61, 2, 3, 0) + instruction(0x95),  # reads through another register
        instruction(0x61, 2, 1, 12) + instruction(0x95),  # reads behind the question
        instruction(0x61, 2, 1, -4) + instruction(0x95),
        instruction(0x34, 2, immediate=2) + instruction(0x95),  # divides
        instruction(0x65, 2, offset=0) + instruction(0x95),  # compares with a sign
        instruction(0x95, 15),  # no such register
    ],
)
def test_other_programs_are_rejected(program: bytes) -> None:
    with pytest.raises(UnknownProgram):
        judge(program, 195, 0)


@given(st.binary(max_size=128).map(lambda text: text[: len(text) // 8 * 8]))
def test_any_program_is_judged_or_rejected(program: bytes) -> None:
    with contextlib.suppress(UnknownProgram):
        assert judge(program, 195, 0).decided_at >= 0


def test_programs_of_all_parents_are_read() -> None:
    outer, inner = slurm_program([Rule(195, 1, DENY)]), slurm_program([Rule(195, 0, ACCEPT)])
    with cgroup_with(outer, inner) as cgroup:
        assert [inner] == read_device_programs(cgroup)  # attached like Slurm's: the inner one replaces the outer
        assert [outer] == read_device_programs(cgroup.parent)


def test_cgroup_without_programs_has_none() -> None:
    with cgroup_with(slurm_program([])) as cgroup:
        empty = cgroup.parent / f"slurmscope-test-empty-{os.getpid()}"
        empty.mkdir()
        try:
            assert [] == read_device_programs(empty)
        finally:
            empty.rmdir()


def test_vanished_cgroup_is_an_error() -> None:
    with cgroup_with(slurm_program([])) as cgroup, pytest.raises(FileNotFoundError):
        read_device_programs(cgroup / "gone")
