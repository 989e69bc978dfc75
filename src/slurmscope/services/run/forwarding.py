# SPDX-License-Identifier: Apache-2.0
"""Decide which signals to pass on to the command.

The command is in our process group. So whatever a terminal sends (Ctrl-C, Ctrl-\\, Ctrl-Z, hang-up) reaches it too, and
Slurm signals every process of a step: passing these on would deliver them twice. A signal that another process sends
to us alone has to be passed on. For the few that send to the whole group, such as timeout(1), there is no way to know.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

PASSED_ON = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGTSTP, signal.SIGCONT,
)  # fmt: skip

_BY_USER = frozenset({0, -1, -6})
"""SI_USER, SI_QUEUE and SI_TKILL: sent by a process. What the kernel sends, as for a terminal, has other codes."""


def caught_signals() -> tuple[signal.Signals, ...]:
    """Return the signals to wait for; those that this process was started to ignore, as by nohup, stay ignored."""
    wanted = [number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
    return (*wanted, signal.SIGALRM, signal.SIGCHLD)


def must_pass_on(
    info: signal.struct_siginfo, *, is_own: Callable[[int], bool], sender_name: Callable[[int], str]
) -> bool:
    """Return whether the command has not received this signal yet.

    ``is_own`` returns whether a PID is the command or one of its descendants, ``sender_name`` the name of a program.
    """
    if info.si_code not in _BY_USER or is_own(info.si_pid):
        return False
    return not sender_name(info.si_pid).startswith("slurmstepd")


def name_of(pid: int, procfs_root: Path = Path("/proc")) -> str:
    """Return the name of a process; empty if it is gone."""
    try:
        return (procfs_root / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
