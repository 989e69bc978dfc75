# SPDX-License-Identifier: Apache-2.0
"""Answer commands about GPUs, one line each, until the parent closes the pipe.

::

    <- 30 sample energy                     seconds that the answer may take, and what is wanted
    -> {"taken_at": 81.5, "devices": [{"index": 0, "uuid": "GPU-…", …}]}
    -> {"error": "driver_not_loaded", "detail": "Driver Not Loaded"}     and the child ends

Run as ``python -m slurmscope.sources.gpu.nvml.child``. It imports little: it is one more process on each node.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from typing import Any

from slurmscope.sources.gpu.nvml.sampling import Sampler, reason_of

LINE_LIMIT_BYTES = 256

# From linux/capability.h and linux/prctl.h.
_CAPABILITY_VERSION_3 = 0x20080522
_CAPABILITIES = 64
_PR_CAP_AMBIENT, _AMBIENT_IS_SET, _AMBIENT_CLEAR_ALL = 47, 1, 4


def main() -> int:
    """Give up what the driver does not need, then answer."""
    drop_privileges()
    sampler: Sampler | None = None
    for seconds, command in _commands():
        # Kills even a process that hangs inside the driver, also when the parent is no more.
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            sampler = sampler or Sampler(_open_nvml())
            _answer(sampler.sample(with_energy="energy" in command))
        except Exception as error:  # noqa: BLE001 - the top of a program
            _answer({"error": _reason(error), "detail": f"{type(error).__name__}: {error}"})
            return 0
        signal.setitimer(signal.ITIMER_REAL, 0)
    return 0


def drop_privileges() -> None:
    """Drop all capabilities: the agent may have some, and the driver's library is not trusted code.

    Core dumps of a crashing library would fill the node's disk.
    """
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    if libc.capset(header, nothing) != 0 and _has_ambient(libc):
        # A filter on system calls, as our unit has one, forbids that. Ambient capabilities are given to the next
        # program, unless they are taken back: so this one starts itself once more.
        libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
        with contextlib.suppress(OSError):
            if not _has_ambient(libc):
                os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - there is no shell in this


def _has_ambient(libc: ctypes.CDLL) -> bool:
    return any(libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_IS_SET, number, 0, 0) == 1 for number in range(_CAPABILITIES))


def _open_nvml() -> Any:
    import pynvml

    pynvml.nvmlInit()
    return pynvml


def _reason(error: Exception) -> str:
    if isinstance(error, ImportError):
        return "not_installed"
    code = getattr(error, "value", None)
    return reason_of(code) if isinstance(code, int) else "failed"


def _commands() -> Iterator[tuple[float, list[str]]]:
    """Yield commands until the pipe ends; invalid input cannot come from our parent."""
    while line := sys.stdin.buffer.readline(LINE_LIMIT_BYTES):
        seconds, *command = line.decode("ascii").split()
        yield float(seconds), command


def _answer(answer: dict[str, object]) -> None:
    line = json.dumps(answer, separators=(",", ":")).encode() + b"\n"
    while line:
        line = line[os.write(1, line) :]


if __name__ == "__main__":
    sys.exit(main())
