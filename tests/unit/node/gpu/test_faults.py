# SPDX-License-Identifier: Apache-2.0
"""Errors are counted by GPU and attached to the job that met them; lost GPUs stay on the page."""

from __future__ import annotations

from slurmscope.node.gpu.attribution import GpuHold, Source
from slurmscope.node.gpu.faults import KEPT_SECONDS, MOST_FAULTS, FaultLog, fault_families
from slurmscope.node.gpu.records import Fault, Gpu, GpuFaults, GpuReason, XidEvent
from slurmscope.node.job_use import JobKey

FIRST, SECOND = (JobKey(job_id=number, node_name="n1") for number in (1, 2))
GPU = Gpu(index=0, uuid="GPU-a")
OTHER = Gpu(index=1, uuid="GPU-b")
SLICES = tuple(
    Gpu(index=0, uuid=f"MIG-{number}", parent_uuid="GPU-a", gpu_instance=number, compute_instance=0)
    for number in (3, 9)
)


def hold(job: JobKey, gpu: Gpu, *, is_held: bool = True) -> GpuHold:
    return GpuHold(
        job=job, gpu=gpu, sources=frozenset({Source.PROCESSES}), is_held=is_held, is_disputed=False, is_idle=False
    )


def xid(number: int, at: float = 100.0, *, uuid: str = "GPU-a", gpu_instance: int | None = None) -> XidEvent:
    return XidEvent(uuid=uuid, xid=number, at_seconds=at, gpu_instance=gpu_instance)


def test_errors_add_up_by_gpu_and_number() -> None:
    log = FaultLog()
    log.add([GPU, OTHER], [xid(31, 100.0), xid(31, 130.0), xid(79, uuid="GPU-b")], [], 0.0)
    found = log.add([GPU, OTHER], [xid(31, 120.0)], [], 1.0)
    assert {("0", "", 31): Fault(count=3, last_at=130.0), ("1", "", 79): Fault(count=1, last_at=100.0)} == found.xids
    assert {} == found.job_xids


def test_error_that_ended_a_job_is_that_jobs_and_not_its_successors() -> None:
    log = FaultLog()
    log.add([GPU], [], [hold(FIRST, GPU)], 0.0)
    found = log.add([GPU], [xid(31)], [hold(SECOND, GPU)], 15.0)
    assert {(FIRST, "0", "", 31): Fault(count=1, last_at=100.0)} == found.job_xids


def test_error_of_a_job_that_just_began_is_its_own() -> None:
    found = FaultLog().add([GPU], [xid(13)], [hold(FIRST, GPU), hold(SECOND, GPU, is_held=False)], 0.0)
    assert [(FIRST, "0", "", 13)] == list(found.job_xids)


def test_errors_of_a_job_are_kept_for_a_while_after_its_end() -> None:
    log = FaultLog()
    log.add([GPU], [xid(31)], [hold(FIRST, GPU)], 0.0)
    assert log.add([GPU], [], [], KEPT_SECONDS - 1).job_xids
    found = log.add([GPU], [], [], KEPT_SECONDS)
    assert ({}, [("0", "", 31)]) == (found.job_xids, list(found.xids))


def test_error_of_an_instance_hits_its_job_only() -> None:
    log = FaultLog()
    holds = [hold(FIRST, SLICES[0]), hold(SECOND, SLICES[1])]
    found = log.add([GPU, *SLICES], [xid(43, gpu_instance=9)], holds, 0.0)
    assert ([("0", "9/0", 43)], [(SECOND, "0", "9/0", 43)]) == (list(found.xids), list(found.job_xids))


def test_error_of_a_whole_gpu_hits_the_jobs_of_all_its_instances() -> None:
    holds = [hold(FIRST, SLICES[0]), hold(SECOND, SLICES[1])]
    found = FaultLog().add([GPU, *SLICES], [xid(79)], holds, 0.0)
    assert [("0", "", 79)] == list(found.xids)
    assert {(FIRST, "0", "3/0", 79), (SECOND, "0", "9/0", 79)} == found.job_xids.keys()


def test_error_of_an_unknown_gpu_is_dropped() -> None:
    assert {} == FaultLog().add([GPU], [xid(31, uuid="GPU-x")], [], 0.0).xids


def test_lost_gpu_is_known_by_its_uuid_and_may_come_back() -> None:
    log = FaultLog()
    assert {("0", "GPU-a"): False, ("1", "GPU-b"): False} == log.add([GPU, OTHER], [], [], 0.0).lost
    gone = log.add([GPU, Gpu(index=1, problem=GpuReason.LOST)], [xid(79, uuid="GPU-b")], [], 1.0)
    assert {("0", "GPU-a"): False, ("1", "GPU-b"): True} == gone.lost
    assert [("1", "", 79)] == list(gone.xids)
    assert {("0", "GPU-a"): False, ("1", "GPU-b"): False} == log.add([GPU, OTHER], [], [], 2.0).lost


def test_gpu_that_is_no_longer_listed_is_lost_although_another_has_its_number() -> None:
    log = FaultLog()
    log.add([GPU, OTHER], [], [], 0.0)
    found = log.add([Gpu(index=0, uuid="GPU-b")], [], [], 1.0)
    assert {("0", "GPU-a"): True, ("0", "GPU-b"): False} == found.lost


def test_gpu_lost_before_the_agent_began_has_no_uuid() -> None:
    found = FaultLog().add([GPU, Gpu(index=1, problem=GpuReason.LOST)], [], [], 0.0)
    assert {("0", "GPU-a"): False, ("1", ""): True} == found.lost


def test_removed_instances_are_forgotten() -> None:
    log = FaultLog()
    log.add([GPU, *SLICES], [], [], 0.0)
    log.add([GPU], [], [], 1.0)
    assert [("0", "", 43)] == list(log.add([GPU], [xid(43, gpu_instance=9)], [], 2.0).xids)


def test_number_of_kinds_of_errors_is_limited() -> None:
    found = FaultLog().add([GPU], [xid(number) for number in range(MOST_FAULTS + 9)], [], 0.0)
    assert MOST_FAULTS == len(found.xids)


def test_families_have_the_labels_of_the_job_and_the_words_of_the_driver() -> None:
    faults = GpuFaults(
        xids={("0", "", 31): Fault(count=2, last_at=7.0)},
        job_xids={(FIRST, "0", "", 31): Fault(count=2, last_at=7.0)},
        lost={("1", "GPU-b"): True},
    )
    health = {"ecc_corrected": 5.0, "remapped_uncorrected": 1.0, "remap_pending": 1.0, "nvlink_replay": 4.0}
    health["link_ratio_symbol"] = 7e-9
    gpus = [
        Gpu(index=0, uuid="GPU-a", health={**health, "recovery_action": 4.0, "pcie_replays": 3.0}),
        Gpu(index=1, uuid="GPU-b", health={"recovery_action": 99.0, "fabric_state": 2.0, "fabric_degraded": 1.0}),
    ]

    families = fault_families(faults, gpus, lambda key: (str(key.job_id), key.node_name))

    found = {family.metric.name: dict(family.samples) for family in families if family.samples}
    assert {
        "gpu_xid_errors_total": {("0", "", "31"): 2.0},
        "gpu_xid_last_timestamp_seconds": {("0", "", "31"): 7.0},
        "jobs_gpu_faults_total": {("1", "n1", "0", "", "31"): 2.0},
        "jobs_gpu_fault_timestamp_seconds": {("1", "n1", "0", "", "31"): 7.0},
        "gpu_lost": {("1", "GPU-b"): 1.0},
        "gpu_recovery_action": {("0", "drain_and_reset"): 1.0, ("1", "unknown"): 1.0},
        "gpu_ecc_errors_total": {("0", "corrected"): 5.0},
        "gpu_remapped_rows": {("0", "uncorrected"): 1.0},
        "gpu_remap_pending": {("0",): 1.0},
        "gpu_nvlink_errors_total": {("0", "replay"): 4.0},
        "gpu_pcie_replays_total": {("0",): 3.0},
        "gpu_nvlink_error_ratio": {("0", "symbol"): 7e-9},
        "gpu_fabric_state": {("1", "in_progress"): 1.0},
        "gpu_fabric_degraded": {("1",): 1.0},
    } == found
