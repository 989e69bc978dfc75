# SPDX-License-Identifier: Apache-2.0
"""What a GPU did is its holder's; where jobs share it, their parts add up to the exact total."""

from __future__ import annotations

from dataclasses import replace

from slurmscope.node.cgroup.names import ProcessPlace
from slurmscope.node.gpu.attribution import GpuHold, Source
from slurmscope.node.gpu.counters import JobCounters
from slurmscope.node.gpu.records import Absence, Gpu, GpuCounters, GpuProcess, GpuReason, JobGpuCounters
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


def add(
    counters: JobCounters,
    device: Gpu,
    *jobs: JobKey,
    running: tuple[JobKey, ...] = (),
    ended: tuple[JobKey, ...] = (),
) -> dict[int | None, JobGpuCounters]:
    found = counters.add([device], [held(job, device) for job in jobs], running=(*jobs, *running), ended=ended)
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


def test_job_that_ended_has_what_it_did_after_the_last_reading() -> None:
    counters = JobCounters()
    add(counters, gpu(10, 4, {11: 4.0}, energy=0.0), ONE)
    add(counters, gpu(40, 30, {11: 30.0}, energy=900.0), ONE)

    # Its process is gone.
    last = add(counters, gpu(55, 38, {}, energy=1200.0), ended=(ONE,))

    expected = {1: JobGpuCounters(totals={"busy": 38.0, "energy": 1200.0})}
    assert expected == last
    # The GPU is idle since: as long as the job is served, so are its last numbers.
    assert expected == add(counters, gpu(70, 38, {}, energy=2500.0), ended=(ONE,))
    assert {} == add(counters, gpu(85, 38, {}, energy=3000.0))


def test_job_that_ended_has_what_its_successor_did_not_do() -> None:
    counters = JobCounters()
    add(counters, gpu(10, 10, {11: 10.0}, energy=0.0), ONE)

    found = add(counters, gpu(30, 26, {12: 4.0}, energy=800.0), TWO, ended=(ONE,))

    # Of 16 busy seconds since, the process of the second job had 4.
    assert JobGpuCounters(totals={"busy": 22.0, "energy": 600.0}, is_estimate=True) == found[1]
    assert JobGpuCounters(totals={"busy": 4.0, "energy": 200.0}) == found[2]


def test_part_of_an_ended_job_is_not_guessed() -> None:
    counters = JobCounters()
    add(counters, gpu(10, 10, {11: 6.0, 12: 4.0}), ONE, TWO)
    add(counters, gpu(20, 20, {11: 12.0, 12: 8.0}), ONE, TWO)

    # Another job holds the GPU still: whose the rest was is not known.
    found = add(counters, gpu(30, 30, {12: 14.0}), TWO, ended=(ONE,))

    assert 12.0 == found[1].totals["busy"]
    assert 14.0 == found[2].totals["busy"]
    # Nor is it where the driver has no times of the processes of a successor.
    add(counters, gpu(40, 40, {12: 24.0}), TWO)
    assert 24.0 == add(counters, gpu(50, 50, {11: 0.0}), ONE, ended=(TWO,))[2].totals["busy"]


def test_next_run_of_a_requeued_job_begins_at_zero() -> None:
    counters = JobCounters()
    add(counters, gpu(10, 10, {11: 10.0}), ONE)
    add(counters, gpu(20, 20, {}), ended=(ONE,))

    assert 5.0 == add(counters, gpu(30, 25, {11: 5.0}), ONE, ended=(ONE,))[1].totals["busy"]


def test_job_that_lets_go_of_a_gpu_for_a_while_keeps_its_totals() -> None:
    counters = JobCounters()
    add(counters, gpu(10, 10, {11: 10.0}), ONE)

    assert 12.0 == add(counters, gpu(20, 12, {}), running=(ONE,))[1].totals["busy"]
    assert 12.0 == add(counters, gpu(30, 12, {}), running=(ONE,))[1].totals["busy"]
    assert 15.0 == add(counters, gpu(40, 15, {11: 3.0}), ONE)[1].totals["busy"]
    # It ends without the GPU.
    add(counters, gpu(50, 15, {}), running=(ONE,))
    assert 15.0 == add(counters, gpu(60, 15, {}), ended=(ONE,))[1].totals["busy"]


def test_job_without_counters_leaves_none_behind() -> None:
    bare = Gpu(index=0, uuid=UUID)
    counters = JobCounters()

    assert Absence.DRIVER is add(counters, bare, ONE)[1].absence
    assert {} == add(counters, bare, running=(ONE,))


def test_lost_gpu_has_no_numbers_of_its_ended_job() -> None:
    counters = JobCounters()
    add(counters, gpu(10, 10, {11: 10.0}), ONE)

    assert {} == counters.add([Gpu(index=0, problem=GpuReason.LOST)], [], ended=[ONE])


def test_gpu_that_cannot_be_read_once_takes_no_totals_away_and_gives_none_of_others() -> None:
    counters = JobCounters()
    add(counters, gpu(10, 4, {11: 4.0}, energy=0.0), ONE)
    add(counters, gpu(40, 30, {11: 30.0}, energy=900.0), ONE)
    unreadable = [Gpu(index=0, problem=GpuReason.FAILED)]

    assert {} == counters.add(unreadable, [], running=[ONE])
    found = add(counters, gpu(70, 50, {11: 50.0}, energy=1500.0), ONE)
    assert {1: {"busy": 50.0, "energy": 1500.0}} == {job: of_job.totals for job, of_job in found.items()}

    # Meanwhile the GPU is another job's, whose process did 4 of the next 10 busy seconds.
    assert {} == counters.add(unreadable, [], running=[ONE, TWO])
    found = add(counters, gpu(100, 60, {12: 4.0}, energy=1500.0), TWO)
    assert 4.0 == found[2].totals["busy"]

    # Nothing is kept of jobs that are gone.
    assert {} == counters.add(unreadable, [])
    assert {2: 1.0} == {job: of_job.totals["busy"] for job, of_job in add(counters, gpu(1, 1, {12: 1.0}), TWO).items()}


def test_counters_of_a_restarted_child_count_on() -> None:
    counters = JobCounters()
    add(counters, gpu(100, 50, {11: 50.0}), ONE)
    found = add(counters, gpu(10, 5, {11: 5.0}), ONE)
    assert 55.0 == found[1].totals["busy"]


def shared(busy: dict[int, float], *, clients: tuple[int, ...] = (), seconds: float = 20.0) -> Gpu:
    device = gpu(seconds, 8, busy)
    processes = tuple(replace(each, is_mps_client=each.pid in clients) for each in device.processes or ())
    return replace(device, processes=processes)


def test_server_of_mps_leaves_the_parts_of_jobs_unknown() -> None:
    counters = JobCounters()
    add(counters, gpu(10, 0, {11: 0.0, 12: 0.0, 99: 0.0}), ONE, TWO)

    found = add(counters, shared({11: 0.0, 12: 0.0, 99: 8.0}, clients=(11, 12)), ONE, TWO)

    assert {1: (Absence.MPS, {}), 2: (Absence.MPS, {})} == {
        job: (of_job.absence, of_job.totals) for job, of_job in found.items()
    }


def test_server_of_mps_works_for_its_only_job() -> None:
    counters = JobCounters()
    add(counters, gpu(10, 0, {11: 0.0, 12: 0.0, 99: 0.0}), ONE, TWO)

    found = add(counters, shared({11: 0.0, 12: 2.0, 99: 6.0}, clients=(11,)), ONE, TWO)

    assert {1: {"busy": 6.0}, 2: {"busy": 2.0}} == {job: of_job.totals for job, of_job in found.items()}


def test_parts_are_unknown_where_the_work_was_done_outside_of_jobs_or_is_of_no_known_process() -> None:
    for busy, absence in (
        ({11: 1.0, 12: 1.0, 99: 6.0}, Absence.OTHER_PROCESSES),
        ({11: 0.0, 12: 0.0}, Absence.PROCESS_TIMES),
    ):
        counters = JobCounters()
        add(counters, gpu(10, 0, dict.fromkeys(busy, 0.0)), ONE, TWO)
        found = add(counters, shared(busy), ONE, TWO)
        assert {1: (absence, {}), 2: (absence, {})} == {
            job: (of_job.absence, of_job.totals) for job, of_job in found.items()
        }


def test_totals_go_on_after_a_time_in_which_the_part_was_unknown() -> None:
    counters = JobCounters()
    add(counters, gpu(10, 3, {11: 3.0}), ONE)
    add(counters, shared({11: 3.0, 12: 0.0}, seconds=20.0), ONE, TWO)

    found = add(counters, gpu(30, 12, {11: 7.0, 12: 0.0}), ONE, TWO)

    assert 7.0 == found[1].totals["busy"]


def test_job_that_holds_nothing_any_more_is_dropped() -> None:
    counters = JobCounters()
    add(counters, gpu(10, 5, {11: 5.0}), ONE)
    assert {} == add(counters, gpu(20, 5, {}))
    assert {1: {"busy": 1.0}} == {
        job: of_job.totals for job, of_job in add(counters, gpu(30, 6, {11: 1.0}), ONE).items()
    }


def test_gpu_without_counters_has_none_and_says_why() -> None:
    bare = Gpu(index=0, uuid=UUID)
    assert {1: JobGpuCounters(absence=Absence.DRIVER)} == add(JobCounters(), bare, ONE)


def test_energy_is_counted_where_nothing_else_is() -> None:
    counters = JobCounters()
    device = replace(gpu(10, 0, {}, energy=100.0), counters=GpuCounters(source="none", seconds=0.0))
    add(counters, device, ONE)

    found = add(counters, replace(device, energy_joules=150.0), ONE)

    assert {1: JobGpuCounters(totals={"energy": 50.0}, absence=Absence.DRIVER)} == found


def board(joules: float, *busy: float | None) -> list[Gpu]:
    """Return a GPU with instances of 71 and 18 GiB that were busy for so long."""
    instances = [
        Gpu(
            index=0,
            uuid=f"MIG-{size}",
            parent_uuid=UUID,
            memory_size_bytes=size,
            counters=None if each is None else GpuCounters(source="gpm", seconds=100.0, totals={"busy": each}),
        )
        for size, each in zip((71, 18), busy, strict=True)
    ]
    return [Gpu(index=0, uuid=UUID, has_instances=True, energy_joules=joules), *instances]


def add_board(counters: JobCounters, joules: float, *busy: float | None) -> dict[int | None, tuple[float, Absence]]:
    devices = board(joules, *busy)
    found = counters.add(devices, [held(job, gpu) for job, gpu in zip((ONE, TWO), devices[1:], strict=True)])
    return {job.job_id: (used.totals["energy"], used.absence) for (job, _), used in found.items()}


def test_energy_of_a_gpu_is_split_among_its_instances() -> None:
    counters = JobCounters()
    add_board(counters, 1000.0, 10.0, 10.0)
    # 71 GiB for 20 s and 18 GiB for 10 s: 1420 and 180 of 1600 parts of 1600 J.
    busy = add_board(counters, 2600.0, 30.0, 20.0)
    # Nobody worked: by size, 71 and 18 of 89 J.
    idle = add_board(counters, 2689.0, 30.0, 20.0)

    assert {1: (1420.0, Absence.NONE), 2: (180.0, Absence.NONE)} == busy
    assert {1: (1491.0, Absence.NONE), 2: (198.0, Absence.NONE)} == idle


def test_energy_is_split_by_size_where_an_instance_counts_nothing() -> None:
    counters = JobCounters()
    add_board(counters, 0.0, 0.0, None)
    assert {1: (71.0, Absence.NONE), 2: (18.0, Absence.DRIVER)} == add_board(counters, 89.0, 5.0, None)
