# SPDX-License-Identifier: Apache-2.0
"""What a GPU did is its holder's; where jobs share it, their parts add up to the exact total."""

from __future__ import annotations

from slurmscope.node.gpu.attribution import GpuHold, Source
from slurmscope.node.gpu.job_counters import JobCounters
from slurmscope.node.gpu.records import Gpu, GpuCounters, GpuProcess, JobGpuCounters, ProcessPlace
from slurmscope.node.job_use import JobKey

ONE, TWO = JobKey(job_id=1), JobKey(job_id=2)
UUID = "GPU-a"


def gpu(
    seconds: float,
    busy: float,
    by_pid: dict[int, float],
    energy: float | None = None,
    places: dict[int, int] | None = None,
) -> Gpu:
    """Return a GPU whose processes 11 and 12 belong to jobs 1 and 2; 99 is outside of jobs."""
    jobs = places or {11: 1, 12: 2}
    return Gpu(
        index=0,
        uuid=UUID,
        energy_joules=energy,
        counters=GpuCounters(source="gpm", seconds=seconds, totals={"busy": busy}, by_pid=by_pid),
        processes=tuple(GpuProcess(pid=pid, place=ProcessPlace(job_id=jobs.get(pid))) for pid in by_pid),
    )


def held(by: JobKey, device: Gpu) -> GpuHold:
    return GpuHold(
        job=by, gpu=device, sources=frozenset({Source.DEVICES}), is_held=True, is_disputed=False, is_idle=False
    )


def add(counters: JobCounters, device: Gpu, *jobs: JobKey) -> dict[int | None, JobGpuCounters]:
    found = counters.add([device], [held(job, device) for job in jobs])
    return {job.job_id: of_job for (job, _), of_job in found.items()}


def test_only_holder_gets_all_of_it() -> None:
    counters = JobCounters()
    add(counters, gpu(10, 4, {11: 3.0}, energy=1000.0), ONE)

    found = add(counters, gpu(70, 40, {11: 30.0}, energy=1600.0), ONE)

    # Also what a process did that has ended since; the driver's energy of before the job is not the job's.
    assert {1: JobGpuCounters(totals={"busy": 40.0, "energy": 600.0})} == found


def test_parts_of_sharing_jobs_add_up_to_the_total() -> None:
    counters = JobCounters()
    add(counters, gpu(10, 0, {11: 0.0, 12: 0.0}, energy=0.0), ONE, TWO)

    found = add(counters, gpu(70, 42, {11: 28.0, 12: 14.0}, energy=900.0), ONE, TWO)

    assert {1: {"busy": 28.0, "energy": 600.0}, 2: {"busy": 14.0, "energy": 300.0}} == {
        job: of_job.totals for job, of_job in found.items()
    }
    assert all(of_job.is_estimate for of_job in found.values())


def test_idle_gpu_costs_its_holders_the_same() -> None:
    counters = JobCounters()
    add(counters, gpu(10, 0, {}, energy=0.0), ONE, TWO)
    found = add(counters, gpu(20, 0, {}, energy=100.0), ONE, TWO)
    assert [50.0, 50.0] == [of_job.totals["energy"] for of_job in found.values()]


def test_new_holder_does_not_get_what_the_one_before_did() -> None:
    counters = JobCounters()
    add(counters, gpu(10, 0, {11: 0.0}), ONE)
    found = add(counters, gpu(20, 8, {12: 2.0}), TWO)
    assert {2: {"busy": 2.0}} == {job: of_job.totals for job, of_job in found.items()}


def test_counters_of_a_restarted_child_count_on() -> None:
    counters = JobCounters()
    add(counters, gpu(100, 50, {11: 50.0}), ONE)
    found = add(counters, gpu(10, 5, {11: 5.0}), ONE)
    assert 55.0 == found[1].totals["busy"]


def test_server_of_mps_leaves_the_parts_of_jobs_unknown() -> None:
    counters = JobCounters()
    add(counters, gpu(10, 0, {11: 0.0, 12: 0.0, 99: 0.0}), ONE, TWO)
    assert {} == add(counters, gpu(20, 8, {11: 0.0, 12: 0.0, 99: 8.0}), ONE, TWO)


def test_job_that_holds_nothing_any_more_is_dropped() -> None:
    counters = JobCounters()
    add(counters, gpu(10, 5, {11: 5.0}), ONE)
    assert {} == add(counters, gpu(20, 5, {}))
    assert {1: {"busy": 1.0}} == {
        job: of_job.totals for job, of_job in add(counters, gpu(30, 6, {11: 1.0}), ONE).items()
    }


def test_gpu_without_counters_is_skipped() -> None:
    bare = Gpu(index=0, uuid=UUID)
    assert {} == JobCounters().add([bare], [held(ONE, bare)])
