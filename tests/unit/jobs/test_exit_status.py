# SPDX-License-Identifier: Apache-2.0
"""Exit codes and signals are described as the shell, the kernel and Slurm define them."""

from __future__ import annotations

import signal as kernel
import subprocess

import pytest

from slurmscope.jobs.exit_status import describe_exit, describe_signal, name_exit, signal_name


@pytest.mark.parametrize(
    ("code", "signal", "expected", "advice"),
    [
        (1, 0, "ended with exit code 1: a general error", "end of its output"),
        (126, 0, "ended with exit code 126: a command was found but could not be run", "chmod +x"),
        (127, 0, "ended with exit code 127: command not found", "modules"),
        (3, 0, "ended with exit code 3", "end of its output"),
        (0, 11, "killed by SIGSEGV, signal 11 (segmentation fault)", "debugger"),
        (0, 7, "killed by SIGBUS, signal 7 (bus error)", "/dev/shm"),
        (0, 8, "killed by SIGFPE, signal 8 (arithmetic error", "zeros"),
        (0, 4, "killed by SIGILL, signal 4 (illegal instruction)", "another type of CPU"),
        (0, 9, "killed by SIGKILL, signal 9", "limits"),
        (0, 24, "killed by SIGXCPU, signal 24", "ulimit -t"),
        (0, 40, "killed by signal 40", "end of its output"),
        (0, 64, "killed by signal 64", "end of its output"),
        (None, 15, "killed by SIGTERM, signal 15", "time limit"),
        (137, 0, "ended with exit code 137: a command in it was killed by SIGKILL", "limits"),
        (139, 0, "ended with exit code 139: a command in it was killed by SIGSEGV", "debugger"),
        # Slurm's own: 256 and the signal.
        (271, 0, "ended with exit code 271: a command in it was killed by SIGTERM", "cancelled"),
        (255, 0, "ended with exit code 255", "end of its output"),
        # sacct before 25.11 shows 139 as 11.
        (4, 0, "ended with exit code 4", "end of its output"),
        (11, 0, "ended with exit code 11, or 139: a command in it was killed by SIGSEGV", "end of its output"),
        (0, 53, "could not be launched", "working directory"),
    ],
)
def test_end_of_a_process_is_described(code: int | None, signal: int, expected: str, advice: str) -> None:
    ending = describe_exit(code, signal)

    assert ending is not None
    assert ending.text.startswith(expected)
    assert advice in ending.advice


# OUT_OF_MEMORY jobs have 0:125, which is no signal.
@pytest.mark.parametrize(("code", "signal"), [(0, 0), (None, None), (0, 125)])
def test_good_and_unknown_ends_are_not_described(code: int | None, signal: int | None) -> None:
    assert describe_exit(code, signal) is None


@pytest.mark.parametrize(("command", "code"), [("no-such-command-of-ours", 127), ("/etc/passwd", 126)])
def test_codes_are_those_of_the_shell(command: str, code: int) -> None:
    ended = subprocess.run(["/bin/sh", "-c", command], check=False, capture_output=True)

    assert code == ended.returncode


def test_code_of_a_killed_command_is_that_of_the_shell() -> None:
    ended = subprocess.run(["/bin/sh", "-c", "sh -c 'kill -SEGV $$'; exit $?"], check=False, capture_output=True)
    ending = describe_exit(ended.returncode, 0)

    assert ending is not None
    assert describe_signal(11).text in ending.text


def test_names_of_signals_are_those_of_the_kernel() -> None:
    known = {each.value: each.name for each in kernel.Signals if each.value <= 31}

    assert known == {number: signal_name(number).partition(",")[0] for number in known}


@pytest.mark.parametrize(
    ("code", "signal", "expected"),
    [
        (0, 11, "killed by SIGSEGV"),
        (0, 40, "killed by signal 40"),
        # Linux has 64 signals.
        (0, 64, "killed by signal 64"),
        (0, 65, ""),
        # slurmstepd could not open a file or change to the directory.
        (0, 53, "could not be launched"),
        (None, 53, "could not be launched"),
        (1, 53, "killed by signal 53"),
        (128, 0, "exit code 128"),
        (129, 0, "exit code 129: SIGHUP"),
        (192, 0, "exit code 192: signal 64"),
        (193, 0, "exit code 193"),
        (256, 0, "exit code 256"),
        (257, 0, "exit code 257: SIGHUP"),
        (139, 0, "exit code 139: SIGSEGV"),
        (271, 0, "exit code 271: SIGTERM"),
        (127, 0, "exit code 127: command not found"),
        (1, 0, "exit code 1"),
        (11, 0, "exit code 11"),
        (0, 0, ""),
        (None, None, ""),
        (0, 125, ""),
    ],
)
def test_end_has_a_name_for_lists(code: int | None, signal: int | None, expected: str) -> None:
    assert expected == name_exit(code, signal)


def test_exit_code_128_is_no_signal() -> None:
    ending = describe_exit(128, 0)

    assert ending is not None
    assert "ended with exit code 128" == ending.text


def test_exit_code_129_is_the_first_signal() -> None:
    ending = describe_exit(129, 0)

    assert ending is not None
    assert (
        "ended with exit code 129: a command in it was killed by SIGHUP, signal 1 (its terminal was closed)"
        == ending.text
    )
