# SPDX-License-Identifier: Apache-2.0
"""Tabulate the GPUs of a job: one row for each, and one for the sum of those beyond a maximum."""

from __future__ import annotations

from slurmscope.figures import NOT_MEASURED, format_bytes, format_ratio, format_some
from slurmscope.model.report import JobReport
from slurmscope.model.summary import HeldGpu, OtherGpus
from slurmscope.reports.formatting import show
from slurmscope.reports.tables.nodes import TextTable

_HEAD = ("Node", "GPU", "Model", "Utilization", "Memory, peak", "Size", "Share")
_SHORT_UUID = len("GPU-01234567")
"""Beginning of a UUID that distinguishes GPUs of a node."""

_SHARED = (
    "Other jobs share some of these GPUs: their utilization cannot be attributed to one job, and their memory is only "
    "that of this job."
)
_OTHERS = "The last row sums up the remaining GPUs; none of them was less busy than those above."


def make_gpu_table(report: JobReport) -> TextTable:
    """Make the rows of the GPUs that node agents measured; without any there are none."""
    gpu = report.summary.gpu
    rows = tuple((*_names(device), *_numbers(device)) for device in gpu.devices)
    notes = []
    if gpu.others is not None:
        rows = (*rows, (format_some(gpu.others.count, "more GPU"), "", "", *_numbers(gpu.others)))
        notes.append(_OTHERS)
    if gpu.is_shared:
        notes.append(_SHARED)
    return TextTable(head=_HEAD, rows=rows, note=" ".join(notes))


def _names(device: HeldGpu) -> tuple[str, str, str]:
    number = f"{device.gpu} MIG {device.mig}" if device.mig else device.gpu
    uuid = f" ({device.uuid[:_SHORT_UUID]})" if device.uuid else ""
    return show(device.node, 64), show(f"{number}{uuid}", 40), show(device.model, 40)


def _numbers(of: HeldGpu | OtherGpus) -> tuple[str, ...]:
    texts = (
        format_ratio(of.mean_utilization),
        format_bytes(of.peak_memory_bytes),
        format_bytes(of.memory_size_bytes),
        format_ratio(of.memory_ratio),
    )
    return tuple("–" if text == NOT_MEASURED else text for text in texts)
