# SPDX-License-Identifier: Apache-2.0
"""Keep the child that reads GPUs running, and pause before a restart when it fails."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from slurmscope.log import fields
from slurmscope.model.gpus import Gpu, GpuReason
from slurmscope.sources.gpu.nvml.decoding import NvmlSample, decode
from slurmscope.sources.gpu.nvml.driver import DRIVER_SIGNS
from slurmscope.sources.gpu.nvml.process import NvmlUnavailable

logger = logging.getLogger(__name__)

# Without persistence mode the driver wakes each GPU when it is opened: a second or two each.
START_TIMEOUT_SECONDS = 45.0
FIRST_PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 300.0
# A GPU that was reset and is back is not seen by a library that was loaded before.
LOST_GPU_RESTART_SECONDS = 300.0

_QUIET = frozenset({GpuReason.NOT_INSTALLED, GpuReason.DRIVER_NOT_LOADED})


class Child(Protocol):
    """Answer commands about GPUs in a separate process."""

    @property
    def pid(self) -> int:
        """Return its process id."""

    @property
    def is_gone(self) -> bool:
        """Return whether it has ended and was reaped."""

    def request(self, command: str, timeout_seconds: float) -> bytes:
        """Return the line that answers; raise NvmlUnavailable when there is none."""

    def close(self) -> None:
        """Let it exit by itself, or kill it."""

    def end(self) -> None:
        """Kill it."""


class NvmlReader:
    """Read the GPUs of this node through a child process. Not thread-safe."""

    def __init__(
        self,
        launch: Callable[[], Child],
        *,
        timeout_seconds: float = 5.0,
        start_timeout_seconds: float = START_TIMEOUT_SECONDS,
        energy_seconds: float = 30.0,
        driver_signs: Sequence[Path] = DRIVER_SIGNS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take what starts a child, how long it may take to answer, and how often energy is read.

        ``driver_signs`` are paths of which one exists where the driver is loaded.
        """
        self._launch = launch
        self._timeout_seconds = timeout_seconds
        self._start_timeout_seconds = start_timeout_seconds
        self._energy_seconds = energy_seconds
        self._driver_signs = driver_signs
        self._clock = clock
        self._process: Child | None = None
        self._is_new = False
        self._started_at = 0.0
        self._energy_at = 0.0
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._next_start = 0.0
        self._failure: tuple[GpuReason, str] | None = None

    @property
    def pid(self) -> int | None:
        """Return the process id of the child; None while there is none."""
        return None if self._process is None or self._process.is_gone else self._process.pid

    def read(self) -> NvmlSample:
        """Read all GPUs now; raise NvmlUnavailable with the cause, during a pause with that of the last failure."""
        if self._process is None and not any(sign.exists() for sign in self._driver_signs):
            # No GPUs: the child is not even started.
            raise NvmlUnavailable(GpuReason.DRIVER_NOT_LOADED, "no NVIDIA driver is loaded")
        if self._failure is not None and self._must_rest():
            raise NvmlUnavailable(*self._failure)
        try:
            sample = self._ask(self._running())
        except NvmlUnavailable as failure:
            self._fail(failure)
            raise
        self._recover(sample.devices)
        return sample

    def close(self) -> None:
        """End the child."""
        if self._process is not None:
            self._process.close()

    def _must_rest(self) -> bool:
        """Return whether it is too early; one that hangs in the kernel must not get a second one next to it."""
        is_hanging = self._process is not None and not self._process.is_gone
        return is_hanging or self._clock() < self._next_start

    def _running(self) -> Child:
        if self._process is None or self._failure is not None:
            self._process = self._launch()
            self._is_new = True
            self._started_at = self._energy_at = self._clock()
        return self._process

    def _ask(self, process: Child) -> NvmlSample:
        is_energy_due = self._clock() >= self._energy_at
        if is_energy_due:
            self._energy_at = self._clock() + self._energy_seconds
        timeout_seconds = self._start_timeout_seconds if self._is_new else self._timeout_seconds
        sample = decode(process.request("sample energy" if is_energy_due else "sample", timeout_seconds))
        self._is_new = False
        return sample

    def _fail(self, failure: NvmlUnavailable) -> None:
        if self._failure is None or self._failure[0] is not failure.why:
            level = logging.INFO if failure.why in _QUIET else logging.WARNING
            logger.log(
                level, "GPUs cannot be read", extra=fields(failure.reason, reason=failure.reason, error=str(failure))
            )
        if self._process is not None and failure.why is GpuReason.TIMEOUT:
            self._process.end()
        else:
            self.close()  # a child that reported a fatal error is about to exit by itself
        # Not the exception itself: it would keep alive all that it saw on its way.
        self._failure = (failure.why, str(failure))
        self._next_start = self._clock() + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)

    def _recover(self, devices: Sequence[Gpu]) -> None:
        self._failure = None
        self._pause_seconds = FIRST_PAUSE_SECONDS
        is_any_lost = any(device.problem is not None for device in devices)
        if is_any_lost and self._clock() - self._started_at >= LOST_GPU_RESTART_SECONDS:
            self.close()
            if self._process is not None and self._process.is_gone:
                self._process = None
