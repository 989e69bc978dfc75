# SPDX-License-Identifier: Apache-2.0
"""Events of the processor are counted per job, with a fake kernel and, where it may, with the real one."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from slurmscope.exporter.collector import NoOptions
from slurmscope.node.hardware.collector import COLLECTOR, HardwareUse, collect
from slurmscope.node.hardware.reader import (
    EVENTS,
    MOST_DESCRIPTORS,
    MOST_JOBS,
    SOFTWARE,
    CgroupEvents,
    Event,
    HardwareReader,
    find_cores,
    read_traffic,
)
from slurmscope.node.job_use import WHOLE_JOB, CgroupUse, CpuUse, JobKey, JobUse, NodeJobs
from tests.requirements import refuse

GIB = 1 << 30


class Kernel:
    """Count in files, one for each event and core: value, time enabled, time running."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.errors: dict[str, int] = {}
        self.opened: dict[tuple[str, int], int] = {}

    def open(self, event: Event, folder: int, core: int) -> int:
        assert Path(f"/proc/self/fd/{folder}").is_dir()
        if error := self.errors.get(event.name):
            raise OSError(error, os.strerror(error))
        self.count(event.name, core, 0, 0, 0)
        self.opened[event.name, core] = os.open(self.folder / f"{event.name}-{core}", os.O_RDONLY)
        return self.opened[event.name, core]

    def count(self, name: str, core: int, value: int, enabled: int, running: int) -> None:
        (self.folder / f"{name}-{core}").write_bytes(struct.pack("=QQQ", value, enabled, running))

    def read(self, events: CgroupEvents) -> dict[str, float]:
        """Read from the beginning of each file: such descriptors have no position."""
        for descriptor in self.opened.values():
            os.lseek(descriptor, 0, os.SEEK_SET)
        return events.read()


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


@pytest.fixture
def opened(kernel: Kernel, tmp_path: Path) -> Iterator[Callable[[], CgroupEvents]]:
    every: list[CgroupEvents] = []

    def begin() -> CgroupEvents:
        every.append(CgroupEvents(tmp_path, (0, 5), EVENTS, kernel.open))
        return every[-1]

    yield begin
    for each in every:
        each.close()


def test_events_are_summed_over_the_cores(kernel: Kernel, opened: Callable[[], CgroupEvents]) -> None:
    events = opened()
    kernel.count("instructions", 0, 700, 1000, 1000)
    kernel.count("instructions", 5, 300, 500, 500)

    assert {"instructions": 1000.0, "cycles": 0.0, "cache_misses": 0.0} == kernel.read(events)
    assert [(event.name, core) for event in EVENTS for core in (0, 5)] == [*kernel.opened]
    assert 6 == events.descriptors
    kernel.count("instructions", 0, 900, 2000, 2000)
    assert 1200.0 == kernel.read(events)["instructions"]


def test_what_a_shared_counter_missed_is_estimated_and_never_falls(
    kernel: Kernel, opened: Callable[[], CgroupEvents]
) -> None:
    events = opened()
    kernel.count("cycles", 0, 100, 4000, 1000)  # counted for a quarter of the time

    assert 400.0 == kernel.read(events)["cycles"]
    kernel.count("cycles", 0, 100, 9000, 1000)  # and not at all
    assert 400.0 == kernel.read(events)["cycles"]
    kernel.count("cycles", 0, 150, 10_000, 2000)
    assert 400.0 + 50 * 6 == pytest.approx(kernel.read(events)["cycles"], abs=1e-9)


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (errno.ENOENT, "no_hardware"),
        (errno.EOPNOTSUPP, "no_hardware"),
        (errno.EACCES, "not_permitted"),
        (errno.EBADF, "no_cgroup"),
        (errno.EMFILE, "too_many"),
        (errno.EIO, "failed"),
    ],
)
def test_kernel_that_refuses_says_why(
    kernel: Kernel, opened: Callable[[], CgroupEvents], error: int, result: str
) -> None:
    kernel.errors = dict.fromkeys((event.name for event in EVENTS), error)
    events = opened()

    assert (result, 0, {}) == (events.result, events.descriptors, events.read())


def test_event_that_the_hardware_lacks_is_left_out(kernel: Kernel, opened: Callable[[], CgroupEvents]) -> None:
    kernel.errors = {"cache_misses": errno.ENOENT}
    events = opened()

    assert ("counted", {"instructions", "cycles"}) == (events.result, {*kernel.read(events)})


def test_cgroup_that_is_gone_is_none(tmp_path: Path, kernel: Kernel) -> None:
    assert "no_cgroup" == CgroupEvents(tmp_path / "gone", (0,), EVENTS, kernel.open).result


def test_job_whose_cores_change_is_counted_on_the_new_ones(
    kernel: Kernel, opened: Callable[[], CgroupEvents], tmp_path: Path
) -> None:
    events = opened()  # on cores 0 and 5
    kernel.count("cycles", 0, 700, 1000, 1000)
    kernel.count("cycles", 5, 300, 500, 500)
    for descriptor in kernel.opened.values():
        os.lseek(descriptor, 0, os.SEEK_SET)

    assert events.follow(tmp_path, (5, 6))
    del kernel.opened["cycles", 0], kernel.opened["instructions", 0], kernel.opened["cache_misses", 0]
    assert {5, 6} == {core for _, core in kernel.opened}
    assert 6 == events.descriptors
    kernel.count("cycles", 5, 350, 600, 600)
    kernel.count("cycles", 6, 40, 100, 100)
    # What core 0 counted stays, and nothing is counted twice.
    assert 700 + 350 + 40 == kernel.read(events)["cycles"]


def test_event_that_cannot_be_counted_on_new_cores_is_left_out(
    kernel: Kernel, opened: Callable[[], CgroupEvents], tmp_path: Path
) -> None:
    events = opened()
    kernel.errors = {"cycles": errno.EMFILE}
    for descriptor in kernel.opened.values():
        os.lseek(descriptor, 0, os.SEEK_SET)

    assert events.follow(tmp_path, (0, 5, 6))
    assert (6, "counted") == (events.descriptors, events.result)
    kernel.opened = {key: descriptor for key, descriptor in kernel.opened.items() if key[0] != "cycles"}
    assert {"instructions", "cache_misses"} == {*kernel.read(events)}


def test_job_that_was_requeued_is_counted_anew(tmp_path: Path, kernel: Kernel) -> None:
    for name in ("other", "cgroup"):  # so that the second one gets another number
        (tmp_path / name).mkdir()
    kernel.count("cycles", 0, 0, 0, 0)
    jobs = [job(1, (0,), str(tmp_path / "cgroup"))]
    made: list[CgroupEvents] = []

    def begin(path: Path, cores: Collection[int]) -> CgroupEvents:
        made.append(CgroupEvents(path, cores, EVENTS, kernel.open))
        return made[-1]

    reader = HardwareReader(lambda: jobs, tmp_path, begin)
    reader.read()
    (tmp_path / "cgroup").rename(tmp_path / "old")
    (tmp_path / "other").rename(tmp_path / "cgroup")
    reader.read()

    assert [0, 3] == [each.descriptors for each in made]
    reader.close()


def job(number: int, cores: tuple[int, ...] | None, cgroup: str = "/sys") -> JobUse:
    groups = {WHOLE_JOB: CgroupUse(cpu=CpuUse(cores=cores))}
    return JobUse(key=JobKey(number), uid=1000, groups=groups, cgroup=cgroup)


class Opened(CgroupEvents):
    """Count nothing, with so many descriptors."""

    def __init__(self, _path: Path, cores: object) -> None:
        assert isinstance(cores, tuple)
        self.result, self.is_closed = "counted", False
        self._number = len(EVENTS) * len(cores)

    def follow(self, _path: Path, cores: tuple[int, ...]) -> bool:
        self._number = len(EVENTS) * len(cores)
        return True

    @property
    def descriptors(self) -> int:
        return self._number

    def read(self) -> dict[str, float]:
        return {"cycles": float(self._number)}

    def close(self) -> None:
        self.is_closed = True


def test_jobs_and_descriptors_are_bounded(tmp_path: Path) -> None:
    jobs = [job(number, (0, 1)) for number in range(MOST_JOBS + 6)]
    reader = HardwareReader(lambda: jobs, tmp_path, Opened)

    assert (MOST_JOBS, 6) == tuple(reader.read().results["perf", result] for result in ("counted", "too_many"))
    jobs = [job(1, tuple(range(128)))] * 1 + [job(number, tuple(range(128))) for number in range(2, 9)]
    use = HardwareReader(lambda: jobs, tmp_path, Opened).read()
    assert 4 == use.results["perf", "counted"] == MOST_DESCRIPTORS // (3 * 128)
    assert {JobKey(number): {"cycles": 384.0} for number in range(1, 5)} == use.events


def test_job_of_which_nothing_is_counted_takes_no_room(tmp_path: Path) -> None:
    jobs = [job(number, (0, 1), f"{tmp_path}/gone") for number in range(MOST_JOBS + 6)]

    assert MOST_JOBS + 6 == HardwareReader(lambda: jobs, tmp_path).read().results["perf", "no_cgroup"]


def test_job_that_ended_makes_room(tmp_path: Path) -> None:
    made: list[Opened] = []

    def begin(path: Path, cores: object) -> Opened:
        made.append(Opened(path, cores))
        return made[-1]

    jobs = [job(1, (0,)), job(2, (1,)), job(3, (2,), cgroup="")]
    reader = HardwareReader(lambda: jobs, tmp_path, begin)
    assert {
        ("perf", "counted"): 2,
        ("perf", "no_cgroup"): 1,
        ("resctrl", "counted"): 0,
        ("resctrl", "no_group"): 3,
    } == (reader.read().results)
    jobs.pop(0)
    assert [JobKey(2)] == [*reader.read().events]
    assert [True, False] == [each.is_closed for each in made]
    reader.close()
    assert made[1].is_closed


def test_job_that_gets_too_many_cores_is_not_counted_any_more(tmp_path: Path) -> None:
    jobs = [job(1, (0,)), job(2, (1,))]
    reader = HardwareReader(lambda: jobs, tmp_path, Opened)
    assert {JobKey(1), JobKey(2)} == reader.read().events.keys()
    jobs[0] = job(1, tuple(range(MOST_DESCRIPTORS // len(EVENTS))))
    use = reader.read()

    assert ([JobKey(2)], 1) == ([*use.events], use.results["perf", "too_many"])
    jobs[0] = job(1, (0, 1))
    assert {"cycles": 6.0} == reader.read().events[JobKey(1)]


def test_job_that_is_not_confined_may_run_on_all_cores() -> None:
    assert ((3, 4), tuple(range(os.cpu_count() or 1))) == (find_cores(job(1, (3, 4))), find_cores(job(1, None)))


def write_group(group: Path, **domains: tuple[str, str]) -> None:
    for domain, (total, local) in domains.items():
        folder = group / "mon_data" / domain
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in (("mbm_total_bytes", total), ("mbm_local_bytes", local), ("llc_occupancy", "77")):
            (folder / name).write_text(f"{text}\n")


def test_traffic_is_the_sum_over_memory_domains(tmp_path: Path) -> None:
    group = tmp_path / "fs/resctrl/mon_groups/job_7"
    write_group(group, mon_L3_00=("5000", "4000"), mon_L3_01=("300", "100"))
    jobs = [job(7, (0,)), job(8, (1,))]
    use = HardwareReader(lambda: jobs, tmp_path, Opened).read()

    assert {JobKey(7): {"mbm_total_bytes": 5300, "mbm_local_bytes": 4100}} == use.traffic
    assert (1, 1) == (use.results["resctrl", "counted"], use.results["resctrl", "no_group"])


@pytest.mark.parametrize("text", ["Unavailable", "Error", "Unassigned", "", "-1", "9" * 40])
def test_traffic_of_which_a_part_is_unknown_is_not_measured(tmp_path: Path, text: str) -> None:
    write_group(tmp_path, mon_L3_00=("5000", "4000"), mon_L3_01=(text, "100"))

    assert {"mbm_local_bytes": 4100} == read_traffic(tmp_path)
    assert {} == read_traffic(tmp_path / "none")


def test_counts_are_exported_by_job() -> None:
    use = HardwareUse(
        events={JobKey(7): {"cycles": 5.0}},
        traffic={JobKey(7): {"mbm_total_bytes": 3 * GIB}},
        results={("perf", "counted"): 1, ("resctrl", "no_group"): 0},
    )
    families = collect(NoOptions(), hardware=use, node_jobs=NodeJobs(host_name="n1"))

    found = {family.metric.name: dict(family.samples) for family in families}
    assert {metric.name for metric in COLLECTOR.metrics} == found.keys()
    assert {("7", "n1", "cycles"): 5.0} == found["jobs_hardware_events_total"]
    assert {("7", "n1"): 3 * GIB} == found["jobs_memory_traffic_bytes_total"]
    assert {} == found["jobs_memory_local_traffic_bytes_total"]
    assert {("n1", "perf", "counted"): 1, ("n1", "resctrl", "no_group"): 0} == found["slurm_node_hardware_jobs"]


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """Make a cgroup of version 2 for one process."""
    roots = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
    root = next((root for root in roots if (root / "cgroup.subtree_control").exists()), None)
    folder = None if root is None else root / f"slurmscope-perf-{os.getpid()}"
    try:
        if folder is not None:
            folder.mkdir()
    except OSError:
        folder = None
    if folder is None:
        refuse("no cgroup of version 2 can be made here")
    yield folder
    folder.rmdir()


def test_kernel_counts_the_time_of_a_cgroup_as_its_own_statistics_do(cgroup: Path) -> None:
    clock = Event("cpu_clock", SOFTWARE, 0)  # in nanoseconds, and there on any machine
    events = CgroupEvents(cgroup, range(os.cpu_count() or 1), (clock,))
    if events.result == "not_permitted":
        refuse("perf_event_open is not permitted here")
    assert "counted" == events.result
    work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
    subprocess.run(["sh", "-c", f"echo $$ >{cgroup}/cgroup.procs && {work}"], check=True, timeout=120)

    counted = events.read()["cpu_clock"] / 1e9
    events.close()
    used = int((cgroup / "cpu.stat").read_text().split()[1]) / 1e6
    assert used > 0.05
    assert counted == pytest.approx(used, rel=0.1)


def test_hardware_of_this_machine_counts_or_says_why_not(cgroup: Path) -> None:
    events = CgroupEvents(cgroup, (0,))

    assert events.result in {"counted", "no_hardware", "not_permitted"}
    assert (events.result == "counted") == bool(events.descriptors)
    events.close()
