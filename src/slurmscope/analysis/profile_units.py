# SPDX-License-Identifier: Apache-2.0
"""Convert Slurm's own samples to base units, without the values that cannot be true.

Slurm's fields have various units, and some releases fill them wrongly:

- GPU fields are uninitialised memory unless Slurm accounts GPUs (23.02 and later).
- ``acct_gather_interconnect/sysfs`` divides bytes by 2**16, not 2**20, so its megabytes are 16 times too many.
- ``CPUFrequency`` is in kHz where the kernel scales frequencies, and in MHz elsewhere.
- ``CPUUtilization`` is 0 if two samples have the same second, as they do when a task ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from slurmscope.model.profile import Measured, ProfileSeries, Sample, SampledField

KIB, MIB = 1024.0, 1048576.0
SYSFS_INTERCONNECT = "acct_gather_interconnect/sysfs"
SYSFS_MEGABYTE = 65536.0

# No more than this is believed.
MAX_MEMORY_BYTES = 2.0**50
MAX_TRANSFER_BYTES = 2.0**62
MAX_COUNT = 2.0**62
MAX_CPU_SECONDS = 1e12
MAX_CORES = 65536.0
MAX_GPUS = 1024.0
MAX_WATTS = 1e6
# From here on a frequency is in kHz: in MHz it would be 100 GHz.
FIRST_KILOHERTZ = 100_000.0
MAX_HERTZ = 1e11
# Uninitialised doubles are often tiny, but not 0; one byte in megabytes is more.
TINY = 1e-9

POWER = "power_watts"
BUSY_CORES = "task_busy_cores"
FREQUENCY = "task_cpu_frequency_hertz"
MAJOR_FAULTS = "task_major_faults"
_POWER_FIELD = "Power"
_WHOLE_NODE = "node"


@dataclass(frozen=True, slots=True)
class Quantity:
    """Describe a field: its name in base units, the factor, the largest credible value, and whether it is a total."""

    name: str
    factor: float
    maximum: float
    is_total: bool = False


QUANTITIES: dict[tuple[ProfileSeries, str], Quantity] = {
    (ProfileSeries.TASKS, "CPUTime"): Quantity("task_cpu_seconds", 1.0, MAX_CPU_SECONDS, is_total=True),
    (ProfileSeries.TASKS, "CPUUtilization"): Quantity(BUSY_CORES, 0.01, MAX_CORES),
    (ProfileSeries.TASKS, "CPUFrequency"): Quantity(FREQUENCY, 1e6, MAX_HERTZ),
    (ProfileSeries.TASKS, "RSS"): Quantity("task_resident_bytes", KIB, MAX_MEMORY_BYTES),
    (ProfileSeries.TASKS, "VMSize"): Quantity("task_virtual_bytes", KIB, MAX_TRANSFER_BYTES),
    (ProfileSeries.TASKS, "Pages"): Quantity(MAJOR_FAULTS, 1.0, MAX_COUNT),
    (ProfileSeries.TASKS, "ReadMB"): Quantity("task_read_bytes", MIB, MAX_TRANSFER_BYTES, is_total=True),
    (ProfileSeries.TASKS, "WriteMB"): Quantity("task_write_bytes", MIB, MAX_TRANSFER_BYTES, is_total=True),
    (ProfileSeries.TASKS, "GPUMemMB"): Quantity("task_gpu_memory_bytes", MIB, MAX_MEMORY_BYTES),
    (ProfileSeries.TASKS, "GPUUtilization"): Quantity("task_gpu_utilization_ratio", 0.01, MAX_GPUS),
    (ProfileSeries.FILESYSTEM, "Reads"): Quantity("filesystem_reads", 1.0, MAX_COUNT, is_total=True),
    (ProfileSeries.FILESYSTEM, "ReadMB"): Quantity("filesystem_read_bytes", MIB, MAX_TRANSFER_BYTES, is_total=True),
    (ProfileSeries.FILESYSTEM, "Writes"): Quantity("filesystem_writes", 1.0, MAX_COUNT, is_total=True),
    (ProfileSeries.FILESYSTEM, "WriteMB"): Quantity("filesystem_write_bytes", MIB, MAX_TRANSFER_BYTES, is_total=True),
    (ProfileSeries.NETWORK, "PacketsIn"): Quantity("network_receive_packets", 1.0, MAX_COUNT, is_total=True),
    (ProfileSeries.NETWORK, "PacketsOut"): Quantity("network_transmit_packets", 1.0, MAX_COUNT, is_total=True),
    (ProfileSeries.NETWORK, "InMB"): Quantity("network_receive_bytes", MIB, MAX_TRANSFER_BYTES, is_total=True),
    (ProfileSeries.NETWORK, "OutMB"): Quantity("network_transmit_bytes", MIB, MAX_TRANSFER_BYTES, is_total=True),
}
_GPU_FIELDS = frozenset({"GPUMemMB", "GPUUtilization"})
_MEGABYTES_OF_NETWORK = frozenset({"InMB", "OutMB"})


def measure(sample: Sample) -> tuple[Measured, int]:
    """Return the numbers of a sample in base units, and how many of its fields are not credible.

    Fields that Slurm did not set or that are not known are left out and not counted.
    """
    measured: dict[tuple[str, str], float] = {}
    wrong = 0
    for name, sampled in sample.fields.items():
        quantity, place = _quantity(sample, name)
        if quantity is None:
            continue
        value = _convert(quantity, sampled)
        if value is None:
            wrong += 1
        else:
            measured[quantity.name, place] = value
    return measured, wrong


def add_up(sample: Sample, before: Sample | None) -> Sample:
    """Return a sample with the sums of all its fields since the first sample, as ``before`` has them.

    A value that is not credible is not added, and made NaN. Fields that the sample lacks are kept.
    """
    fields = dict(before.fields) if before else {}
    for name, sampled in sample.fields.items():
        quantity, _ = _quantity(sample, name)
        is_wrong = not _is_number(sampled.value) or (
            quantity is not None and _convert(quantity, SampledField(sampled.value, sampled.value)) is None
        )
        known = fields[name].total if name in fields else 0.0
        fields[name] = SampledField(math.nan, known) if is_wrong else SampledField(sampled.value, known + sampled.value)
    return replace(sample, fields=fields)


def in_slurms_unit(sample: Sample, name: str) -> float | None:
    """Return a field of a sample as Slurm means it, None if it cannot be true."""
    quantity, _ = _quantity(sample, name)
    if quantity is None or _convert(quantity, sample.fields[name]) is None:
        return None
    return sample.fields[name].value * (quantity.factor / MIB if quantity.factor == SYSFS_MEGABYTE else 1.0)


def _quantity(sample: Sample, name: str) -> tuple[Quantity | None, str]:
    """Return what a field is, and the task or sensor that it belongs to."""
    if sample.series is ProfileSeries.ENERGY:
        sensor = name.removesuffix(_POWER_FIELD)
        is_power = sensor != name
        return Quantity(POWER, 1.0, MAX_WATTS) if is_power else None, sensor or _WHOLE_NODE
    quantity = QUANTITIES.get((sample.series, name))
    is_unset = name == "CPUFrequency" and sample.fields[name].value == 0
    if quantity is None or is_unset or (name in _GPU_FIELDS and not sample.has_gpus):
        return None, ""
    if name in _MEGABYTES_OF_NETWORK and sample.sampler == SYSFS_INTERCONNECT:
        quantity = Quantity(quantity.name, SYSFS_MEGABYTE, quantity.maximum, is_total=True)
    return quantity, sample.task


def _convert(quantity: Quantity, sampled: SampledField) -> float | None:
    """Return a field in its base unit, None if it cannot be true."""
    raw = sampled.total if quantity.is_total else sampled.value
    if not _is_number(sampled.value) or not _is_number(sampled.total) or 0 < raw < TINY:
        return None
    is_kilohertz = quantity.name == FREQUENCY and raw >= FIRST_KILOHERTZ
    converted = raw * (1000.0 if is_kilohertz else quantity.factor)
    return converted if converted <= quantity.maximum else None


def _is_number(value: float) -> bool:
    return math.isfinite(value) and value >= 0
