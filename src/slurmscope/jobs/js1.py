# SPDX-License-Identifier: Apache-2.0
"""Write and read the numbers of a job as jobstats keeps them in Slurm's AdminComment.

reportseff, seff-array and others read them from there. The comment is gzip of JSON in base64::

    JS1:H4sI...   {"nodes": {"n1": {"total_memory": 4294967296, "used_memory": 1073741824, "total_time": 3500.1,
                  "cpus": 2, "gpu_utilization": {"0": 73.1}, ...}}, "total_time": 3600, "gpus": 1}
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from slurmscope.jobs.summary import (
    Coverage,
    CpuSummary,
    GpuSummary,
    HeldGpu,
    JobSummary,
    MemorySummary,
    NodeSummary,
    UsedShare,
)

PREFIX = "JS1:"
SHORT, NONE = "JS1:Short", "JS1:None"
"""What jobstats writes for a job of under a minute, and for one without measurements."""
SHORT_SECONDS = 60.0
MAX_COMMENT_CHARS = 60_000
"""Most characters of a comment: the column of slurmdbd takes 65,535 bytes."""
_MAX_JSON_BYTES = 4 << 20
_MAX_NUMBER = 1e18
_MAX_GPUS = 64
"""Most GPUs of a node."""
FROM_COMMENT = "The numbers of this job are those that jobstats stored with it in Slurm's AdminComment."


def write_js1(summary: JobSummary) -> str:
    """Return the comment; jobs that were not measured on all of their nodes have no numbers."""
    nodes = {node.node: _node_numbers(node, summary.gpu.devices) for node in summary.nodes}
    is_whole = all("total_time" in numbers and "cpus" in numbers for numbers in nodes.values())
    if not nodes or not is_whole:
        return SHORT if summary.run_seconds < SHORT_SECONDS else NONE
    data = {"nodes": nodes, "total_time": round(summary.run_seconds), "gpus": summary.gpu.requested}
    packed = gzip.compress(json.dumps(data, separators=(",", ":")).encode(), mtime=0)
    comment = PREFIX + base64.b64encode(packed).decode("ascii")
    return comment if len(comment) <= MAX_COMMENT_CHARS else NONE


def _node_numbers(node: NodeSummary, devices: tuple[HeldGpu, ...]) -> dict[str, object]:
    whole = [device for device in devices if device.node == node.node and not device.mig]
    numbers: dict[str, object] = {
        "total_memory": _whole(node.limit_bytes),
        "used_memory": _whole(node.working_peak_bytes),
        "total_time": None if node.cpu_seconds is None else round(node.cpu_seconds, 1),
        "cpus": _whole(node.cpus),
        "gpu_total_memory": _by_gpu(whole, lambda gpu: _whole(gpu.memory_size_bytes)),
        "gpu_used_memory": _by_gpu(whole, lambda gpu: _whole(gpu.peak_memory_bytes)),
        "gpu_utilization": _by_gpu(whole, lambda gpu: _percent(gpu.mean_utilization)),
    }
    return {name: number for name, number in numbers.items() if number is not None and number != {}}


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else round(100 * ratio, 1)


def _by_gpu(devices: list[HeldGpu], number: Callable[[HeldGpu], float | None]) -> dict[str, float]:
    return {device.gpu: found for device in devices if (found := number(device)) is not None}


def add_js1(summary: JobSummary, comment: str) -> JobSummary:
    """Return the summary with the numbers of the comment where nothing else was measured; the same if it has none."""
    data = _parse(comment)
    names = set(summary.record.nodes)
    found = {} if data is None else {name: data[name] for name in sorted(data) if name in names}
    if summary.coverage.nodes_measured or not found or not summary.run_seconds:
        return summary
    nodes = tuple(_node(name, found.get(name, {}), summary.run_seconds) for name in summary.record.nodes)
    count = len([node for node in nodes if node.cpu_seconds is not None])
    coverage = Coverage(nodes=len(nodes), nodes_measured=count, run_ratio=1.0 if count else 0.0)
    return replace(
        summary,
        nodes=nodes,
        coverage=coverage,
        cpu=_cpu(summary.cpu, nodes, summary.run_seconds, coverage),
        memory=_memory(summary.memory, nodes, coverage),
        gpu=_gpus(summary.gpu, found, coverage),
    )


def _parse(comment: str) -> Mapping[str, Mapping[str, Any]] | None:
    """Return the numbers by node; None for any other text, also a damaged or huge one."""
    if not comment.startswith(PREFIX) or len(comment) > MAX_COMMENT_CHARS:
        return None
    try:
        packed = base64.b64decode(comment.removeprefix(PREFIX), validate=True)
        unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        text = unpacker.decompress(packed, _MAX_JSON_BYTES)
        data = json.loads(text) if unpacker.eof else None
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        return None
    nodes = data.get("nodes") if isinstance(data, dict) else None
    return {k: v for k, v in nodes.items() if isinstance(v, dict)} if isinstance(nodes, dict) else None


def _node(name: str, numbers: Mapping[str, Any], run_seconds: float) -> NodeSummary:
    cpu_seconds = _number(numbers.get("total_time"))
    gpus = _numbers_by_gpu(numbers.get("gpu_utilization"))
    sizes = _numbers_by_gpu(numbers.get("gpu_total_memory"))
    return NodeSummary(
        node=name,
        cpus=_number(numbers.get("cpus")),
        cpu_seconds=cpu_seconds,
        mean_cores=None if cpu_seconds is None else cpu_seconds / run_seconds,
        working_peak_bytes=_number(numbers.get("used_memory")),
        limit_bytes=_number(numbers.get("total_memory")),
        gpu_utilization=math.fsum(gpus.values()) / len(gpus) / 100 if gpus else None,
        gpu_memory_size_bytes=math.fsum(sizes.values()) if sizes else None,
        run_ratio=0.0 if cpu_seconds is None else 1.0,
    )


def _number(found: object) -> float | None:
    if not isinstance(found, int | float) or isinstance(found, bool):
        return None
    return float(found) if 0 <= found < _MAX_NUMBER else None


def _numbers_by_gpu(found: object) -> dict[str, float]:
    items = list(found.items())[:_MAX_GPUS] if isinstance(found, dict) else []
    return {key: number for key, each in items if key.isdecimal() and (number := _number(each)) is not None}


def _sum(numbers: list[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return math.fsum(known) if known and len(known) == len(numbers) else None


def _cpu(cpu: CpuSummary, nodes: tuple[NodeSummary, ...], run_seconds: float, coverage: Coverage) -> CpuSummary:
    used = _sum([node.cpu_seconds for node in nodes])
    if used is None:
        return cpu
    share = UsedShare(requested=cpu.time.requested, used=used, coverage=coverage)
    return replace(cpu, time=share, mean_cores=used / run_seconds)


def _memory(memory: MemorySummary, nodes: tuple[NodeSummary, ...], coverage: Coverage) -> MemorySummary:
    used = _sum([node.working_peak_bytes for node in nodes])
    limit = _sum([node.limit_bytes for node in nodes])
    return replace(memory, working_peak_bytes=used, limit_bytes=limit, coverage=coverage)


def _gpus(gpu: GpuSummary, found: Mapping[str, Mapping[str, Any]], coverage: Coverage) -> GpuSummary:
    devices = tuple(
        HeldGpu(
            node=name,
            gpu=index,
            mean_utilization=percent / 100,
            peak_memory_bytes=_numbers_by_gpu(numbers.get("gpu_used_memory")).get(index),
            memory_size_bytes=_numbers_by_gpu(numbers.get("gpu_total_memory")).get(index),
        )
        for name, numbers in found.items()
        for index, percent in _numbers_by_gpu(numbers.get("gpu_utilization")).items()
        if percent <= 100
    )
    if not devices or len(devices) != gpu.requested:
        return gpu
    return replace(
        gpu,
        devices=devices,
        mean_utilization=math.fsum(device.mean_utilization or 0.0 for device in devices) / len(devices),
        peak_memory_bytes=_sum([device.peak_memory_bytes for device in devices]),
        memory_size_bytes=_sum([device.memory_size_bytes for device in devices]),
        coverage=coverage,
    )
