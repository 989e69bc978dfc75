# SPDX-License-Identifier: Apache-2.0
"""Query NVIDIA's driver about GPUs, in a child process that may hang or crash without harm.

The child runs a closed-source library, so its answer is validated like any external input.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurmscope.core.errors import SourceError
from slurmscope.core.log import escape, fields
from slurmscope.core.own_files import module_command
from slurmscope.node.gpu.records import (
    DRIVER_SIGNS,
    DriverSample,
    Gpu,
    GpuCounters,
    GpuProcess,
    GpuReason,
    XidEvent,
    with_means,
)

logger = logging.getLogger(__name__)

CHILD = module_command("slurmscope.node.gpu.nvml_child")
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


TEXT_LIMIT = 200
# What a real device cannot exceed; above it a number means "none" or nonsense.
_MOST = 1 << 62


def decode(line: bytes) -> DriverSample:
    """Decode an answer; raise NvmlUnavailable when it reports an error or is invalid."""
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _malformed("it is not JSON") from error
    if not isinstance(answer, dict):
        raise _malformed("it is not an object")
    if "error" in answer:
        detail = _text(answer.get("detail")) or "no detail"
        raise NvmlUnavailable(_reason(answer["error"]), f"GPUs cannot be read: {detail}")
    taken_at = _number(answer.get("taken_at"))
    devices = answer.get("devices")
    if taken_at is None or not isinstance(devices, list) or not all(isinstance(device, dict) for device in devices):
        raise _malformed("it has no devices")
    return DriverSample(
        taken_at=taken_at, devices=tuple(_gpu(device) for device in devices), xids=_xids(answer.get("xids"))
    )


def _gpu(device: Mapping[str, Any]) -> Gpu:
    index = _whole(device.get("index"))
    if index is None:
        raise _malformed("a device has no index")
    problem = _reason(device["problem"]) if "problem" in device else None
    uuid = _text(device.get("uuid"))
    if problem is None and not uuid:
        problem = GpuReason.MALFORMED
    if problem is not None:
        return Gpu(index=index, problem=problem)
    return Gpu(
        index=index,
        uuid=uuid,
        model=_text(device.get("model")),
        minor=_whole(device.get("minor")),
        bus_id=_text(device.get("bus_id")),
        parent_uuid=_text(device.get("parent_uuid")),
        gpu_instance=_whole(device.get("gpu_instance")),
        compute_instance=_whole(device.get("compute_instance")),
        has_instances=device.get("has_instances") is True,
        memory_size_bytes=_whole(device.get("memory_size_bytes")),
        memory_used_bytes=_whole(device.get("memory_used_bytes")),
        memory_free_bytes=_whole(device.get("memory_free_bytes")),
        power_watts=_scaled(device.get("power_milliwatts"), 1000),
        energy_joules=_scaled(device.get("energy_millijoules"), 1000),
        throttled_seconds=_scaled_values(device.get("throttled_nanoseconds"), 10**9),
        health=_scaled_values(device.get("health"), 1),
        temperature_celsius=_number(device.get("temperature_celsius")),
        processes=_processes(device.get("processes"), device.get("mps")),
        counters=_counters(device.get("counters")),
    )


def _xids(found: object) -> tuple[XidEvent, ...]:
    """Return the errors that were reported; an invalid entry affects only itself."""
    events = []
    for entry in found if isinstance(found, list) else ():
        uuid, xid, at, instance = entry if isinstance(entry, list) and len(entry) == 4 else (None,) * 4
        number, at_seconds = _whole(xid), _scaled(at, 1)
        if _text(uuid) and number is not None and at_seconds is not None:
            events.append(XidEvent(uuid=_text(uuid), xid=number, at_seconds=at_seconds, gpu_instance=_whole(instance)))
    return tuple(events)


def _counters(found: object) -> GpuCounters | None:
    if not isinstance(found, dict) or (seconds := _scaled(found.get("seconds"), 1)) is None:
        return None
    return GpuCounters(
        source=_text(found.get("source")),
        seconds=seconds,
        totals=_scaled_values(found.get("totals"), 1),
        by_pid={pid: _scaled(busy, 1) or 0.0 for pid, busy in _pairs(found.get("processes")) or ()},
    )


def _scaled_values(found: object, divisor: int) -> dict[str, float]:
    if not isinstance(found, dict):
        return {}
    values = {_text(name): _scaled(value, divisor) for name, value in found.items()}
    return {name: value for name, value in values.items() if value is not None}


def _processes(listed: object, mps: object) -> tuple[GpuProcess, ...] | None:
    if (pairs := _pairs(listed)) is None:
        return None
    clients = set(map(_whole, mps)) if isinstance(mps, list) else set()
    return tuple(GpuProcess(pid=pid, memory_bytes=_whole(value), is_mps_client=pid in clients) for pid, value in pairs)


def _pairs(listed: object) -> list[tuple[int, object]] | None:
    """Return process ids with their values; None if one is no process id."""
    if not isinstance(listed, list):
        return None
    found = []
    for entry in listed:
        pid = _whole(entry[0]) if isinstance(entry, list) and len(entry) == 2 else None
        if pid is None:
            return None
        found.append((pid, entry[1]))
    return found


def _reason(word: object) -> GpuReason:
    try:
        return GpuReason(word)
    except ValueError:
        return GpuReason.FAILED


def _text(value: object) -> str:
    return escape(value, TEXT_LIMIT) if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    # Not math.isfinite, which raises for a whole number of 400 digits; nothing compares with one that is not a number.
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_MOST < value < _MOST:
        return None
    return float(value)


def _scaled(value: object, divisor: int) -> float | None:
    number = _number(value)
    return None if number is None or number < 0 else number / divisor


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST else None


def _malformed(why: str) -> NvmlUnavailable:
    return NvmlUnavailable(GpuReason.MALFORMED, f"the answer about GPUs cannot be read: {why}")


# Without persistence mode the driver wakes each GPU when it is opened: a second or two each.
START_TIMEOUT_SECONDS = 45.0
FIRST_PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 300.0
# A GPU that was reset and is back is not seen by a library that was loaded before.
LOST_GPU_RESTART_SECONDS = 300.0

_QUIET = frozenset({GpuReason.NOT_INSTALLED, GpuReason.DRIVER_NOT_LOADED})


class NvmlReader:
    """Read the GPUs of this node through a child process. Not thread-safe."""

    def __init__(
        self,
        launch: Callable[[], NvmlProcess],
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
        self._process: NvmlProcess | None = None
        self._is_new = False
        self._started_at = 0.0
        self._energy_at = 0.0
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._next_start = 0.0
        self._failure: tuple[GpuReason, str] | None = None
        self._earlier: dict[str, Gpu] = {}

    @property
    def pid(self) -> int | None:
        """Return the process id of the child; None while there is none."""
        return None if self._process is None or self._process.is_gone else self._process.pid

    def read(self) -> DriverSample:
        """Read all GPUs now; raise NvmlUnavailable with the cause, during a pause with that of the last failure."""
        if self._process is None and not any(sign.exists() for sign in self._driver_signs):
            # No GPUs: the child is not even started.
            raise NvmlUnavailable(GpuReason.DRIVER_NOT_LOADED, "no NVIDIA driver is loaded")
        if self._failure is not None and self._must_rest():
            raise NvmlUnavailable(*self._failure)
        try:
            sample = self._query(self._running())
        except NvmlUnavailable as failure:
            self._fail(failure)
            raise
        self._recover(sample.devices)
        devices = tuple(with_means(gpu, self._earlier.get(gpu.uuid)) for gpu in sample.devices)
        self._earlier = {gpu.uuid: gpu for gpu in devices if gpu.counters is not None}
        return replace(sample, devices=devices)

    def close(self) -> None:
        """End the child."""
        if self._process is not None:
            self._process.close()

    def _must_rest(self) -> bool:
        """Return whether it is too early; one that hangs in the kernel must not get a second one next to it."""
        is_hanging = self._process is not None and not self._process.is_gone
        return is_hanging or self._clock() < self._next_start

    def _running(self) -> NvmlProcess:
        if self._process is None or self._failure is not None:
            self._process = self._launch()
            self._is_new = True
            self._started_at = self._energy_at = self._clock()
        return self._process

    def _query(self, process: NvmlProcess) -> DriverSample:
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
            facts = fields(failure.reason, reason=failure.reason, error=str(failure))
            logger.log(level, "GPUs cannot be read", extra=facts)
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
