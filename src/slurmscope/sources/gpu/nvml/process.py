# SPDX-License-Identifier: Apache-2.0
"""Run the child process that queries the driver, and kill it when it does not answer."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from slurmscope.errors import SourceError
from slurmscope.model.gpus import GpuReason

# -P keeps the current folder out of the search for modules: it is not ours.
CHILD = (sys.executable, "-P", "-m", "slurmscope.sources.gpu.nvml.child")
ANSWER_LIMIT_BYTES = 8 * 1024 * 1024

_BLOCK_BYTES = 64 * 1024
_REAP_SECONDS = 0.5
_CLOSE_SECONDS = 2.0
# The child ends itself a little later than we would end it: that matters only when we are gone.
_OWN_END_SECONDS = 5.0
# What finds Python, its modules and the driver's library; the agent's own settings are not its business.
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "LANG", "LC_ALL")


class NvmlUnavailable(SourceError):
    """The driver cannot be queried; ``why`` is the cause."""

    def __init__(self, why: GpuReason, message: str) -> None:
        super().__init__(message)
        self.why = why
        self.reason = why.value


def child_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of the child, given our own."""
    return {name: inherited[name] for name in _PASSED_ON if name in inherited}


class NvmlProcess:
    """Control one run of the child. Not thread-safe."""

    def __init__(self, environment: Mapping[str, str], argv: Sequence[str] = CHILD) -> None:
        """Start it in a session of its own, so that no signal to us reaches it."""
        try:
            self._child = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise NvmlUnavailable(GpuReason.FAILED, f"cannot start the process that reads GPUs: {error}") from error

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._child.pid

    @property
    def is_gone(self) -> bool:
        """Return whether it has ended and was reaped; one that hangs in the kernel survives even SIGKILL."""
        return self._child.poll() is not None

    def request(self, command: str, timeout_seconds: float) -> bytes:
        """Send one command and return the line of its answer; raise NvmlUnavailable when there is none."""
        deadline = time.monotonic() + timeout_seconds
        line = f"{timeout_seconds + _OWN_END_SECONDS:.3f} {command}\n".encode("ascii")
        assert self._child.stdin is not None and self._child.stdout is not None  # noqa: S101, PT018 - set above
        try:
            # Far less than the capacity of a pipe, and it is empty: this cannot block.
            os.write(self._child.stdin.fileno(), line)
        except BrokenPipeError as error:
            raise self._crashed() from error
        return self._read_line(self._child.stdout.fileno(), deadline, timeout_seconds)

    def close(self) -> None:
        """Let it exit by itself, which closes the driver properly, and kill it when it does not."""
        if self._child.stdin is not None and not self._child.stdin.closed:
            self._child.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(_CLOSE_SECONDS)
        self.end()

    def end(self) -> None:
        """Kill it and close the pipes; :attr:`is_gone` is whether that has worked yet."""
        if not self.is_gone:  # once reaped, its number may be another's
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(_REAP_SECONDS)
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()

    def _read_line(self, descriptor: int, deadline: float, timeout_seconds: float) -> bytes:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        pieces: list[bytes] = []
        size = 0
        while size <= ANSWER_LIMIT_BYTES:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not poller.poll(1000 * remaining):
                message = f"the GPU driver did not answer within {timeout_seconds:g} s"
                raise NvmlUnavailable(GpuReason.TIMEOUT, message)
            block = os.read(descriptor, _BLOCK_BYTES)
            if not block:
                raise self._crashed()
            pieces.append(block)
            size += len(block)
            if block.endswith(b"\n"):
                return b"".join(pieces)
        raise NvmlUnavailable(GpuReason.MALFORMED, f"the answer about GPUs has more than {ANSWER_LIMIT_BYTES} bytes")

    def _crashed(self) -> NvmlUnavailable:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(_REAP_SECONDS)
        code = self._child.returncode
        how = "is ending" if code is None else f"ended with code {code}" if code >= 0 else f"died by signal {-code}"
        return NvmlUnavailable(GpuReason.CRASHED, f"the process that reads GPUs {how}")
