# SPDX-License-Identifier: Apache-2.0
"""Read GPUs of AMD and Intel from the kernel's own files: no library and no child process are needed.

::

    /sys/class/drm/renderD128/device/gpu_busy_percent    60                   (amdgpu)
    /sys/class/drm/renderD128/device/mem_info_vram_used  22189965312          (amdgpu)
    /sys/class/drm/renderD128/device/hwmon/hwmon3/power1_average  431000000   (amdgpu, microwatts)
    /sys/class/drm/renderD128/device/hwmon/hwmon3/energy1_input   91000000    (i915, xe, microjoules)

What a GPU did is counted from the first of these that it has:

- ``gauge``: amdgpu's gauge of its load, read about every second by a thread; so is its power, which adds up to energy.
- ``engines``: the time that clients kept the busiest kind of engine busy. Kernels of ROCm do not count there.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from slurmscope.node.gpu.drm_clients import (
    ClientKey,
    DrmClient,
    ReadingOrder,
    read_clients,
    read_kfd,
)
from slurmscope.node.gpu.nvml import NvmlReader, NvmlUnavailable
from slurmscope.node.gpu.records import DriverSample, Gpu, GpuCounters, GpuProcess, GpuReason, Vendor, with_means
from slurmscope.node.kernel_files import HangGuard, read_bytes, read_number

MOST_GPUS = 128
GAUGE_SECONDS = 1.382
"""Seconds between two readings of gauges; the firmware computes them as means of about a second.

No multiple of it is near a whole second, so that a load of such a period is seen at all of its phases.
"""
REACH_SECONDS = 15.0
"""What a gauge says of the time before it: of more than this, while a driver hangs, nothing is known."""
IDLE_SECONDS = 600.0
"""The thread ends when the GPUs were not read for as long."""
KEPT_READINGS = 60
"""Readings for which a client is remembered that was not read; its number is not given again."""
MOST_WATTS = 10_000.0
_WORD_BYTES = 4096

_DRIVERS = {"amdgpu": Vendor.AMD, "i915": Vendor.INTEL, "xe": Vendor.INTEL}
_INTEGRATED = "0000:00:02.0"
"""Where Intel's processors have their graphics, which Slurm does not allocate."""
_NAMES = {Vendor.AMD: "AMD", Vendor.INTEL: "Intel"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DrmGpu:
    """One GPU of the kernel: its folder in sysfs, PCI address, and the minor number of its render node."""

    folder: Path
    pdev: str
    minor: int
    vendor: Vendor


def find_gpus(sysfs: Path) -> list[DrmGpu]:
    """Return the GPUs of AMD and Intel that have a driver, by PCI address: the order of rocm-smi and xpu-smi.

    Of one that is cut into partitions, each with a render node, the first node stands for all of it.
    """
    found = []
    for node in sorted((sysfs / "class/drm").glob("renderD*"))[:MOST_GPUS]:
        try:
            folder = (node / "device").resolve(strict=True)
            vendor = _DRIVERS.get((folder / "driver").resolve(strict=True).name)
        except (OSError, RuntimeError):
            continue
        minor = node.name.removeprefix("renderD")
        is_integrated = vendor is Vendor.INTEL and folder.name == _INTEGRATED
        if vendor is not None and minor.isdecimal() and not is_integrated:
            found.append(DrmGpu(folder=folder, pdev=folder.name, minor=int(minor), vendor=vendor))
    return list({gpu.pdev: gpu for gpu in sorted(found, key=lambda gpu: (gpu.pdev, -gpu.minor))}.values())


@dataclass(slots=True)
class Totals:
    """What one GPU did since counting began."""

    seconds: float = 0.0
    by_name: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    by_pid: dict[int, float] = field(default_factory=dict)
    joules: float | None = None


class GaugeCounter:
    """Add up the gauges of GPUs in a thread, which ends with :meth:`close` or when nothing is read any more."""

    def __init__(self, sysfs: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._sysfs = sysfs
        self._clock = clock
        self._lock = threading.Lock()
        self._counting = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._wanted_at = 0.0
        self._counted_at: float | None = None
        self._totals: dict[str, Totals] = {}

    def read(self) -> Mapping[str, Totals]:
        """Return the totals by PCI address; a GPU whose driver hangs has those of before."""
        self._wanted_at = self._clock()
        if self._thread is None or not self._thread.is_alive():
            self._counted_at = None  # what happened while nothing was counted is not known
            self._thread = threading.Thread(target=self._run, name="gpu-gauges", daemon=True)
            self._thread.start()
        self._count()
        with self._lock:
            return {pdev: replace(totals, by_name=totals.by_name.copy()) for pdev, totals in self._totals.items()}

    def _count(self) -> None:
        """Add the time since the last count, at the gauges of now; nothing while another thread does."""
        if not self._counting.acquire(blocking=False):
            return
        try:
            now, before = self._clock(), self._counted_at
            elapsed = 0.0 if before is None else min(REACH_SECONDS, max(0.0, now - before))
            self._counted_at = now
            gpus = {gpu.pdev: gpu for gpu in find_gpus(self._sysfs) if gpu.vendor is Vendor.AMD}
            with self._lock:
                # One that was lost begins anew: what it did before is not that of a job that holds it now.
                known, self._totals = self._totals, {pdev: self._totals.get(pdev, Totals()) for pdev in gpus}
            for pdev, gpu in gpus.items():
                self._add(gpu, elapsed if pdev in known else 0.0)
        finally:
            self._counting.release()

    def close(self) -> None:
        """End the thread after its current reading."""
        self._stop.set()

    def _add(self, gpu: DrmGpu, elapsed: float) -> None:
        busy, memory_busy = (read_number(gpu.folder / f"{name}_busy_percent") for name in ("gpu", "mem"))
        watts = read_watts(gpu.folder)
        with self._lock:
            totals = self._totals[gpu.pdev]
            if busy is not None:
                totals.seconds += elapsed
                totals.by_name["busy"] += elapsed * min(busy, 100) / 100
            if busy is not None and memory_busy is not None:
                totals.by_name["memory_busy"] += elapsed * min(memory_busy, 100) / 100
            if watts is not None:
                totals.joules = (totals.joules or 0.0) + elapsed * watts

    def _run(self) -> None:
        while not self._stop.wait(GAUGE_SECONDS) and self._clock() - self._wanted_at < IDLE_SECONDS:
            self._count()


class EngineCounter:
    """Add up the time in which clients kept engines busy."""

    def __init__(self) -> None:
        self._known: dict[ClientKey, tuple[DrmClient, int]] = {}
        self._reading = 0
        self._rises: dict[ClientKey, dict[str, float]] = {}

    def add(self, clients: Iterable[DrmClient], elapsed: float) -> None:
        """Count what each client did since the last call; nothing of clients that were there before the first."""
        self._reading, self._rises = self._reading + 1, {}
        # One that was not read in the meantime must not count from its beginning when it is seen again.
        self._known = {key: known for key, known in self._known.items() if self._reading - known[1] <= KEPT_READINGS}
        for client in clients:
            was, _ = self._known.get(client.key, (DrmClient(key=client.key), 0))
            now = _never_lower(client, was)
            if self._reading > 1:
                self._rises[client.key] = _rise(was, now, elapsed)
            self._known[client.key] = now, self._reading

    def busy_seconds(self, keys: Iterable[ClientKey], elapsed: float) -> float:
        """Return the time in which the busiest kind of engine of a GPU worked for these clients."""
        sums: defaultdict[str, float] = defaultdict(float)
        for key in keys:
            for engine, seconds in self._rises.get(key, {}).items():
                sums[engine] += seconds
        return min(elapsed, max(sums.values(), default=0.0))


def _never_lower(client: DrmClient, was: DrmClient) -> DrmClient:
    """Return a client whose counters have not fallen: the kernel says that they may for a moment, then catch up."""
    engines = {name: max(seconds, was.engines.get(name, 0.0)) for name, seconds in client.engines.items()}
    cycles = {name: max(pair, was.cycles.get(name, pair)) for name, pair in client.cycles.items()}
    return replace(client, engines=engines, cycles=cycles)


def _rise(was: DrmClient, now: DrmClient, elapsed: float) -> dict[str, float]:
    """Return the busy seconds of each kind of engine, as a mean over its engines."""
    rises = {name: seconds - was.engines.get(name, 0.0) for name, seconds in now.engines.items()}
    for name, (busy, total) in now.cycles.items():
        busy_before, total_before = was.cycles.get(name, (0, 0))
        # All cycles of a client that is new are those since the GPU was started.
        if total_before and total > total_before:
            rises[name] = elapsed * (busy - busy_before) / (total - total_before)
    return {name: max(0.0, seconds) / now.capacity.get(name, 1) for name, seconds in rises.items()}


class DrmReader:
    """Read the GPUs that the kernel's DRM knows. Not thread-safe, except :meth:`close`."""

    def __init__(
        self,
        *,
        sysfs: Path,
        procfs: Path,
        pids: Callable[[], Mapping[Hashable, Collection[int]]],
        guard: HangGuard | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the roots, and what returns the processes of jobs by user; of others those that ROCm knows are read."""
        self._sysfs = sysfs
        self._procfs = procfs
        self._pids = pids
        self._clock = clock
        self._gauges = GaugeCounter(sysfs, clock)
        self._engines = EngineCounter()
        self._read_at: float | None = None
        self._addresses: set[str] = set()
        self._has_amd = False
        self._totals: dict[str, Totals] = {}
        self._earlier: dict[str, Gpu] = {}
        self._known: tuple[int, ...] = ()
        self._order = ReadingOrder()
        self._guard = guard
        self.close = self._gauges.close

    def read(self) -> DriverSample | None:
        """Read all GPUs; None on a node without any."""
        gpus = find_gpus(self._sysfs)
        if not gpus and not self._addresses:
            return None
        taken_at = time.clock_gettime(time.CLOCK_BOOTTIME)
        now, before = self._clock(), self._read_at
        self._read_at = now
        elapsed = 0.0 if before is None else max(0.0, now - before)
        # Also while they are lost: their gauges begin anew then.
        self._has_amd = self._has_amd or any(gpu.vendor is Vendor.AMD for gpu in gpus)
        kfd = read_kfd(self._sysfs) if self._has_amd else {}
        known = [*dict.fromkeys(itertools.chain(self._known, *kfd.values()))]
        order = self._order.sort(self._pids(), known)
        listed = read_clients(self._procfs, order, guard=self._guard, clock=self._clock)
        self._known = tuple(dict.fromkeys(pid for pid, _ in listed.clients.values()))
        self._engines.add((client for _, client in listed.clients.values()), elapsed)
        gauges = self._gauges.read() if self._has_amd else {}
        devices = []
        # A GPU that is lost keeps its number, so that those behind it keep theirs.
        self._addresses.update(gpu.pdev for gpu in gpus)
        numbers = {pdev: number for number, pdev in enumerate(sorted(self._addresses))}
        for gpu in gpus:
            clients = [(pid, client) for pid, client in listed.clients.values() if client.key[0] == gpu.pdev]
            memory = _memory_by_pid(clients, kfd.get(gpu.minor, {}))
            counters = self._count(gpu, clients, memory, gauges.get(gpu.pdev), elapsed)
            devices.append(_describe(numbers[gpu.pdev], gpu, memory, counters, gauges.get(gpu.pdev)))
        self._totals = {gpu.pdev: self._totals[gpu.pdev] for gpu in gpus}
        with_ratios = tuple(with_means(gpu, self._earlier.get(gpu.uuid)) for gpu in devices)
        self._earlier = {gpu.uuid: gpu for gpu in with_ratios}
        problem = GpuReason.NO_PERMISSION if listed.is_denied else None
        return DriverSample(taken_at=taken_at, devices=with_ratios, problem=problem)

    def _count(
        self,
        gpu: DrmGpu,
        clients: Sequence[tuple[int, DrmClient]],
        memory: Mapping[int, int | None],
        gauge: Totals | None,
        elapsed: float,
    ) -> GpuCounters:
        """Return what the GPU did so far, and split what it did since the last reading among its processes."""
        totals = self._totals.setdefault(gpu.pdev, Totals())
        engines = self._engines.busy_seconds((client.key for _, client in clients), elapsed)
        if gauge is not None and "busy" in gauge.by_name:
            # It has begun anew if the GPU was lost for a moment.
            counted = totals.by_name["busy"] if gauge.seconds >= totals.seconds else 0.0
            source, passed = "gauge", max(0.0, gauge.by_name["busy"] - counted)
            totals.seconds, totals.by_name = gauge.seconds, gauge.by_name
        else:
            source, passed = "engines", engines
            totals.seconds += elapsed
            totals.by_name["busy"] += engines
        weights = dict.fromkeys(memory, 0.0)
        for pid, client in clients:
            if pid in weights:
                weights[pid] += self._engines.busy_seconds([client.key], elapsed)
        whole = sum(weights.values())
        totals.by_pid = {
            pid: totals.by_pid.get(pid, 0.0) + (passed * weight / whole if whole else 0.0)
            for pid, weight in weights.items()
        }
        return GpuCounters(
            source=source, seconds=totals.seconds, totals=dict(totals.by_name), by_pid=dict(totals.by_pid)
        )


def _memory_by_pid(clients: Iterable[tuple[int, DrmClient]], kfd: Mapping[int, int]) -> dict[int, int | None]:
    """Return the processes that use a GPU with their memory; ROCm's buffers may be in both lists."""
    found: dict[int, int | None] = {}
    for pid, client in clients:
        if client.has_worked:
            known = found.get(pid)
            found[pid] = known if client.memory_bytes is None else (known or 0) + client.memory_bytes
    return found | {pid: max(size, found.get(pid) or 0) for pid, size in kfd.items()}


def _describe(
    index: int, gpu: DrmGpu, memory: Mapping[int, int | None], counters: GpuCounters, gauge: Totals | None
) -> Gpu:
    size, used = (read_number(gpu.folder / f"mem_info_vram_{name}") for name in ("total", "used"))
    energy = _first_number(gpu.folder, "energy1_input", "energy2_input")
    millidegrees = _first_number(gpu.folder, "temp1_input", "temp2_input")
    return Gpu(
        index=index,
        uuid=_uuid(gpu),
        vendor=gpu.vendor,
        model=_model(gpu),
        minor=gpu.minor,
        bus_id=gpu.pdev,
        memory_size_bytes=size or _first_size(gpu.folder),
        memory_used_bytes=used,
        memory_free_bytes=None if size is None or used is None else max(0, size - used),
        power_watts=read_watts(gpu.folder),
        energy_joules=energy / 1e6 if energy is not None else gauge.joules if gauge else None,
        health=_health(gpu),
        temperature_celsius=None if millidegrees is None else millidegrees / 1000,
        processes=tuple(GpuProcess(pid=pid, memory_bytes=size) for pid, size in sorted(memory.items())),
        counters=counters,
    )


def read_watts(folder: Path) -> float | None:
    """Read the power of a GPU; kernels have either file for it."""
    microwatts = _first_number(folder, "power1_average", "power1_input")
    return None if microwatts is None or microwatts / 1e6 > MOST_WATTS else microwatts / 1e6


def _first_number(folder: Path, *names: str) -> int | None:
    for sensors in sorted(folder.glob("hwmon/hwmon*"))[:1]:
        for name in names:
            if (number := read_number(sensors / name)) is not None:
                return number
    return None


def _first_size(folder: Path) -> int | None:
    """Return the memory of all tiles of a GPU that xe drives."""
    sizes = [read_number(file) or 0 for file in sorted(folder.glob("tile*/physical_vram_size_bytes"))[:8]]
    return sum(sizes) or None


def _uuid(gpu: DrmGpu) -> str:
    """Return the name that ROCR_VISIBLE_DEVICES has for it; the PCI address where the GPU has no number of its own."""
    number = _word(gpu.folder / "unique_id").lower().removeprefix("0x")
    return f"GPU-{number}" if number.strip("0") and number.isalnum() else f"pci-{gpu.pdev}"


def _model(gpu: DrmGpu) -> str:
    name, device = _word(gpu.folder / "product_name"), _word(gpu.folder / "device").removeprefix("0x")
    return name or f"{_NAMES[gpu.vendor]} {device}".strip()


def _word(file: Path) -> str:
    return read_bytes(file, _WORD_BYTES).decode("ascii", "replace").strip()[:100]


def _health(gpu: DrmGpu) -> dict[str, float]:
    """Return errors of memory and of PCIe, as far as amdgpu counts them; ``umc`` is the controller of memory."""
    found: dict[str, float] = {}
    if (replays := read_number(gpu.folder / "pcie_replay_count")) is not None:
        found["pcie_replays"] = replays
    for line in _word(gpu.folder / "ras/umc_err_count").splitlines():
        kind, _, count = line.partition(":")
        name = {"ue": "ecc_uncorrected", "ce": "ecc_corrected"}.get(kind.strip())
        if name and count.strip().isdecimal():
            found[name] = float(count)
    return found


def read_driver(nvml: NvmlReader, drm: DrmReader) -> DriverSample:
    """Read NVIDIA's GPUs, or, on a node without its driver, those that the kernel knows."""
    try:
        return nvml.read()
    except NvmlUnavailable as failure:
        found = drm.read() if failure.why is GpuReason.DRIVER_NOT_LOADED else None
        if found is None:
            raise
        return found
