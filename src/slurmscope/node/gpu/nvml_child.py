# SPDX-License-Identifier: Apache-2.0
"""Answer commands about GPUs, one line each, until the parent closes the pipe.

::

    <- 30 sample energy                     seconds that the answer may take, and what is wanted
    -> {"taken_at": 81.5, "devices": [{"index": 0, "uuid": "GPU-…", …}]}
    -> {"error": "driver_not_loaded", "detail": "Driver Not Loaded"}     and the child ends

Between commands it counts what the GPUs do, on its own clock: no scrape interval can miss a load.
Run as ``python -m slurmscope.node.gpu.nvml_child``. It imports little: it is one more process on each node.

Runs in the child process alone. Each return code is checked: the library's Python binding raises for all but
success, and a handle that could not be had is never used (the driver would crash on it). What a device does not
support is left out. Units are NVML's own; the parent converts them.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from slurmscope.node.gpu.nvml_counters import (
    COUNT_SECONDS,
    NO_VALUE,
    SHORTEST_SECONDS,
    DeviceCounters,
    Health,
    read_throttles,
)

MOST_DEVICES = 128
MOST_PROCESSES = 2048

# Return codes of nvml.h after which nothing else of a device, or of the driver, can be believed.
_UNINITIALIZED, _DRIVER_NOT_LOADED, _GPU_LOST, _RESET_REQUIRED, _MISMATCH = 1, 9, 15, 16, 18
_DEVICE_FAILURES = frozenset({_UNINITIALIZED, _DRIVER_NOT_LOADED, _GPU_LOST, _RESET_REQUIRED, _MISMATCH})
_LIBRARY_NOT_FOUND, _NO_PERMISSION, _BLOCKED = 12, 4, 17
_REASONS = {
    _LIBRARY_NOT_FOUND: "driver_not_loaded",
    _DRIVER_NOT_LOADED: "driver_not_loaded",
    _NO_PERMISSION: "no_permission",
    _BLOCKED: "no_permission",
    _MISMATCH: "version_mismatch",
    _GPU_LOST: "lost",
    _RESET_REQUIRED: "lost",
    10: "timeout",
}
_CORE_SENSOR = 0
_XID_EVENT = 8
_NO_INSTANCE = 0xFFFFFFFF
MOST_EVENTS = 256
"""Errors kept between two answers; a GPU that reports more is broken in a way that the first ones show."""


def reason_of(code: int) -> str:
    """Return the word for a return code that ended a reading."""
    return _REASONS.get(code, "failed")


class Sampler:
    """Sample all devices repeatedly; values that never change are read once per device."""

    def __init__(self, nvml: Any) -> None:
        """Take the module pynvml, initialised."""
        self._nvml = nvml
        self._constants: dict[str, dict[str, object]] = {}
        self._slow: dict[str, dict[str, object]] = {}
        self._counters: dict[str, DeviceCounters] = {}
        self._event_set = self._get("nvmlEventSetCreate")
        self._health = Health(nvml, self._get)
        self._registered: dict[int | None, str] = {}
        self._xids: list[tuple[str, int, float, int | None]] = []

    def count(self) -> None:
        """Count what all devices did since the last time; one that fails affects only itself."""
        for index in range(min(self._nvml.nvmlDeviceGetCount(), MOST_DEVICES)):
            with contextlib.suppress(self._nvml.NVMLError, ValueError):
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                uuid = self._nvml.nvmlDeviceGetUUID(handle)
                gpu = {"uuid": uuid, **self._constants_of(uuid, handle), "index": index}
                self._register(handle, uuid)
                if self._read_instances(handle, gpu) is None:
                    self._count(uuid, handle, self._processes(handle), is_due=True)
        self._take_events()

    def sample(self, *, with_energy: bool) -> dict[str, object]:
        """Read all devices; ``taken_at`` is the time since boot before the first process was listed.

        Energy costs 50 times what the other values do (3.3 ms on an H200): without ``with_energy`` it and the throttle
        times are the values read last.
        """
        taken_at = time.clock_gettime(time.CLOCK_BOOTTIME)
        devices: list[dict[str, object]] = []
        for index in range(min(self._nvml.nvmlDeviceGetCount(), MOST_DEVICES)):
            try:
                devices += self._read_gpu(index, with_energy=with_energy)
            except (self._nvml.NVMLError, ValueError) as error:  # or text of a board that is none
                devices.append({"index": index, "problem": _reason(error)})
        self._forget_all_but({device.get("uuid"): "counters" in device for device in devices})
        self._take_events()
        xids, self._xids = self._xids, []
        return {"taken_at": taken_at, "devices": devices, "xids": xids}

    def _register(self, handle: Any, uuid: str) -> None:
        """Register for the errors of a device; an ordinary user may."""
        key = ctypes.cast(handle, ctypes.c_void_p).value
        if self._event_set is not None and key not in self._registered:
            self._registered[key] = uuid
            self._get("nvmlDeviceRegisterEvents", handle, _XID_EVENT, self._event_set)

    def _take_events(self) -> None:
        """Take the errors that were reported since the last time; of a lost GPU only its handle is known."""
        with contextlib.suppress(self._nvml.NVMLError):
            while self._event_set is not None and len(self._xids) < MOST_EVENTS:
                event = self._nvml.nvmlEventSetWait_v2(self._event_set, 0)
                uuid = self._registered.get(ctypes.cast(event.device, ctypes.c_void_p).value)
                instance = None if event.gpuInstanceId == _NO_INSTANCE else event.gpuInstanceId
                if uuid is not None and event.eventType == _XID_EVENT:
                    self._xids.append((uuid, event.eventData, time.time(), instance))

    def _forget_all_but(self, uuids: Mapping[object, bool]) -> None:
        """Drop what is known of instances that were removed: they come and go for years.

        So are counters of a GPU that was cut into instances: what these do must not count for the whole one later.
        """
        self._constants = {uuid: known for uuid, known in self._constants.items() if uuid in uuids}
        self._slow = {uuid: values for uuid, values in self._slow.items() if uuid in uuids}
        for uuid in self._counters.keys() - {uuid for uuid, is_counted in uuids.items() if is_counted}:
            self._counters.pop(uuid).close()

    def _read_gpu(self, index: int, *, with_energy: bool) -> list[dict[str, object]]:
        handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = self._nvml.nvmlDeviceGetUUID(handle)
        gpu: dict[str, object] = {"index": index, "uuid": uuid, **self._constants_of(uuid, handle)}
        instances = self._read_instances(handle, gpu)
        if instances is not None:
            gpu["has_instances"] = True
        else:
            gpu["processes"] = processes = self._processes(handle)
            gpu["mps"] = self._clients(handle)
            gpu["counters"] = self._count(uuid, handle, processes)
        gpu |= self._memory(handle)
        gpu["power_milliwatts"] = self._get("nvmlDeviceGetPowerUsage", handle)
        gpu["temperature_celsius"] = self._temperature(handle)
        if with_energy:
            self._slow[uuid] = {
                "energy_millijoules": self._get("nvmlDeviceGetTotalEnergyConsumption", handle),
                "throttled_nanoseconds": read_throttles(self._get, handle),
                "health": self._health.read(uuid, handle),
            }
        return [gpu | self._slow.get(uuid, {}), *(instances or ())]

    def _count(
        self,
        uuid: str,
        handle: Any,
        processes: list[list[int | None]] | None,
        gpu_instance: int | None = None,
        *,
        is_due: bool = False,
    ) -> dict[str, object]:
        """Count one device, and return its totals; its first count starts it."""
        now = time.monotonic()
        if uuid not in self._counters:
            self._counters[uuid] = DeviceCounters(self._nvml, self._get, handle, now, gpu_instance=gpu_instance)
        self._counters[uuid].count(now, [pid for pid, _ in processes or () if pid is not None], is_due=is_due)
        return self._counters[uuid].describe()

    def _read_instances(self, handle: Any, parent: dict[str, object]) -> list[dict[str, object]] | None:
        """Read the MIG instances; None for a GPU that is not cut into any."""
        modes = self._get("nvmlDeviceGetMigMode", handle)
        if not modes or not modes[0]:
            return None
        shared = {name: parent[name] for name in ("index", "minor", "bus_id")} | {"parent_uuid": parent["uuid"]}
        instances = []
        for number in range(min(self._get("nvmlDeviceGetMaxMigDeviceCount", handle) or 0, MOST_DEVICES)):
            instance = self._get("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
            uuid = instance and self._get("nvmlDeviceGetUUID", instance)
            if uuid:
                instances.append({**shared, "uuid": uuid, **self._read_instance(instance, uuid)})
        shares = Counter(instance["gpu_instance"] for instance in instances)
        for instance in instances:
            # Hardware counters are those of a GPU instance: of several compute instances in it, none has its own.
            if isinstance(number := instance["gpu_instance"], int) and shares[number] == 1:
                instance["counters"] = self._count(instance["uuid"], handle, instance["processes"], number)
        return instances

    def _read_instance(self, handle: Any, uuid: str) -> dict[str, object]:
        return {
            "model": self._constants_of(uuid, handle)["model"],
            "gpu_instance": self._get("nvmlDeviceGetGpuInstanceId", handle),
            "compute_instance": self._get("nvmlDeviceGetComputeInstanceId", handle),
            "processes": self._processes(handle),
            "mps": self._clients(handle),
            **self._memory(handle),
        }

    def _constants_of(self, uuid: str, handle: Any) -> dict[str, object]:
        if uuid not in self._constants:
            address = self._get("nvmlDeviceGetPciInfo", handle)
            self._constants[uuid] = {
                "model": self._get("nvmlDeviceGetName", handle),
                "minor": self._get("nvmlDeviceGetMinorNumber", handle),
                "bus_id": _text(address.busId) if address else None,
            }
        return self._constants[uuid]

    def _memory(self, handle: Any) -> dict[str, object]:
        """Read memory as nvidia-smi shows it; drivers before 510 count what they reserve as used."""
        version = getattr(self._nvml, "nvmlMemory_v2", None)
        found = version and self._get("nvmlDeviceGetMemoryInfo", handle, version)
        found = found or self._get("nvmlDeviceGetMemoryInfo", handle)
        if not found:
            return {}
        sizes = {"memory_size_bytes": found.total, "memory_used_bytes": found.used, "memory_free_bytes": found.free}
        return {name: size for name, size in sizes.items() if size < NO_VALUE}

    def _temperature(self, handle: Any) -> object:
        found = self._get("nvmlDeviceGetTemperatureV", handle, _CORE_SENSOR)
        return self._get("nvmlDeviceGetTemperature", handle, _CORE_SENSOR) if found is None else found

    def _processes(self, handle: Any) -> list[list[int | None]] | None:
        """List pid and memory of all that have a context: for computing, for graphics, or through MPS."""
        found: dict[int, int | None] = {}
        is_known = False
        for kind in ("Compute", "Graphics", "MPSCompute"):
            listed = self._running(kind, handle)
            is_known = is_known or listed is not None
            for process in (listed or ())[:MOST_PROCESSES]:
                memory = process.usedGpuMemory
                is_measured = memory is not None and memory < NO_VALUE
                # The same process may have several contexts; each list has its total memory.
                found[process.pid] = max(memory, found.get(process.pid) or 0) if is_measured else found.get(process.pid)
        return [[pid, memory] for pid, memory in sorted(found.items())] if is_known else None

    def _clients(self, handle: Any) -> list[int]:
        """List the processes whose work the driver attributes to the server of MPS."""
        return [process.pid for process in (self._running("MPSCompute", handle) or ())[:MOST_PROCESSES]]

    def _running(self, kind: str, handle: Any) -> Any:
        listed = self._get(f"nvmlDeviceGet{kind}RunningProcesses_v3", handle)
        return self._get(f"nvmlDeviceGet{kind}RunningProcesses_v2", handle) if listed is None else listed

    def _get(self, name: str, *arguments: Any) -> Any:
        """Call a function; None where the device, the driver or the binding does not have it or refuses it."""
        call = getattr(self._nvml, name, None)
        if call is None:
            return None
        try:
            return call(*arguments)
        except self._nvml.NVMLError as error:
            if error.value in _DEVICE_FAILURES:
                raise
            return None
        except UnicodeDecodeError:
            return None


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


LINE_LIMIT_BYTES = 256
COUNT_TIMEOUT_SECONDS = 30.0
IDLE_SECONDS = 600.0

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
            sampler = sampler or _start_sampler()
            if command:
                _answer(sampler.sample(with_energy="energy" in command))
            else:
                sampler.count()
        except Exception as error:  # noqa: BLE001 - the top of a program
            _answer({"error": _reason(error), "detail": f"{type(error).__name__}: {error}"})
            return 0
        signal.setitimer(signal.ITIMER_REAL, 0)
    return 0


def _start_sampler() -> Sampler:
    """Begin to count, a moment before the first answer: a number without any time behind it would be none."""
    sampler = Sampler(_open_nvml())
    sampler.count()
    time.sleep(1.2 * SHORTEST_SECONDS)
    return sampler


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
    """Yield commands until the pipe ends, and an empty one whenever it is time to count.

    Invalid input cannot come from our parent, and it waits for each answer. Once the numbers are not read any more,
    nothing is counted.
    """
    poller = select.poll()
    poller.register(sys.stdin, select.POLLIN)
    idle_seconds, due = IDLE_SECONDS, 0.0
    while True:
        # Readings, however frequent, move no count.
        left = max(0.0, due - time.monotonic()) if idle_seconds < IDLE_SECONDS else None
        if not poller.poll(None if left is None else 1000 * left):
            idle_seconds += COUNT_SECONDS
            due = time.monotonic() + COUNT_SECONDS
            yield COUNT_TIMEOUT_SECONDS, []
            continue
        line = sys.stdin.buffer.readline(LINE_LIMIT_BYTES)
        if not line:
            return
        if idle_seconds >= IDLE_SECONDS:
            due = time.monotonic() + COUNT_SECONDS
        idle_seconds = 0.0
        seconds, *command = line.decode("ascii").split()
        yield float(seconds), command


def _answer(answer: dict[str, object]) -> None:
    line = json.dumps(answer, separators=(",", ":")).encode() + b"\n"
    while line:
        line = line[os.write(1, line) :]


if __name__ == "__main__":
    sys.exit(main())
