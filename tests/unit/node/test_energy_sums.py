# SPDX-License-Identifier: Apache-2.0
"""Whatever the meter is, the parts of all jobs and of no job add up to what it counted, at every reading."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from slurmscope.node.energy import NodeEnergy
from slurmscope.node.energy_meters import EnergyReader
from slurmscope.node.gpu.records import Gpu, Gpus, JobGpuCounters
from slurmscope.node.job_use import JobKey, JobUse, NodeJobs
from tests.unit.node.test_energy import A, B, job
from tests.unit.node.test_energy_meters import write, zone

STEP_SECONDS = 10.0
WATTS = (100, 300, 200, 200, 50, 120, 500)
# The meter's joules at each reading: the mean of two powers for ten seconds.
JOULES = (0, 2000, 4500, 6500, 7750, 8600, 11700)
GPU_JOULES = (70, 70, 570, 900, 900, 950, 2100)
"""The GPU was used before the agent started."""
RAPL_RANGE_JOULES = 5000
C = JobKey(3)
# A runs from the beginning and ends after the third reading; B is only seen ended; C starts in an interval.
JOBS: tuple[tuple[JobUse, ...], ...] = (
    (job(A, 5),),
    (job(A, 9),),
    (job(A, 20), job(B, 3, has_ended=True)),
    (job(A, 22, has_ended=True), job(B, 3, has_ended=True), job(C, 1, 1)),
    (job(C, 6, 1),),
    (job(C, 2, 1),),  # a counter that fell
    (job(C, 30, None),),
)
OF_GPUS: tuple[dict[JobKey, float], ...] = ({A: 0}, {A: 0}, {A: 400}, {A: 600, C: 20}, {C: 20}, {C: 20}, {C: 900})


def cray(reader: EnergyReader, root: Path, step: int, now: float) -> None:
    del reader
    write(root / "sys/cray/pm_counters", energy=f"{800_000 + JOULES[step]} J {now:.0f} us", cpu_energy="1 J 1 us")


def hwmon(reader: EnergyReader, root: Path, step: int, now: float) -> None:
    del reader, now
    write(root / "sys/class/hwmon/hwmon2", name="power_meter", power1_average=WATTS[step] * 10**6)


def ipmi(reader: EnergyReader, root: Path, step: int, now: float) -> None:
    del root
    reader._ipmi._last = (now, WATTS[step])  # as its thread does


def rapl(reader: EnergyReader, root: Path, step: int, now: float) -> None:
    """Have two packages and memory; one package starts again from 0 at the end of its range."""
    del reader, now
    for number, name, joules in (("0", "package-0", 4900 + JOULES[step] // 2), ("1", "package-1", JOULES[step] // 4)):
        zone(root / "sys", number, name, joules % RAPL_RANGE_JOULES * 10**6)
        write(root / f"sys/class/powercap/intel-rapl:{number}", max_energy_range_uj=RAPL_RANGE_JOULES * 10**6)
    zone(root / "sys", "0:0", "core", JOULES[step] * 10**6 % 10**9)  # a part of the package
    zone(root / "sys", "0:1", "dram", (JOULES[step] - JOULES[step] // 2 - JOULES[step] // 4) * 10**6)


def nothing(reader: EnergyReader, root: Path, step: int, now: float) -> None:
    """Be a node whose GPUs are all that is measured."""


def of_node(step: int) -> float:
    """The meter has all; what GPUs are ahead of it would be missing later, which does not happen here."""
    return JOULES[step]


def of_processors(step: int) -> float:
    return JOULES[step] + GPU_JOULES[step] - GPU_JOULES[0]


def of_gpus(step: int) -> float:
    return GPU_JOULES[step] - GPU_JOULES[0]


@dataclass
class Node:
    """Be a node at one of the readings."""

    root: Path
    step: int = 0
    reader: EnergyReader = field(init=False)

    def __post_init__(self) -> None:
        self.reader = EnergyReader(self.root, self.root / "proc", self.jobs, self.gpus, self.now)

    def now(self) -> float:
        return 5000 + STEP_SECONDS * self.step

    def jobs(self) -> NodeJobs:
        return NodeJobs(jobs=JOBS[self.step])

    def gpus(self) -> Gpus:
        counters = {(key, "GPU-1"): JobGpuCounters(totals={"energy": n}) for key, n in OF_GPUS[self.step].items()}
        return Gpus(devices=(Gpu(index=0, uuid="GPU-1", energy_joules=GPU_JOULES[self.step]),), job_counters=counters)

    def readings(self, write_meter: Callable[[EnergyReader, Path, int, float], None]) -> Iterator[NodeEnergy]:
        for self.step in range(len(WATTS)):
            write(self.root / "proc", stat=f"cpu {500 * self.step} 0 0 0 0 0 0 0\ncpu0 1\ncpu1 1\ncpu2 1\ncpu3 1")
            write_meter(self.reader, self.root, self.step, self.now())
            found = self.reader.read()
            assert found
            yield found


@pytest.mark.parametrize(
    ("write_meter", "source", "expected"),
    [
        (cray, "cray", of_node),
        (hwmon, "hwmon", of_node),
        (ipmi, "ipmi", of_node),
        (rapl, "rapl", of_processors),
        (nothing, "gpu", of_gpus),
    ],
)
def test_parts_of_jobs_and_of_none_are_what_the_meter_counted(
    write_meter: Callable[[EnergyReader, Path, int, float], None],
    source: str,
    expected: Callable[[int], float],
    tmp_path: Path,
) -> None:
    node = Node(tmp_path)
    with closing(node.reader):
        found = list(node.readings(write_meter))

    assert [source] * len(found) == [energy.source for energy in found]
    assert [expected(step) for step in range(len(WATTS))] == pytest.approx([energy.total_joules for energy in found])
    for energy in found:
        assert energy.total_joules == pytest.approx(energy.jobs_joules + energy.no_job_joules)
    of_jobs = 0.0
    for before, now in pairwise(found):
        of_jobs += sum(_joules(now, key) - _joules(before, key) for key in now.jobs)
        assert now.jobs_joules == pytest.approx(of_jobs)
        assert now.jobs_joules >= before.jobs_joules
        assert now.no_job_joules >= before.no_job_joules
    assert 0 < found[-1].jobs_joules < found[-1].total_joules


def _joules(energy: NodeEnergy, key: JobKey) -> float:
    used = energy.jobs.get(key)
    return used.gpu + used.base + used.cpu if used else 0.0
