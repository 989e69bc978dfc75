# SPDX-License-Identifier: Apache-2.0
"""Turn the child's answer into the model.

The child runs a closed-source library, so its answer is validated like any external input.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurmscope.log import escape
from slurmscope.model.gpus import Gpu, GpuProcess, GpuReason
from slurmscope.sources.gpu.nvml.process import NvmlUnavailable

TEXT_LIMIT = 200
# What a real device cannot exceed; above it a number means "none" or nonsense.
_MOST = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlSample:
    """Hold one answer; ``taken_at`` is in seconds since boot."""

    taken_at: float
    devices: tuple[Gpu, ...]


def decode(line: bytes) -> NvmlSample:
    """Decode an answer; raise NvmlUnavailable when it reports an error or is invalid."""
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _malformed("it is not JSON") from error
    if not isinstance(answer, dict):
        raise _malformed("it is not an object")
    if "error" in answer:
        detail = _text(answer.get("detail")) or "no detail"
        raise NvmlUnavailable(_reason(answer["error"]), f"GPUs cannot be read: {detail}")
    taken_at = _number(answer.get("taken_at"))
    devices = answer.get("devices")
    if taken_at is None or not isinstance(devices, list) or not all(isinstance(device, dict) for device in devices):
        raise _malformed("it has no devices")
    return NvmlSample(taken_at=taken_at, devices=tuple(_gpu(device) for device in devices))


def _gpu(device: Mapping[str, Any]) -> Gpu:
    index = _whole(device.get("index"))
    if index is None:
        raise _malformed("a device has no index")
    problem = _reason(device["problem"]) if "problem" in device else None
    uuid = _text(device.get("uuid"))
    if problem is None and not uuid:
        problem = GpuReason.MALFORMED
    if problem is not None:
        return Gpu(index=index, problem=problem)
    return Gpu(
        index=index,
        uuid=uuid,
        model=_text(device.get("model")),
        minor=_whole(device.get("minor")),
        bus_id=_text(device.get("bus_id")),
        parent_uuid=_text(device.get("parent_uuid")),
        gpu_instance=_whole(device.get("gpu_instance")),
        compute_instance=_whole(device.get("compute_instance")),
        has_instances=device.get("has_instances") is True,
        utilization_ratio=_scaled(device.get("utilization_percent"), 100),
        memory_utilization_ratio=_scaled(device.get("memory_utilization_percent"), 100),
        memory_size_bytes=_whole(device.get("memory_size_bytes")),
        memory_used_bytes=_whole(device.get("memory_used_bytes")),
        memory_free_bytes=_whole(device.get("memory_free_bytes")),
        power_watts=_scaled(device.get("power_milliwatts"), 1000),
        energy_joules=_scaled(device.get("energy_millijoules"), 1000),
        temperature_celsius=_number(device.get("temperature_celsius")),
        processes=_processes(device.get("processes")),
    )


def _processes(listed: object) -> tuple[GpuProcess, ...] | None:
    if not isinstance(listed, list):
        return None
    found = []
    for entry in listed:
        pid = _whole(entry[0]) if isinstance(entry, list) and len(entry) == 2 else None
        if pid is None:
            return None
        found.append(GpuProcess(pid=pid, memory_bytes=_whole(entry[1])))
    return tuple(found)


def _reason(word: object) -> GpuReason:
    try:
        return GpuReason(word)
    except ValueError:
        return GpuReason.FAILED


def _text(value: object) -> str:
    return escape(value, TEXT_LIMIT) if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or abs(value) >= _MOST:
        return None
    return float(value)


def _scaled(value: object, divisor: int) -> float | None:
    number = _number(value)
    return None if number is None or number < 0 else number / divisor


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST else None


def _malformed(why: str) -> NvmlUnavailable:
    return NvmlUnavailable(GpuReason.MALFORMED, f"the answer about GPUs cannot be read: {why}")
