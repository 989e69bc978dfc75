# SPDX-License-Identifier: Apache-2.0
"""Sizes of GPUs are joined by device, and a size that is missing is never counted as 0."""

from __future__ import annotations

from typing import Any

import pytest

from slurmscope.core.tres import Gres
from slurmscope.jobs.charts import make_charts
from slurmscope.jobs.gpus import MAX_GPUS
from slurmscope.jobs.series import Measured
from slurmscope.jobs.summarize import summarize
from slurmscope.jobs.summary import GpuSummary, HeldGpu, JobSummary, OtherGpus
from tests.fakes.measured import curve
from tests.fakes.reports import START, make_record

GIB = float(1 << 30)

# Two jobs' worth of unequal GPUs, worked out by hand: an A100 of 80 GiB and a V100 of 32 GiB on n1, a slice of 10 GiB
# on n2. The job used 40 + 8 + 5 = 53 GiB of 80 + 32 + 10 = 122 GiB, which is 43.44 %.
BIG, OLD, SLICE = ("n1", "0", ""), ("n1", "1", ""), ("n2", "3", "2/0")
SIZES = {BIG: 80 * GIB, OLD: 32 * GIB, SLICE: 10 * GIB}
PEAKS = {BIG: 40 * GIB, OLD: 8 * GIB, SLICE: 5 * GIB}
TOTALS: dict[str, Any] = {
    "gpu_memory": {("n1",): 48 * GIB, ("n2",): 5 * GIB},
    "gpu_held_idle": dict.fromkeys(SIZES, 0.0),
    "gpu_jobs": dict.fromkeys(SIZES, 1.0),
    "gpu_memory_size": SIZES,
    "gpu_held_memory": PEAKS,
    "gpu_held_utilization": {BIG: 0.9, OLD: 0.25},
    "gpu_info": {
        (*BIG, "GPU-a", "NVIDIA A100"): 1.0,
        (*OLD, "GPU-b", "Tesla V100"): 1.0,
        (*SLICE, "MIG-c", "NVIDIA A100 MIG 1g.10gb"): 1.0,
    },
}


def summed(totals: dict[str, Any], gpus: int = 3, **changes: Any) -> JobSummary:
    record = make_record(
        nodes=("n1", "n2"), node_count=2, gres=(Gres(name="gpu", count=gpus),) if gpus else (), **changes
    )
    return summarize(record, Measured(totals=totals), now_seconds=START + 10_000)


def of_gpus(totals: dict[str, Any], gpus: int = 3) -> GpuSummary:
    return summed(totals, gpus).gpu


def without(name: str, device: tuple[str, ...]) -> dict[str, Any]:
    return {**TOTALS, name: {key: value for key, value in TOTALS[name].items() if key != device}}


def test_unequal_gpus_count_with_their_own_size() -> None:
    gpu = of_gpus(TOTALS)

    assert (122 * GIB, 53 * GIB) == (gpu.memory_size_bytes, gpu.peak_memory_bytes)
    assert pytest.approx(0.4344, abs=1e-4) == gpu.memory_ratio
    assert not gpu.is_shared
    assert [0.5, 0.25, 0.5] == [device.memory_ratio for device in gpu.devices]


def test_each_gpu_has_a_row() -> None:
    gpu = of_gpus(TOTALS)

    assert (
        HeldGpu(
            node="n1", gpu="0", uuid="GPU-a", model="NVIDIA A100", mean_utilization=0.9, jobs=1,
            peak_memory_bytes=40 * GIB, memory_size_bytes=80 * GIB,
        ),
        HeldGpu(
            node="n1", gpu="1", uuid="GPU-b", model="Tesla V100", mean_utilization=0.25, jobs=1,
            peak_memory_bytes=8 * GIB, memory_size_bytes=32 * GIB,
        ),
        HeldGpu(
            node="n2", gpu="3", mig="2/0", uuid="MIG-c", model="NVIDIA A100 MIG 1g.10gb", jobs=1,
            peak_memory_bytes=5 * GIB, memory_size_bytes=10 * GIB,
        ),
    ) == gpu.devices  # fmt: skip
    assert gpu.others is None


@pytest.mark.parametrize(
    ("totals", "gpus"),
    [
        (without("gpu_memory_size", OLD), 3),
        ({**TOTALS, "gpu_memory_size": {**SIZES, OLD: 0.0}}, 3),
        ({**TOTALS, "gpu_memory_size": {}}, 3),
        ({}, 3),
        ({}, 0),
        # One of four GPUs was not seen by any agent; more than two were seen, and which the job held is unclear.
        (TOTALS, 4),
        (TOTALS, 2),
    ],
)
def test_size_is_unknown_unless_that_of_each_gpu_is_known(totals: dict[str, Any], gpus: int) -> None:
    gpu = of_gpus(totals, gpus)

    assert gpu.memory_size_bytes is None
    assert gpu.memory_ratio is None


def test_gpu_of_unknown_size_keeps_its_other_numbers() -> None:
    old = of_gpus(without("gpu_memory_size", OLD)).devices[1]

    assert (None, None, 8 * GIB) == (old.memory_size_bytes, old.memory_ratio, old.peak_memory_bytes)


def test_gpus_that_slurm_does_not_count_have_the_size_of_those_seen() -> None:
    """Jobs with shards have no GPU in accounting."""
    shared = of_gpus({**TOTALS, "gpu_jobs": {**TOTALS["gpu_jobs"], OLD: 2.0}}, gpus=0)

    assert 122 * GIB == shared.memory_size_bytes
    assert shared.is_shared
    assert [1, 2, 1] == [device.jobs for device in shared.devices]


def test_gpu_that_was_shared_for_a_while_has_no_mean_utilization() -> None:
    """The utilization is measured only while the job has the GPU alone."""
    devices = of_gpus({**TOTALS, "gpu_jobs": {BIG: 2.0, OLD: 1.0}}).devices

    assert [None, 0.25, None] == [device.mean_utilization for device in devices]
    assert [40 * GIB, 8 * GIB, 5 * GIB] == [device.peak_memory_bytes for device in devices]


def test_older_agents_measure_no_single_gpu() -> None:
    gpu = of_gpus({"gpu_held_idle": TOTALS["gpu_held_idle"], "gpu_memory": TOTALS["gpu_memory"]})

    assert () == gpu.devices
    assert 53 * GIB == gpu.peak_memory_bytes


def test_gpu_that_was_replaced_during_the_run_has_no_name() -> None:
    gpu = of_gpus({**TOTALS, "gpu_info": {**TOTALS["gpu_info"], (*BIG, "GPU-z", "NVIDIA A100"): 1.0}})

    assert ("", "") == (gpu.devices[0].uuid, gpu.devices[0].model)
    assert "GPU-b" == gpu.devices[1].uuid


def test_size_by_node_is_the_limit_of_the_chart() -> None:
    totals = {**TOTALS, "gpu_memory_size": {BIG: 80 * GIB, OLD: 32 * GIB, SLICE: 112 * GIB}}
    summary = summed(totals)
    measured = Measured(curves={"gpu_memory": (curve(("n1",), 1.0), curve(("n2",), 2.0))}, totals=totals)
    (chart,) = make_charts(summary, measured)

    assert [112 * GIB, 112 * GIB] == [node.gpu_memory_size_bytes for node in summary.nodes]
    assert (112 * GIB, "memory of the GPUs") == (chart.reference, chart.reference_label)


def test_node_with_a_gpu_of_unknown_size_has_none() -> None:
    nodes = summed(without("gpu_memory_size", OLD)).nodes

    assert [None, 10 * GIB] == [node.gpu_memory_size_bytes for node in nodes]


def many(count: int, **changes: Any) -> dict[str, Any]:
    devices = [("n1", str(number), "") for number in range(count)]
    return {
        "gpu_memory_size": dict.fromkeys(devices, 10.0),
        "gpu_held_memory": dict.fromkeys(devices, 4.0),
        "gpu_held_utilization": {device: number / count for number, device in enumerate(devices)},
        **changes,
    }


def test_least_busy_gpus_have_rows_and_the_others_are_summed_up() -> None:
    gpu = of_gpus(many(40), gpus=40)

    assert [str(number) for number in range(MAX_GPUS)] == [device.gpu for device in gpu.devices]
    # The others are 32 to 39 of 40: (32 + ... + 39) / 8 / 40 = 0.8875.
    assert gpu.others is not None
    assert (8, 32.0, 80.0, 0.4) == (
        gpu.others.count, gpu.others.peak_memory_bytes, gpu.others.memory_size_bytes, gpu.others.memory_ratio
    )  # fmt: skip
    assert pytest.approx(0.8875) == gpu.others.mean_utilization
    assert 400.0 == gpu.memory_size_bytes


def test_sum_of_gpus_that_were_not_all_measured_is_unknown() -> None:
    assert (
        OtherGpus(count=8, memory_size_bytes=80.0)
        == of_gpus(many(40, gpu_held_memory={}, gpu_held_utilization={}), gpus=40).others
    )


def test_more_gpus_than_rows_without_utilization_keep_those_that_have_one() -> None:
    """The last GPU is the only one whose utilization is known."""
    last = ("n1", "39", "")
    gpu = of_gpus(many(40, gpu_held_utilization={last: 0.5}), gpus=40)

    assert "39" == gpu.devices[-1].gpu
    assert [str(number) for number in range(MAX_GPUS - 1)] == [device.gpu for device in gpu.devices[:-1]]
