# SPDX-License-Identifier: Apache-2.0
"""Describe exit codes and signals: what they mean, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

LAST_SIGNAL = 64
_SHELL_BASE = 128
_SLURM_BASE = 256
_NO_LAUNCH = "could not be launched"
_NOT_LAUNCHED = 53
"""slurmstepd reports this signal when it cannot change to the directory or open the output of a script."""
CHECK_OUTPUT = "The end of its output mostly says why."

# Of Linux; those of this host may differ, and are of no use.
_NAMES = (
    "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1", "SIGSEGV",
    "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGSTKFLT", "SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP", "SIGTTIN",
    "SIGTTOU", "SIGURG", "SIGXCPU", "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO", "SIGPWR", "SIGSYS",
)  # fmt: skip


class Ending(NamedTuple):
    """How a process ended, as the end of a sentence, and what to do."""

    text: str
    advice: str = CHECK_OUTPUT


_SIGNALS: Mapping[int, Ending] = {
    1: Ending("its terminal was closed"),
    2: Ending("it was interrupted, as with Ctrl-C"),
    4: Ending(
        "illegal instruction",
        "The program was probably built for another type of CPU: build it on the nodes it runs on.",
    ),
    6: Ending(
        "it aborted itself", "Look for a failed assertion, an uncaught exception or a memory error in its output."
    ),
    7: Ending(
        "bus error", "Check for a full file system or /dev/shm, and for mapped files that were truncated while in use."
    ),
    8: Ending("arithmetic error, such as a division by zero", "Check the input for zeros and overflows."),
    9: Ending(
        "it was killed and could not react",
        "Mostly Slurm or the kernel does this: compare its memory and run time with the limits.",
    ),
    11: Ending(
        "segmentation fault",
        "The program used memory that is not its own: run it in a debugger or with a smaller input, and check "
        "ulimit -s and that its libraries fit together.",
    ),
    13: Ending("it wrote to a pipe that was closed"),
    15: Ending("it was requested to end", "Slurm sends this at the time limit and when a job is cancelled."),
    24: Ending("it reached a CPU time limit", "Check ulimit -t in the job."),
    25: Ending("a file reached its size limit", "Check ulimit -f in the job."),
    31: Ending("it made a forbidden system call"),
}
_CODES: Mapping[int, Ending] = {
    1: Ending("a general error"),
    2: Ending("a general error, often of a command line"),
    126: Ending(
        "a command was found but could not be run",
        "Check that it is executable (chmod +x), and that it was built for this type of CPU.",
    ),
    127: Ending("command not found", "Check the spelling, PATH, and that the script loads the modules it needs."),
}

CRASH_SIGNALS = frozenset({4, 5, 6, 7, 8, 11, 24, 25, 31})
"""Signals that a process gets for what it does itself: SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV and others."""
_PASSED_ON = frozenset({6, 9, 11, 15})
"""Exit codes that are more often a signal than a number that a program chose."""
_NAMED_CODES = frozenset({126, 127})


def describe_exit(code: int | None, signal_number: int | None) -> Ending | None:
    """Return how a process ended; None where it ended without an error, or that is unknown."""
    if signal_number == _NOT_LAUNCHED and not code:
        return Ending(_NO_LAUNCH, "Check that its working directory and the directories of its output files exist.")
    if signal_number and signal_number <= LAST_SIGNAL:
        return describe_signal(signal_number)
    if not code:
        return None
    if (passed_on := _passed_on(code)) is not None:
        ending = describe_signal(passed_on)
        return Ending(f"ended with exit code {code}: a command in it was {ending.text}", ending.advice)
    known = _CODES.get(code)
    meaning = f": {known.text}" if known else ""
    return Ending(f"ended with exit code {code}{meaning}{_other_reading(code)}", (known or Ending("")).advice)


def name_exit(code: int | None, signal_number: int | None) -> str:
    """Return how a process ended in a few words for lists; empty where it ended without an error, or is unknown."""
    if signal_number == _NOT_LAUNCHED and not code:
        return _NO_LAUNCH
    if signal_number and signal_number <= LAST_SIGNAL:
        return f"killed by {signal_name(signal_number).partition(',')[0]}"
    if not code:
        return ""
    if (passed_on := _passed_on(code)) is not None:
        return f"exit code {code}: {signal_name(passed_on).partition(',')[0]}"
    return f"exit code {code}: {_CODES[code].text}" if code in _NAMED_CODES else f"exit code {code}"


def describe_signal(number: int) -> Ending:
    """Return what a signal means."""
    known = _SIGNALS.get(number)
    text = f"killed by {signal_name(number)}"
    return Ending(f"{text} ({known.text})", known.advice) if known else Ending(text)


def signal_name(number: int) -> str:
    """Return ``SIGSEGV, signal 11``."""
    return f"{_NAMES[number - 1]}, signal {number}" if number <= len(_NAMES) else f"signal {number}"


def _passed_on(code: int) -> int | None:
    """Return the signal that a shell or Slurm passed on as 128 or 256 more; None for other codes."""
    return next((code - base for base in (_SHELL_BASE, _SLURM_BASE) if 0 < code - base <= LAST_SIGNAL), None)


def _other_reading(code: int) -> str:
    """Before 25.11, sacct shows 139 as 11: a code that may as well be a signal that a shell passed on."""
    if code not in _PASSED_ON:
        return ""
    killed = f"{_SHELL_BASE + code}: a command in it was {describe_signal(code).text}"
    return f", or {killed}. Slurm before 25.11 shows both as {code}"
