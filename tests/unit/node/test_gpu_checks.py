# SPDX-License-Identifier: Apache-2.0
"""The doctor says where the numbers of GPUs and of energy come from, and what is missing."""

from __future__ import annotations

import pytest

from slurmscope.core.check import Check
from slurmscope.node.checks import check_energy, check_gpus
from slurmscope.node.energy import Covers, NodeEnergy
from slurmscope.node.gpu.records import Gpu, GpuCounters, GpuReason, Gpus


def gpu(index: int, source: str = "") -> Gpu:
    counters = GpuCounters(source=source, seconds=1.0) if source else None
    return Gpu(index=index, uuid=f"GPU-{index}", counters=counters)


def checks(gpus: Gpus) -> dict[str, Check]:
    return {check.name: check for check in check_gpus(gpus)}


def test_sources_of_counters_are_named_with_what_they_lack() -> None:
    found = checks(Gpus(devices=(gpu(0, "gpm"), gpu(1, "gpm"), gpu(2, "samples"), gpu(3))))

    assert ("4 found", True) == (found["gpus"].message, found["gpus"].is_good)
    assert "2 counted from hardware counters" == found["gpu counters gpm"].message
    assert "not which units worked" in found["gpu counters samples"].message
    assert "1 counted from nothing" in found["gpu counters none"].message


def test_lost_gpu_is_a_failure_with_advice() -> None:
    found = checks(Gpus(devices=(gpu(0, "gpm"), Gpu(index=1, problem=GpuReason.LOST))))["gpus"]
    assert ("2 found, 1 of them cannot be read", False) == (found.message, found.is_good)
    assert "Xid" in found.advice


@pytest.mark.parametrize(
    ("source", "reason", "word"),
    [
        ("nvml", GpuReason.NOT_INSTALLED, "slurmscope[gpu]"),
        ("nvml", GpuReason.VERSION_MISMATCH, "reboot"),
        ("nvml", GpuReason.TIMEOUT, "log"),
        ("fdinfo", GpuReason.NO_PERMISSION, "unit"),
    ],
)
def test_source_that_cannot_be_read_has_its_advice(source: str, reason: GpuReason, word: str) -> None:
    found = checks(Gpus(unavailable={source: reason}))[f"source {source}"]
    assert not found.is_good
    assert word in found.advice


def test_node_without_gpus_is_well() -> None:
    assert ["no GPU with a driver"] == [
        check.message for check in check_gpus(Gpus(unavailable={"nvml": GpuReason.DRIVER_NOT_LOADED}))
    ]
    assert [] == list(check_gpus(Gpus()))


@pytest.mark.parametrize(
    ("energy", "message", "has_advice"),
    [
        (None, "no meter", True),
        (NodeEnergy(source="gpu", covers=Covers.GPUS), "no meter but those of GPUs", True),
        (NodeEnergy(source="rapl", covers=Covers.PROCESSORS), "rapl, which covers processors", False),
    ],
)
def test_meter_is_named(energy: NodeEnergy | None, message: str, has_advice: bool) -> None:
    (found,) = check_energy(energy)
    assert (message, True, has_advice) == (found.message, found.is_good, bool(found.advice))
