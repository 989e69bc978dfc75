# SPDX-License-Identifier: Apache-2.0
"""Only the GPUs on which the command has processes count, and a driver that fails or hangs costs these alone."""

from __future__ import annotations

import itertools
import threading

import pytest

from slurmscope.jobs.traced_run import GpuSample
from slurmscope.node.gpu.nvml import NvmlReader, NvmlSample, NvmlUnavailable
from slurmscope.node.gpu.records import Gpu, GpuProcess, GpuReason
from slurmscope.run import gpu_watch as module
from slurmscope.run.gpu_watch import GpuWatch, share_of
from tests.processes import until

GIB = 1 << 30


def gpu(index: int, ratio: float | None, **memory_by_pid: int | None) -> Gpu:
    processes = tuple(GpuProcess(pid=int(pid[1:]), memory_bytes=size) for pid, size in memory_by_pid.items())
    return Gpu(index=index, uuid=f"GPU-{index}", utilization_ratio=ratio, processes=processes)


DEVICES = (gpu(0, 0.5, p10=GIB, p99=4 * GIB), gpu(1, 0.9, p99=GIB), gpu(2, 0.1, p11=2 * GIB), Gpu(index=3))


def test_share_is_that_of_the_processes_of_the_command() -> None:
    assert GpuSample(5.0, 2, 0.3, 3 * GIB) == share_of(DEVICES, {10, 11}, 5.0)
    assert GpuSample(5.0, 0, None, None) == share_of(DEVICES, {12}, 5.0)


def test_what_the_driver_does_not_report_is_not_measured() -> None:
    assert GpuSample(5.0, 1, None, None) == share_of((gpu(0, None, p10=None),), {10}, 5.0)


class Source(NvmlReader):
    """Answer with these, then wait."""

    def __init__(self, *answers: tuple[Gpu, ...] | None) -> None:
        self._answers = iter(answers)
        self.is_done = threading.Event()

    def read(self) -> NvmlSample:
        for answer in self._answers:
            if answer is None:
                raise NvmlUnavailable(GpuReason.TIMEOUT, "no answer")
            return NvmlSample(taken_at=0.0, devices=answer)
        self.is_done.set()
        threading.Event().wait(60)
        raise NvmlUnavailable(GpuReason.TIMEOUT, "no answer")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_SECONDS", 0.001)


def watch(*answers: tuple[Gpu, ...] | None) -> tuple[GpuSample, ...]:
    source, clock = Source(*answers), itertools.count(1)
    watched = GpuWatch(source, lambda: {10}, lambda: float(next(clock)))
    watched.start()
    until(source.is_done.is_set)
    return watched.end()


def test_failed_readings_and_moments_without_gpus_are_skipped() -> None:
    samples = watch(DEVICES, None, (gpu(0, 0.7, p77=GIB),), (gpu(0, 0.7, p10=GIB),))

    assert [(1, 0.5), (1, 0.7)] == [(sample.gpus, sample.utilization_ratio) for sample in samples]


def test_samples_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SAMPLES", 8)

    samples = watch(*[DEVICES] * 50)

    assert len(samples) <= 8
    assert 50.0 == samples[-1].time_seconds
