# SPDX-License-Identifier: Apache-2.0
"""Which GPUs can be allocated, how MIG instances are named, and which processes are in a job."""

from __future__ import annotations

import pytest

from slurmscope.node.cgroup.names import ProcessPlace
from slurmscope.node.gpu.records import Gpu, GpuReason


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        (Gpu(index=0, uuid="GPU-a"), True),
        (Gpu(index=0, uuid="MIG-a", parent_uuid="GPU-a", gpu_instance=2, compute_instance=0), True),
        (Gpu(index=0), False),
        (Gpu(index=0, uuid="GPU-a", has_instances=True), False),
        (Gpu(index=0, uuid="GPU-a", problem=GpuReason.LOST), False),
    ],
)
def test_gpu_can_be_held_unless_it_is_partitioned_or_lost(gpu: Gpu, expected: bool) -> None:
    assert expected == gpu.is_holdable


def test_only_mig_instances_have_instance_numbers() -> None:
    assert "2/0" == Gpu(index=0, parent_uuid="GPU-a", gpu_instance=2, compute_instance=0).mig
    assert "" == Gpu(index=0, gpu_instance=2, compute_instance=0).mig


def test_process_is_in_a_job_by_either_id() -> None:
    assert ProcessPlace(job_id=0).is_in_job
    assert ProcessPlace(sluid="s3").is_in_job
    assert not ProcessPlace(node_name="n1").is_in_job
