# SPDX-License-Identifier: Apache-2.0
"""Check that the energy of jobs and of no job adds up to that of the node, with hand-worked parts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.exporter.collector import NoOptions
from slurmscope.node.energy import COLLECTOR, Covers, EnergySplit, JobEnergy, MeterReading, Moment, NodeEnergy, collect
from slurmscope.node.gpu.records import Gpu, Gpus, JobGpuCounters
from slurmscope.node.job_use import CgroupUse, CpuUse, GroupKey, JobKey, JobUse, NodeJobs

A, B = JobKey(1), JobKey(2)


def job(key: JobKey, cpu_seconds: float | None, cores: int | None = 2, *, has_ended: bool = False) -> JobUse:
    allowed = None if cores is None else tuple(range(cores))
    use = CgroupUse(cpu=CpuUse(total_seconds=cpu_seconds, cores=allowed))
    return JobUse(key=key, has_ended=has_ended, groups={GroupKey(): use})


def meter(rise: float | None, covers: Covers = Covers.NODE) -> MeterReading:
    return MeterReading(source="test", covers=covers, rise_joules=rise)


def gpus(joules: float | None, **of_jobs: float) -> Gpus:
    keys = {"a": A, "b": B}
    counters = {(keys[name], "GPU-1"): JobGpuCounters(totals={"energy": used}) for name, used in of_jobs.items()}
    return Gpus(devices=(Gpu(index=0, uuid="GPU-1", energy_joules=joules),), job_counters=counters)


def moment(at: float, found: MeterReading | None, *jobs: JobUse, busy: float | None = None, **more: Gpus) -> Moment:
    return Moment(at_seconds=at, meter=found, jobs=jobs, cores=4, busy_seconds=busy, **more)


def split(*moments: Moment) -> NodeEnergy:
    splitter = EnergySplit()
    results = [splitter.add(each) for each in moments]
    assert results[-1] is not None
    return results[-1]


def test_node_without_meter_and_gpus_has_no_energy() -> None:
    assert EnergySplit().add(moment(0, None)) is None
    assert [] == list(collect(NoOptions(), energy=None, node_jobs=NodeJobs()))


def test_floor_is_shared_by_allocated_cores_and_the_rest_by_cpu_time() -> None:
    # 10 s at 40 W are the floor; then 10 s at 100 W: 400 J of floor, 600 J above it.
    found = split(
        moment(0, meter(None), job(A, 0), busy=0),
        moment(10, meter(400), job(A, 0), busy=0),
        # 15 of 20 CPU seconds are the job's, which holds 2 of 4 cores.
        moment(20, meter(1000), job(A, 15), busy=20),
    )

    assert JobEnergy(base=200 + 200, cpu=450) == found.jobs[A]
    assert (1400, 850, 550, 40, 100) == (
        found.total_joules,
        found.jobs_joules,
        found.no_job_joules,
        found.floor_watts,
        found.watts,
    )


def test_job_that_begins_or_ends_in_an_interval_has_half_of_its_floor() -> None:
    found = split(
        moment(0, meter(None), job(A, 0)),
        moment(10, meter(400), job(A, 0, has_ended=True), job(B, 0, 1)),
        moment(20, meter(400), job(A, 0, has_ended=True), job(B, 0, 1)),
    )

    assert {A: JobEnergy(base=100), B: JobEnergy(base=50 + 100)} == found.jobs


def test_job_without_cpuset_holds_the_cores_it_keeps_busy() -> None:
    found = split(moment(0, meter(None), job(A, 0, None)), moment(10, meter(400), job(A, 10, None)))

    assert JobEnergy(base=100) == found.jobs[A]


def test_gpus_of_a_job_are_its_own_and_are_part_of_the_meter_of_the_node() -> None:
    before = moment(0, meter(None), job(A, 0), gpus=gpus(1000, a=0))
    after = moment(10, meter(900), job(A, 0), gpus=gpus(1500, a=300))
    found = split(before, after)

    # 900 J of the meter less 500 J of the GPU, of which 200 J were used while no job held it.
    assert JobEnergy(gpu=300, base=200) == found.jobs[A]
    assert (900, 500, 400) == (found.total_joules, found.gpu_joules, found.no_job_joules)


def test_time_in_which_the_meter_could_not_be_read_counts_at_its_next_reading() -> None:
    late = replace(meter(None), is_late=True)
    found = split(
        moment(0, meter(None), job(A, 0), gpus=gpus(1000, a=0)),
        moment(10, meter(900), job(A, 0), gpus=gpus(1500, a=300)),
        moment(20, late, job(A, 0), gpus=gpus(2000, a=800)),
        moment(30, meter(1800), job(A, 0), gpus=gpus(2500, a=1300)),
    )

    # 2700 J, of which the GPU used 1500 J; the floor of 40 W for 30 s is what is left.
    assert (2700, 1500, 40) == (found.total_joules, found.gpu_joules, found.floor_watts)
    assert JobEnergy(gpu=1300, base=600) == found.jobs[A]


def test_unknown_energy_of_gpus_is_absent_and_no_zero() -> None:
    unknown = Gpus(job_counters={(A, "GPU-1"): JobGpuCounters(), (B, "GPU-2"): JobGpuCounters(totals={"energy": 0.0})})
    jobs = (job(A, 0), job(B, 0))
    found = split(moment(0, meter(None), *jobs), moment(10, meter(100), *jobs, gpus=unknown))
    nodes = NodeJobs(jobs=(JobUse(key=A), JobUse(key=B)), host_name="n1")
    families = {f.metric.name: dict(f.samples) for f in collect(NoOptions(), energy=found, node_jobs=nodes)}

    parts = {labels[:3] for labels in families["jobs_energy_joules_total"]}
    rest = {(job_id, "n1", part) for job_id in "12" for part in ("base", "cpu")}
    assert {("2", "n1", "gpu"), *rest} == parts


def test_gpus_are_added_to_a_meter_of_processors_and_stand_alone_without_any() -> None:
    def total(first: MeterReading | None, second: MeterReading | None) -> float:
        return split(moment(0, first, gpus=gpus(0)), moment(10, second, gpus=gpus(500))).total_joules

    processors = Covers.PROCESSORS
    assert [600, 500] == [total(meter(None, processors), meter(100, processors)), total(None, None)]


def test_gpus_ahead_of_the_meter_are_settled_later() -> None:
    moments = [
        moment(0, meter(None), gpus=gpus(0)),
        moment(10, meter(100), gpus=gpus(300)),
        moment(20, meter(500), gpus=gpus(350)),
    ]

    assert [300, 600] == [split(*moments[:2]).total_joules, split(*moments).total_joules]


def test_lost_meter_and_reset_gpu_count_nothing() -> None:
    moments = [moment(0, meter(None), gpus=gpus(900)), moment(10, meter(None), gpus=gpus(100))]

    assert 0 == split(*moments).total_joules
    assert 0 == split(moment(5, meter(1)), moment(5, meter(70))).total_joules


JOULES = st.one_of(st.none(), st.floats(0, 1e5))
JOBS = st.lists(
    st.builds(
        job,
        st.builds(JobKey, st.integers(1, 5)),
        st.one_of(st.none(), st.floats(0, 1e4)),
        st.one_of(st.none(), st.integers(0, 8)),
        has_ended=st.booleans(),
    ),
    max_size=5,
    unique_by=lambda job: job.key,
)
Step = tuple[int, float | None, float | None, list[JobUse], float, dict[str, float]]
HELD = st.dictionaries(st.sampled_from("ab"), st.floats(0, 1e5))
MOMENTS = st.lists(st.tuples(st.integers(1, 100), JOULES, JOULES, JOBS, st.floats(0, 1e5), HELD), max_size=8)


@given(MOMENTS, st.sampled_from([Covers.NODE, Covers.PROCESSORS]))
def test_parts_add_up_to_the_meter_at_every_moment_and_never_fall(steps: list[Step], covers: Covers) -> None:
    splitter, at, before = EnergySplit(), 0, NodeEnergy(source="", covers=covers)
    of_gpus = rest = ahead = 0.0
    last_gpu: float | None = None
    for number, (seconds, rise, gpu, jobs, busy, held) in enumerate(steps):
        at += seconds
        found = splitter.add(moment(at, meter(rise, covers), *jobs, busy=busy, gpus=gpus(gpu, **held)))
        assert found is not None
        gpu_rise = 0.0 if gpu is None or last_gpu is None else max(0.0, gpu - last_gpu)
        last_gpu = last_gpu if gpu is None else gpu
        of_gpus += gpu_rise
        if number and rise is not None:
            # A meter of the node includes GPUs: what they are ahead of it is taken off what follows.
            ahead += rise - (gpu_rise if covers is Covers.NODE else 0.0)
            rest = max(rest, ahead)
        assert of_gpus + rest == pytest.approx(found.total_joules, abs=1e-3)
        assert of_gpus + rest == pytest.approx(found.jobs_joules + found.no_job_joules, abs=1e-3)
        assert found.no_job_joules >= before.no_job_joules
        # A job that is forgotten keeps its part in the sum of jobs.
        gained = sum(_joules(used) - _joules(before.jobs.get(key, JobEnergy())) for key, used in found.jobs.items())
        assert gained == pytest.approx(found.jobs_joules - before.jobs_joules, abs=1e-3)
        assert all(_joules(used) >= _joules(before.jobs.get(key, JobEnergy())) for key, used in found.jobs.items())
        before = found


def _joules(used: JobEnergy) -> float:
    return used.gpu + used.base + used.cpu


def test_metrics_have_the_parts_of_the_running_run() -> None:
    ended, running = JobKey(7, sluid="sA"), JobKey(7, sluid="sB")
    jobs = NodeJobs(jobs=(JobUse(key=ended, has_ended=True), JobUse(key=running), JobUse(key=B)), host_name="n1")
    energy = NodeEnergy(
        source="rapl",
        covers=Covers.PROCESSORS,
        total_joules=9,
        domains={"package-0": 8},
        jobs={ended: JobEnergy(cpu=5), running: JobEnergy(gpu=1, base=2, cpu=3)},
    )
    families = {f.metric.name: dict(f.samples) for f in collect(NoOptions(), energy=energy, node_jobs=jobs)}

    parts = {("7", "n1", part, "processors"): joules for part, joules in (("gpu", 1), ("base", 2), ("cpu", 3))}
    assert parts == families["jobs_energy_joules_total"]
    assert {("n1", "rapl", "processors"): 1} == families["slurm_node_energy_source_info"]
    assert {("n1", "package-0"): 8} == families["slurm_node_energy_domain_joules_total"]
    assert {} == families["slurm_node_power_watts"]
    assert set(families) == {metric.name for metric in COLLECTOR.metrics}


def test_shares_of_a_node_without_a_meter_are_unknown() -> None:
    jobs = NodeJobs(jobs=(JobUse(key=B),), host_name="n1")
    energy = NodeEnergy(source="gpu", covers=Covers.GPUS, total_joules=5, jobs={B: JobEnergy(gpu=5)})
    families = {f.metric.name: dict(f.samples) for f in collect(NoOptions(), energy=energy, node_jobs=jobs)}

    assert {(str(B.job_id), "n1", "gpu", "gpus"): 5} == families["jobs_energy_joules_total"]


def test_lost_gpu_of_a_job_does_not_hide_what_the_others_use() -> None:
    def both(first: float | None, second: float | None, *, holds: str) -> Gpus:
        numbers = {"GPU-1": first, "GPU-2": second}
        return Gpus(
            devices=tuple(Gpu(index=n, uuid=uuid, energy_joules=j) for n, (uuid, j) in enumerate(numbers.items())),
            job_counters={
                (A, uuid): JobGpuCounters(totals={} if joules is None else {"energy": joules - 100})
                for uuid, joules in numbers.items()
                if uuid[-1] in holds
            },
        )

    readings = [
        both(100, 100, holds="12"),
        both(400, 900, holds="12"),
        both(600, None, holds="1"),  # GPU 2 fell off the bus
        both(700, None, holds="12"),  # its part is not known
        both(800, 1000, holds="12"),
    ]
    splitter = EnergySplit()
    found = [splitter.add(moment(10 * n, None, job(A, 0), gpus=one)) for n, one in enumerate(readings)]

    assert [0, 1100, 1300, 1400, 1600] == [energy.jobs[A].gpu for energy in found if energy]
    assert [0] * 5 == [energy.no_job_joules for energy in found if energy]


def test_power_that_was_not_measured_is_absent() -> None:
    lost_meter = split(moment(0, meter(5), gpus=gpus(1)), moment(10, meter(None), gpus=gpus(101)))
    lost_driver = split(moment(0, None, gpus=gpus(1)), moment(10, None))
    idle = split(moment(0, None, gpus=gpus(1)), moment(10, None, gpus=gpus(1)))

    assert [None, None, 0] == [lost_meter.watts, lost_driver.watts, idle.watts]


def test_another_meter_begins_another_series_and_floor() -> None:
    splitter = EnergySplit()
    other = MeterReading(source="other", covers=Covers.PROCESSORS, rise_joules=None)
    found = [
        splitter.add(moment(0, meter(None), job(A, 0))),
        splitter.add(moment(10, meter(400), job(A, 0))),
        splitter.add(moment(20, other, job(A, 0))),
        splitter.add(moment(30, replace(other, rise_joules=800), job(A, 0))),
    ]

    # A report adds up the series of both meters: 200 J, then half of 80 W for 10 s.
    assert [(0, None), (200, 40), (0, None), (400, 80)] == [(e.jobs[A].base, e.floor_watts) for e in found if e]
    assert found[-1]
    assert (1200, 600) == (found[-1].total_joules, found[-1].jobs_joules)
