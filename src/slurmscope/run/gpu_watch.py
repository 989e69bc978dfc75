# SPDX-License-Identifier: Apache-2.0
"""Watch the GPUs that a command uses, in a thread of its own: a driver may take long to answer, or hang."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import fmean

from slurmscope.jobs.traced_run import GpuSample
from slurmscope.node.gpu.nvml import NvmlProcess, NvmlReader, NvmlUnavailable, child_environment
from slurmscope.node.gpu.records import Gpu
from slurmscope.run.runner import Runner

FIRST_SECONDS = 1.0
"""Seconds between samples, until there are so many that every second one is dropped."""
MOST_SAMPLES = 1000


class GpuWatch:
    """Sample the GPUs of a command from its start to its end."""

    def __init__(
        self,
        source: NvmlReader,
        pids: Callable[[], Collection[int]],
        clock: Callable[[], float],
    ) -> None:
        self._source = source
        self._pids = pids
        self._clock = clock
        self._pause_seconds = FIRST_SECONDS
        self._is_over = threading.Event()
        self._samples: list[GpuSample] = []
        self._thread = threading.Thread(target=self._run, name="gpu-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> tuple[GpuSample, ...]:
        """Return the samples so far; a driver that hangs is not waited for."""
        self._is_over.set()
        return tuple(self._samples)

    def _run(self) -> None:
        while not self._is_over.wait(self._pause_seconds):
            try:
                devices = self._source.read().devices
            except NvmlUnavailable:
                continue
            sample = share_of(devices, self._pids(), self._clock())
            if sample.gpus and not self._is_over.is_set():
                self._add(sample)

    def _add(self, sample: GpuSample) -> None:
        """Keep samples evenly spread over the run, so that their mean is that of the run."""
        if len(self._samples) >= MOST_SAMPLES:
            self._samples = self._samples[::2]
            self._pause_seconds *= 2
        self._samples = [*self._samples, sample]


def share_of(devices: Sequence[Gpu], pids: Collection[int], time_seconds: float) -> GpuSample:
    """Return what these processes use of all GPUs."""
    used = [gpu for gpu in devices if any(process.pid in pids for process in gpu.processes or ())]
    ratios = [gpu.utilization_ratio for gpu in used if gpu.utilization_ratio is not None]
    sizes = [
        process.memory_bytes
        for gpu in used
        for process in gpu.processes or ()
        if process.pid in pids and process.memory_bytes is not None
    ]
    return GpuSample(time_seconds, len(used), fmean(ratios) if ratios else None, sum(sizes) if sizes else None)


def watch_gpus(runner: Runner, environment: Mapping[str, str]) -> GpuWatch:
    """Return a watch on the GPUs of this machine; the process that calls the driver is not part of the command."""
    child = child_environment(environment)
    reader = NvmlReader(lambda: runner.start_helper(lambda: NvmlProcess(child)))
    return GpuWatch(reader, runner.pids, runner.now)
