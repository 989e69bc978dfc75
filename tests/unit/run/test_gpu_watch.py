# SPDX-License-Identifier: Apache-2.0
"""Only the GPUs on which the command has processes count, and a driver that fails or hangs costs these alone."""

from __future__ import annotations

import itertools
import threading

import pytest

from slurmscope.jobs.traced_run import GpuSample, GpuUse
from slurmscope.node.gpu.nvml import NvmlReader, NvmlUnavailable
from slurmscope.node.gpu.records import DriverSample, Gpu, GpuCounters, GpuProcess, GpuReason
from slurmscope.run import gpu_watch as module
from slurmscope.run.gpu_watch import CommandGpus, GpuWatch
from tests.processes import until

GIB = 1 << 30
H200 = {"busy": 0.9, "sm_active": 0.8, "tensor_active": 0.5}


def gpu(
    index: int, seconds: float, energy: float = 0.0, busy: dict[int, float] | None = None, **memory_by_pid: int | None
) -> Gpu:
    """Return a GPU that has counted so long: at work for the same shares of the time all along."""
    processes = tuple(GpuProcess(pid=int(pid[1:]), memory_bytes=size) for pid, size in memory_by_pid.items())
    totals = {name: ratio * seconds for name, ratio in H200.items()}
    return Gpu(
        index=index,
        uuid=f"GPU-{index}",
        energy_joules=energy,
        memory_size_bytes=80 * GIB,
        processes=processes,
        counters=GpuCounters(source="gpm", seconds=seconds, totals=totals, by_pid=busy or {}),
    )


def one(sample: GpuSample) -> GpuUse:
    (use,) = sample.gpus
    return use


def test_all_that_a_gpu_did_since_the_command_opened_it_is_that_of_the_command() -> None:
    gpus = CommandGpus()

    assert () == gpus.add([gpu(0, 10, 500.0), gpu(1, 10, 500.0)], {10}, 10.0).gpus
    use = one(gpus.add([gpu(0, 20, 6500.0, p10=GIB, p11=2 * GIB), gpu(1, 20, 600.0)], {10, 11}, 20.0))

    assert ("0", "GPU-0", 3 * GIB, 80 * GIB, False) == (
        use.gpu, use.uuid, use.memory_bytes, use.memory_size_bytes, use.is_shared,
    )  # fmt: skip
    # Its first 10 seconds were those of whoever had it before.
    expected = {"busy": 9.0, "sm_active": 8.0, "tensor_active": 5.0, "energy": 6000.0}
    assert pytest.approx(expected) == dict(use.totals)


def test_totals_go_on_while_one_program_of_the_command_follows_the_other() -> None:
    gpus = CommandGpus()
    gpus.add([gpu(0, 10, p10=GIB)], {10}, 10.0)
    gpus.add([gpu(0, 20)], {9}, 20.0)

    use = one(gpus.add([gpu(0, 30, p11=GIB)], {9, 11}, 30.0))

    assert pytest.approx(27.0) == use.totals["busy"]


def test_gpu_that_others_use_is_split_by_the_time_of_processes() -> None:
    gpus = CommandGpus()
    gpus.add([gpu(0, 10, busy={10: 6.0, 99: 3.0}, p10=GIB, p99=4 * GIB)], {10}, 10.0)

    use = one(gpus.add([gpu(0, 20, busy={10: 12.0, 99: 6.0}, p10=GIB, p99=4 * GIB)], {10}, 20.0))

    assert (GIB, True) == (use.memory_bytes, use.is_shared)
    assert pytest.approx({"busy": 12.0, "sm_active": 32 / 3, "tensor_active": 20 / 3, "energy": 0.0}) == dict(
        use.totals
    )


def test_process_that_only_shows_a_screen_shares_nothing() -> None:
    gpus = CommandGpus()

    use = one(gpus.add([gpu(0, 10, busy={10: 8.8, 99: 0.2}, p10=GIB, p99=GIB)], {10}, 10.0))

    assert pytest.approx(9.0) == use.totals["busy"]
    assert not use.is_shared


def test_nothing_is_known_where_the_driver_names_no_process_that_worked() -> None:
    gpus = CommandGpus()

    use = one(gpus.add([gpu(0, 10, busy={}, p10=GIB, p99=GIB)], {10}, 10.0))

    assert ({}, GIB) == (use.totals, use.memory_bytes)


def test_what_the_driver_does_not_report_is_not_measured() -> None:
    bare = Gpu(index=0, uuid="GPU-0", processes=(GpuProcess(pid=10),))

    use = one(CommandGpus().add([bare, Gpu(index=1, problem=GpuReason.LOST)], {10}, 5.0))

    assert (None, None, {}) == (use.memory_bytes, use.memory_size_bytes, use.totals)


class Source(NvmlReader):
    """Answer with these, then wait."""

    def __init__(self, *answers: tuple[Gpu, ...] | None) -> None:
        self._answers = iter(answers)
        self.is_done = threading.Event()

    def read(self) -> DriverSample:
        for answer in self._answers:
            if answer is None:
                raise NvmlUnavailable(GpuReason.TIMEOUT, "no answer")
            return DriverSample(taken_at=0.0, devices=answer)
        self.is_done.set()
        threading.Event().wait(60)
        raise NvmlUnavailable(GpuReason.TIMEOUT, "no answer")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_SECONDS", 0.001)


def watch(*answers: tuple[Gpu, ...] | None) -> tuple[GpuSample, ...]:
    source, clock = Source(*answers), itertools.count(1)
    watched = GpuWatch(source.read, lambda: {10}, lambda: float(next(clock)))
    watched.start()
    until(source.is_done.is_set)
    return watched.end()


def test_failed_readings_and_moments_before_the_first_use_are_skipped() -> None:
    samples = watch((gpu(0, 1, p77=GIB),), None, (gpu(0, 3, p10=GIB),), (gpu(0, 4),))

    assert [2.0, 3.0] == [sample.time_seconds for sample in samples]
    assert pytest.approx([1.8, 2.7]) == [one(sample).totals["busy"] for sample in samples]


def test_samples_are_bounded_and_their_totals_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SAMPLES", 8)

    samples = watch(*((gpu(0, float(second), p10=GIB),) for second in range(1, 51)))

    assert len(samples) <= 8
    assert 50.0 == samples[-1].time_seconds
    assert pytest.approx(45.0) == one(samples[-1]).totals["busy"]


def test_nothing_is_watched_where_there_are_no_gpus() -> None:
    readings: list[str] = []

    def read() -> DriverSample:
        readings.append("read")
        raise NvmlUnavailable(GpuReason.DRIVER_NOT_LOADED, "no NVIDIA driver is loaded")

    watched = GpuWatch(read, lambda: {10}, lambda: 1.0)
    watched.start()
    until(lambda: not watched.is_running)

    assert ["read"] == readings
    assert () == watched.end()
