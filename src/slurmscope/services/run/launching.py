# SPDX-License-Identifier: Apache-2.0
"""Start a command as a shell would: same terminal, same process group, same files, default signals."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import signal
from collections.abc import Iterable, Mapping

from slurmscope.errors import SlurmscopeError
from slurmscope.log import escape

NOT_EXECUTABLE = 126
NOT_FOUND = 127

_PR_SET_CHILD_SUBREAPER = 36
# Python ignores these; programs expect the default.
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)


class CommandNotStarted(SlurmscopeError):
    """A command could not be started; ``code`` is the exit code that shells use for that."""

    def __init__(self, command: str, error: OSError) -> None:
        self.code = NOT_FOUND if error.errno in {errno.ENOENT, errno.ENOTDIR} else NOT_EXECUTABLE
        super().__init__(f"cannot run {escape(command)}: {error.strerror or error}")


def become_subreaper() -> bool:
    """Let this process adopt descendants whose parent ends; return whether the kernel agreed."""
    refused: int = ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return not refused


def start(command: tuple[str, ...], environment: Mapping[str, str], *, unblocked: Iterable[signal.Signals]) -> int:
    """Start a command and return its PID; raise CommandNotStarted.

    ``unblocked`` are the signals that this process has blocked for itself.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ()) - set(unblocked)
    try:
        return os.posix_spawnp(command[0], command, environment, setsigmask=mask, setsigdef=_RESTORED)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise CommandNotStarted(command[0], error) from error
    # A script without its first line; shells run it with /bin/sh.
    script = shutil.which(command[0]) or command[0]
    try:
        return os.posix_spawn(
            "/bin/sh", ["sh", script, *command[1:]], environment, setsigmask=mask, setsigdef=_RESTORED
        )
    except OSError as error:
        raise CommandNotStarted(command[0], error) from error
