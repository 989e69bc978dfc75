# SPDX-License-Identifier: Apache-2.0
"""Jobs are joined with the GPUs they hold, and contradictions between sources show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from slurmscope.node.cgroup.names import ProcessPlace, job_of
from slurmscope.node.gpu.attribution import GpuHold, JobGpuUse, Source, find_held_use, map_gpus, sum_up_jobs
from slurmscope.node.gpu.records import Gpu, GpuProcess, GpuReason, Gpus
from slurmscope.node.job_use import JobKey, JobUse, NodeJobs

ENVIRONMENT, DEVICES, PROCESSES = Source.ENVIRONMENT, Source.DEVICES, Source.PROCESSES
X, Y = JobKey(job_id=7), JobKey(job_id=8)
UID = {X: 1007, Y: 1008}


def process(pid: int, key: JobKey | None = None, *, uid: int = 0, memory_bytes: int | None = 100) -> GpuProcess:
    place = ProcessPlace() if key is None else ProcessPlace(job_id=key.job_id, node_name=key.node_name, sluid=key.sluid)
    return GpuProcess(pid=pid, memory_bytes=memory_bytes, uid=uid, place=place)


def gpu(index: int, *processes: GpuProcess, **changes: object) -> Gpu:
    plain = Gpu(index=index, minor=index, uuid=f"GPU-{index}", processes=processes, utilization_ratio=index / 10)
    return replace(plain, **changes)  # type: ignore[arg-type]


def job(key: JobKey, gpus: str = "", *, has_ended: bool = False, shards: str = "") -> JobUse:
    named = {"SLURM_JOB_GPUS": gpus, "SLURM_SHARDS_ON_NODE": shards}
    environment = {name: text for name, text in named.items() if text}
    return JobUse(key=key, uid=UID.get(key), has_ended=has_ended, environment=environment)


def join(gpus: list[Gpu], *jobs: JobUse, allowed: Mapping[JobKey, set[str]] | None = None) -> dict[object, GpuHold]:
    by_kernel = {key: frozenset(uuids) for key, uuids in (allowed or {}).items()}
    mapping = map_gpus(Gpus(devices=tuple(gpus), allowed=by_kernel), NodeJobs(jobs=jobs))
    return {(hold.job, hold.gpu.index): hold for hold in mapping.holds}


def facts(hold: GpuHold) -> tuple[set[Source], bool, bool, bool | None]:
    return set(hold.sources), hold.is_held, hold.is_disputed, hold.is_idle


def test_all_sources_that_agree_are_named() -> None:
    holds = join([gpu(0, process(1, X)), gpu(1)], job(X, "0"), allowed={X: {"GPU-0"}})

    assert [(X, 0)] == list(holds)
    assert ({ENVIRONMENT, DEVICES, PROCESSES}, True, False, False) == facts(holds[X, 0])


@pytest.mark.parametrize(("told", "allowed", "source"), [("1", None, ENVIRONMENT), ("", {X: {"GPU-1"}}, DEVICES)])
def test_gpu_held_without_a_process_is_idle(told: str, allowed: dict[JobKey, set[str]] | None, source: Source) -> None:
    holds = join([gpu(0), gpu(1)], job(X, told), allowed=allowed)

    assert {(X, 1): ({source}, True, False, True)} == {pair: facts(hold) for pair, hold in holds.items()}


def test_unknown_processes_leave_idleness_open() -> None:
    assert join([gpu(0, processes=None)], job(X, "0"))[X, 0].is_idle is None


def test_process_that_may_be_the_jobs_makes_it_busy() -> None:
    unplaced = replace(process(1), place=None)
    moved_away = process(2, uid=UID[X])
    display = process(3, uid=0)
    neighbour = process(4, Y, uid=UID[Y])

    idle = [
        join([gpu(0, one)], job(X, "0"), job(Y))[X, 0].is_idle for one in (unplaced, moved_away, display, neighbour)
    ]

    assert [False, False, True, True] == idle


def test_process_outside_of_what_the_environment_names_is_disputed() -> None:
    holds = join([gpu(0), gpu(1, process(1, X))], job(X, "0"))

    assert ({ENVIRONMENT}, True, False, True) == facts(holds[X, 0])
    assert ({PROCESSES}, True, True, False) == facts(holds[X, 1])


def test_kernel_overrules_the_environment() -> None:
    holds = join([gpu(0), gpu(1)], job(X, "0,1"), allowed={X: {"GPU-0"}})

    assert ({ENVIRONMENT, DEVICES}, True, False, True) == facts(holds[X, 0])
    assert ({ENVIRONMENT}, False, True, True) == facts(holds[X, 1])


def test_process_on_a_gpu_that_the_kernel_denies_is_reported_and_disputed() -> None:
    holds = join([gpu(0), gpu(1, process(1, X))], job(X), allowed={X: {"GPU-0"}})

    assert ({PROCESSES}, True, True, False) == facts(holds[X, 1])


def test_environment_that_leaves_out_a_gpu_of_the_kernel_is_disputed() -> None:
    holds = join([gpu(0), gpu(1)], job(X, "0"), allowed={X: {"GPU-0", "GPU-1"}})

    assert ({DEVICES}, True, True, True) == facts(holds[X, 1])


def test_forged_environment_does_not_take_a_gpu_from_its_holder() -> None:
    holds = join([gpu(0, process(1, X))], job(X, "0"), job(Y, "0"))

    assert ({ENVIRONMENT, PROCESSES}, True, False, False) == facts(holds[X, 0])
    assert ({ENVIRONMENT}, False, True, True) == facts(holds[Y, 0])


def test_intruder_and_holder_are_both_disputed() -> None:
    holds = join([gpu(0, process(1, Y))], job(X, "0"), job(Y))

    assert ({ENVIRONMENT}, True, True, True) == facts(holds[X, 0])
    assert ({PROCESSES}, True, True, False) == facts(holds[Y, 0])


def test_jobs_that_share_a_gpu_do_not_contradict() -> None:
    holds = join([gpu(0, process(1, Y))], job(X, "0", shards="2"), job(Y, "0", shards="2"))

    assert [(True, False), (True, False)] == [(hold.is_held, hold.is_disputed) for hold in holds.values()]


@pytest.mark.parametrize("sign", ["SLURM_SHARDS_ON_NODE", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"])
def test_sign_of_sharing_takes_no_gpu_from_a_job_without_one(sign: str) -> None:
    forger = JobUse(key=Y, uid=UID[Y], environment={"SLURM_JOB_GPUS": "0", sign: "1"})
    holds = join([gpu(0, process(1, X))], job(X, "0"), forger)

    assert ({ENVIRONMENT, PROCESSES}, True, False, False) == facts(holds[X, 0])
    assert ({ENVIRONMENT}, False, True, True) == facts(holds[Y, 0])


def test_two_jobs_known_by_their_processes_alone_do_not_contradict() -> None:
    holds = join([gpu(0, process(1, X), process(2, Y))], job(X), job(Y))

    assert [False, False] == [hold.is_disputed for hold in holds.values()]


def test_ended_job_holds_nothing() -> None:
    assert {} == join([gpu(0, process(1, X))], job(X, "0", has_ended=True), allowed={X: {"GPU-0"}})


def test_instance_is_held_and_its_parent_is_not() -> None:
    parent = gpu(1, uuid="GPU-parent", has_instances=True)
    instance = gpu(1, process(1, X), uuid="MIG-1", parent_uuid="GPU-parent", gpu_instance=3, compute_instance=0)

    holds = map_gpus(Gpus(devices=(parent, instance)), NodeJobs(jobs=(job(X),))).holds

    assert [("MIG-1", "3/0")] == [(hold.gpu.uuid, hold.gpu.mig) for hold in holds]


def test_gpu_with_a_problem_is_held_by_no_job() -> None:
    assert {} == join([Gpu(index=0, problem=GpuReason.LOST)], job(X, "0"))


def test_names_that_mean_no_gpu_are_counted() -> None:
    mapping = map_gpus(Gpus(devices=(gpu(0),)), NodeJobs(jobs=(job(X, "0,5,6"), job(Y, "0"))))
    assert {X: 2} == mapping.unresolved


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (ProcessPlace(job_id=7), JobKey(job_id=7)),
        (ProcessPlace(job_id=7, node_name="n2"), JobKey(job_id=7, node_name="n2")),
        (ProcessPlace(sluid="sB"), JobKey(job_id=9, sluid="sB")),
        (ProcessPlace(job_id=10), None),
        (ProcessPlace(sluid="sC"), None),
        (ProcessPlace(), None),
        (None, None),
    ],
)
def test_process_belongs_to_the_job_of_its_cgroup(place: ProcessPlace | None, expected: JobKey | None) -> None:
    jobs = [
        JobKey(job_id=7),
        JobKey(job_id=7, node_name="n2"),
        JobKey(job_id=9, sluid="sA"),
        JobKey(job_id=9, sluid="sB"),
    ]
    assert expected == job_of(place, jobs)


def sums(gpus: list[Gpu], *jobs: JobUse) -> dict[JobKey, JobGpuUse]:
    return sum_up_jobs(find_held_use(map_gpus(Gpus(devices=tuple(gpus)), NodeJobs(jobs=jobs))))


def test_memory_and_utilization_of_a_job_are_summed_up() -> None:
    gpus = [gpu(1, process(1, X), process(2)), gpu(4, process(3, X), process(4, X, memory_bytes=11)), gpu(5)]

    assert {X: JobGpuUse(memory_bytes=211, utilization_ratio=0.25)} == sums(gpus, job(X, "1,4"))


def test_job_that_holds_idle_gpus_uses_no_memory() -> None:
    assert {X: JobGpuUse(memory_bytes=0, utilization_ratio=0.2)} == sums([gpu(2)], job(X, "2"))


@pytest.mark.parametrize(
    "one",
    [
        gpu(0, processes=None),
        gpu(0, replace(process(1), place=None)),
        gpu(0, process(1, X, memory_bytes=None)),
    ],
)
def test_memory_that_is_not_all_known_is_absent(one: Gpu) -> None:
    assert sums([one], job(X, "0"))[X].memory_bytes is None


def test_utilization_of_a_shared_gpu_is_attributed_to_no_job() -> None:
    found = sums([gpu(0, process(1, X), process(2, Y)), gpu(1)], job(X, "0"), job(Y, "0,1"))

    assert {X: JobGpuUse(memory_bytes=100), Y: JobGpuUse(memory_bytes=100)} == found


def test_utilization_that_one_gpu_does_not_report_is_absent() -> None:
    assert sums([gpu(0), gpu(1, utilization_ratio=None)], job(X, "0,1"))[X].utilization_ratio is None
