# SPDX-License-Identifier: Apache-2.0
"""Watch the GPUs that a command uses, in a thread of its own: a driver may take long to answer, or hang."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from slurmscope.jobs.traced_run import GpuSample, GpuUse
from slurmscope.node.cgroup.names import ProcessPlace
from slurmscope.node.gpu.attribution import GpuHold, Source
from slurmscope.node.gpu.counters import JobCounters
from slurmscope.node.gpu.drm import DrmReader, read_driver
from slurmscope.node.gpu.nvml import NvmlProcess, NvmlReader, NvmlUnavailable, child_environment
from slurmscope.node.gpu.reader import DriverCounters
from slurmscope.node.gpu.records import DriverSample, Gpu, GpuReason, JobGpuCounters
from slurmscope.node.job_use import JobKey
from slurmscope.run.runner import Runner

FIRST_SECONDS = 1.0
"""Seconds between samples, until there are so many that every second one is dropped."""
MOST_SAMPLES = 1000
ENERGY_SECONDS = 0.5
"""Shortest time between readings of the energy counters: as often as samples are taken."""

_OURS, _OTHERS = JobKey(job_id=1), JobKey(job_id=2)
"""The command, and all other processes: they share GPUs as jobs do."""
_OTHERS_RATIO = 0.05
"""Processes of others that work less than this, such as that of a screen, share nothing."""


class CommandGpus:
    """Add up what a command uses of each GPU. Not thread-safe."""

    def __init__(self) -> None:
        self._steady = DriverCounters()
        self._counters = JobCounters()
        self._earlier: dict[str, Gpu] = {}
        self._used: set[str] = set()

    def add(self, devices: Iterable[Gpu], pids: Collection[int], time_seconds: float) -> GpuSample:
        """Add what happened since the last reading; a GPU that was used once stays in the sample."""
        gpus = [_place(self._steady.go_on(gpu, time_seconds), pids) for gpu in devices if gpu.is_holdable]
        self._used |= {gpu.uuid for gpu in gpus if _sizes(gpu)}
        counters = self._counters.add(gpus, [_hold(gpu, key) for gpu in gpus for key in self._holders(gpu)])
        self._earlier = {gpu.uuid: gpu for gpu in gpus}
        return GpuSample(
            time_seconds,
            tuple(_use(gpu, counters[_OURS, gpu.uuid]) for gpu in gpus if (_OURS, gpu.uuid) in counters),
        )

    def _holders(self, gpu: Gpu) -> Iterator[JobKey]:
        if gpu.uuid in self._used:
            yield _OURS
            if _do_others_work(gpu, self._earlier.get(gpu.uuid)):
                yield _OTHERS


def _place(gpu: Gpu, pids: Collection[int]) -> Gpu:
    """Return a GPU whose processes know whether they are of the command."""
    if gpu.processes is None:
        return gpu
    ours, others = ProcessPlace(job_id=_OURS.job_id), ProcessPlace(job_id=_OTHERS.job_id)
    placed = (replace(process, place=ours if process.pid in pids else others) for process in gpu.processes)
    return replace(gpu, processes=tuple(placed))


def _sizes(gpu: Gpu) -> list[int | None]:
    """Return the memory of each process of the command on a GPU."""
    found = gpu.processes or ()
    return [process.memory_bytes for process in found if process.place and process.place.job_id == _OURS.job_id]


def _do_others_work(gpu: Gpu, earlier: Gpu | None) -> bool:
    """Return whether others work on a GPU; so they may, where the driver knows no process that does."""
    others = [process.pid for process in gpu.processes or () if process.place and process.place.job_id != _OURS.job_id]
    if not others or gpu.counters is None:
        return bool(others)
    passed = gpu.counters.since(earlier.counters if earlier else None)
    least = _OTHERS_RATIO * passed.seconds
    if not any(passed.by_pid.values()):
        return passed.totals.get("busy", 0.0) > least
    return sum(passed.by_pid.get(pid, 0.0) for pid in others) > least


def _hold(gpu: Gpu, key: JobKey) -> GpuHold:
    sources = frozenset({Source.PROCESSES})
    return GpuHold(job=key, gpu=gpu, sources=sources, is_held=True, is_disputed=False, is_idle=None)


def _use(gpu: Gpu, counters: JobGpuCounters) -> GpuUse:
    sizes = _sizes(gpu)
    known = [size for size in sizes if size is not None]
    return GpuUse(
        gpu=str(gpu.index),
        mig=gpu.mig,
        uuid=gpu.uuid,
        model=gpu.model,
        memory_bytes=sum(known) if len(known) == len(sizes) and gpu.processes is not None else None,
        memory_size_bytes=gpu.memory_size_bytes,
        totals=counters.totals,
        is_shared=counters.is_estimate,
    )


class GpuWatch:
    """Sample the GPUs of a command from its start to its end."""

    def __init__(
        self,
        read: Callable[[], DriverSample],
        pids: Callable[[], Collection[int]],
        clock: Callable[[], float],
    ) -> None:
        self._read = read
        self._pids = pids
        self._clock = clock
        self._pause_seconds = FIRST_SECONDS
        self._is_over = threading.Event()
        self._gpus = CommandGpus()
        self._samples: list[GpuSample] = []
        self._thread = threading.Thread(target=self._run, name="gpu-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> tuple[GpuSample, ...]:
        """Return the samples since a GPU was first used; a driver that hangs is not waited for."""
        self._is_over.set()
        return tuple(sample for sample in self._samples if sample.gpus)

    def _run(self) -> None:
        while not self._is_over.wait(self._pause_seconds):
            try:
                devices = self._read().devices
            except NvmlUnavailable as failure:
                if failure.why is GpuReason.DRIVER_NOT_LOADED:  # and the kernel knows no GPU either
                    return
                continue
            sample = self._gpus.add(devices, self._pids(), self._clock())
            if not self._is_over.is_set():
                self._add(sample)

    def _add(self, sample: GpuSample) -> None:
        """Keep samples evenly spread over the run; their totals lose nothing."""
        if len(self._samples) >= MOST_SAMPLES:
            self._samples = self._samples[::2]
            self._pause_seconds *= 2
        self._samples = [*self._samples, sample]


def watch_gpus(runner: Runner, environment: Mapping[str, str]) -> GpuWatch:
    """Return a watch on the GPUs of this machine; the process that calls the driver is not part of the command."""
    child = child_environment(environment)
    nvml = NvmlReader(lambda: runner.start_helper(lambda: NvmlProcess(child)), energy_seconds=ENERGY_SECONDS)
    drm = DrmReader(sysfs=Path("/sys"), procfs=Path("/proc"), pids=lambda: {None: runner.pids()})
    return GpuWatch(partial(read_driver, nvml, drm), runner.pids, runner.now)
