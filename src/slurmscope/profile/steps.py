# SPDX-License-Identifier: Apache-2.0
"""Keep the current numbers of every profiled step, until the step ends or is no longer heard of.

Slurm's fields have various units, and some releases fill them wrongly:

- GPU fields are uninitialised memory unless Slurm accounts GPUs, and always in the first sample of a task (23.02 and
  later).
- ``acct_gather_interconnect/sysfs`` divides bytes by 2**16, not 2**20, so its megabytes are 16 times too many.
- ``CPUFrequency`` is in kHz where the kernel scales frequencies, and in MHz elsewhere.
- ``CPUUtilization`` is 0 if two samples have the same second, as they do when a task ends.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from slurmscope.core.units import MIB
from slurmscope.profile.events import (
    EventKind,
    Measured,
    Profile,
    ProfiledStep,
    ProfileEvent,
    ProfileSeries,
    Sample,
    SampledField,
    StepKey,
)

KIB = 1024
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
class ProfileField:
    """Describe a field: its name in base units, the factor, the largest credible value, and whether it is a total."""

    name: str
    factor: float
    maximum: float
    is_total: bool = False


QUANTITIES: dict[tuple[ProfileSeries, str], ProfileField] = {
    (ProfileSeries.TASKS, "CPUTime"): ProfileField("task_cpu_seconds", 1.0, MAX_CPU_SECONDS, is_total=True),
    (ProfileSeries.TASKS, "CPUUtilization"): ProfileField(BUSY_CORES, 0.01, MAX_CORES),
    (ProfileSeries.TASKS, "CPUFrequency"): ProfileField(FREQUENCY, 1e6, MAX_HERTZ),
    (ProfileSeries.TASKS, "RSS"): ProfileField("task_resident_bytes", KIB, MAX_MEMORY_BYTES),
    (ProfileSeries.TASKS, "VMSize"): ProfileField("task_virtual_bytes", KIB, MAX_TRANSFER_BYTES),
    (ProfileSeries.TASKS, "Pages"): ProfileField(MAJOR_FAULTS, 1.0, MAX_COUNT),
    (ProfileSeries.TASKS, "ReadMB"): ProfileField("task_read_bytes", MIB, MAX_TRANSFER_BYTES, is_total=True),
    (ProfileSeries.TASKS, "WriteMB"): ProfileField("task_write_bytes", MIB, MAX_TRANSFER_BYTES, is_total=True),
    (ProfileSeries.TASKS, "GPUMemMB"): ProfileField("task_gpu_memory_bytes", MIB, MAX_MEMORY_BYTES),
    (ProfileSeries.TASKS, "GPUUtilization"): ProfileField("task_gpu_utilization_ratio", 0.01, MAX_GPUS),
    (ProfileSeries.FILESYSTEM, "Reads"): ProfileField("filesystem_reads", 1.0, MAX_COUNT, is_total=True),
    (ProfileSeries.FILESYSTEM, "ReadMB"): ProfileField("filesystem_read_bytes", MIB, MAX_TRANSFER_BYTES, is_total=True),
    (ProfileSeries.FILESYSTEM, "Writes"): ProfileField("filesystem_writes", 1.0, MAX_COUNT, is_total=True),
    (ProfileSeries.FILESYSTEM, "WriteMB"): ProfileField(
        "filesystem_write_bytes", MIB, MAX_TRANSFER_BYTES, is_total=True
    ),
    (ProfileSeries.NETWORK, "PacketsIn"): ProfileField("network_receive_packets", 1.0, MAX_COUNT, is_total=True),
    (ProfileSeries.NETWORK, "PacketsOut"): ProfileField("network_transmit_packets", 1.0, MAX_COUNT, is_total=True),
    (ProfileSeries.NETWORK, "InMB"): ProfileField("network_receive_bytes", MIB, MAX_TRANSFER_BYTES, is_total=True),
    (ProfileSeries.NETWORK, "OutMB"): ProfileField("network_transmit_bytes", MIB, MAX_TRANSFER_BYTES, is_total=True),
}
_GPU_FIELDS = frozenset({"GPUMemMB", "GPUUtilization"})
_OF_A_MOMENT = frozenset({BUSY_CORES, FREQUENCY, "task_gpu_utilization_ratio"})
_SIZES = frozenset({"task_resident_bytes", "task_virtual_bytes", "task_gpu_memory_bytes"})
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


def _quantity(sample: Sample, name: str) -> tuple[ProfileField | None, str]:
    """Return what a field is, and the task or sensor that it belongs to."""
    if sample.series is ProfileSeries.ENERGY:
        sensor = name.removesuffix(_POWER_FIELD)
        is_power = sensor != name
        return ProfileField(POWER, 1.0, MAX_WATTS) if is_power else None, sensor or _WHOLE_NODE
    quantity = QUANTITIES.get((sample.series, name))
    is_unset = name == "CPUFrequency" and sample.fields[name].value == 0
    if quantity is None or is_unset or (name in _GPU_FIELDS and not sample.has_gpus):
        return None, ""
    if name in _MEGABYTES_OF_NETWORK and sample.sampler == SYSFS_INTERCONNECT:
        quantity = ProfileField(quantity.name, SYSFS_MEGABYTE, quantity.maximum, is_total=True)
    return quantity, sample.task


def _convert(quantity: ProfileField, sampled: SampledField) -> float | None:
    """Return a field in its base unit, None if it cannot be true."""
    raw = sampled.total if quantity.is_total else sampled.value
    if not _is_number(sampled.value) or not _is_number(sampled.total) or 0 < raw < TINY:
        return None
    is_kilohertz = quantity.name == FREQUENCY and raw >= FIRST_KILOHERTZ
    converted = raw * (1000.0 if is_kilohertz else quantity.factor)
    return converted if converted <= quantity.maximum else None


def _is_number(value: float) -> bool:
    return math.isfinite(value) and value >= 0


MAX_STEPS = 4096
MAX_SERIES_PER_STEP = 4096

# Why an event, or a field of a sample, was not used.
LATE, LIMIT, REPEATED, VALUE = "late", "limit", "repeated", "value"
# The start of steps whose sender neither says when they started nor when they end.
NO_START = 0


@dataclass(slots=True, kw_only=True)
class _Step:
    """One run of a step; ``is_missed`` means that its end was not reported, but its job is gone."""

    start_seconds: int
    heard_at: float
    ended_at: float | None = None
    is_missed: bool = False
    number: int = 0
    lost: int = 0
    last_sample_seconds: int | None = None
    measured: dict[tuple[str, str], float] = field(default_factory=dict)
    samples: dict[tuple[ProfileSeries, str], Sample] = field(default_factory=dict)
    ended_tasks: dict[str, float] = field(default_factory=dict)

    def drop(self, quantities: Collection[str], task: str) -> None:
        for quantity in quantities:
            self.measured.pop((quantity, task), None)


class ProfileSteps:
    """Turn events into the numbers of steps; safe for several threads."""

    def __init__(
        self, *, grace_seconds: float, timeout_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Take how long the numbers of an ended step are kept, and after which silence a step counts as ended."""
        self._grace_seconds = grace_seconds
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._steps: dict[StepKey, _Step] = {}
        self._events: Counter[str] = Counter({kind.value: 0 for kind in EventKind})
        self._rejected: Counter[str] = Counter(dict.fromkeys((LATE, LIMIT, REPEATED, VALUE), 0))
        self._lost = 0
        self._running_at: dict[int, float] = {}

    def handle(self, event: ProfileEvent) -> None:
        with self._lock:
            self._events[event.kind.value] += 1
            step = self._step_of(event)
            if step is None:
                return
            step.heard_at = self._clock()
            if step.is_missed:
                step.ended_at, step.is_missed = None, False
            step.number = event.number
            self._lost += max(0, event.lost - step.lost)
            step.lost = max(step.lost, event.lost)
            if event.sample is not None:
                self._add(step, event.sample)
            if event.task and len(step.ended_tasks) < MAX_SERIES_PER_STEP:
                step.ended_tasks[event.task] = step.heard_at
                step.drop(_OF_A_MOMENT, event.task)
            if event.kind is EventKind.STEP_END:
                step.ended_at = step.heard_at
                for _, task in tuple(step.samples):
                    step.drop(_OF_A_MOMENT, task)

    def handle_difference(self, key: StepKey, sample: Sample) -> None:
        """Take a sample that has no sums, of a sender that reports nothing else."""
        with self._lock:
            self._events[EventKind.SAMPLE.value] += 1
            step = self._steps.get(key)
            now = self._clock()
            is_over = step is not None and step.ended_at is not None and now - step.ended_at >= self._grace_seconds
            if step is None or is_over or step.start_seconds != NO_START:
                step = self._new_step(key, NO_START)
            if step is not None:
                step.heard_at, step.ended_at = now, None
                before = step.samples.get((sample.series, sample.task))
                is_later = before is not None and (before.has_gpus or sample.time_seconds > before.time_seconds)
                self._add(step, add_up(replace(sample, has_gpus=sample.has_gpus and is_later), before))

    def end_missing(self, running: Collection[int]) -> None:
        """End the steps whose jobs ran on this node and are not among the running ones.

        Some senders do not report the end of a step, and a report may be lost. A later sample revives the step.
        """
        with self._lock:
            now = self._clock()
            recent = {job: at for job, at in self._running_at.items() if now - at < self._timeout_seconds}
            self._running_at = recent | dict.fromkeys(running, now)
            for key, step in self._steps.items():
                is_gone = key.job_id in recent and key.job_id not in running
                if is_gone and step.ended_at is None:
                    step.ended_at, step.is_missed = now, True

    def reject(self, reason: str) -> None:
        """Count something that was no event."""
        with self._lock:
            self._rejected[reason] += 1

    def snapshot(self) -> Profile:
        """Return all steps, with those that ended recently."""
        with self._lock:
            self._expire()
            now = self._clock()
            shown = [
                (key, step)
                for key, step in self._steps.items()
                if step.ended_at is None or now - step.ended_at < self._grace_seconds
            ]
            return Profile(
                steps=tuple(_freeze(key, step) for key, step in shown),
                events=dict(self._events),
                rejected=dict(self._rejected),
                lost=self._lost,
            )

    def _step_of(self, event: ProfileEvent) -> _Step | None:
        """Return the run of the step that an event belongs to, a new one if needed; None if it is to be ignored."""
        step = self._steps.get(event.key)
        if step is None or event.start_seconds > step.start_seconds:
            return self._new_step(event.key, event.start_seconds, lost=event.lost)
        if event.start_seconds < step.start_seconds or (step.ended_at is not None and not step.is_missed):
            self._rejected[LATE] += 1
            return None
        if event.number <= step.number:
            self._rejected[REPEATED] += 1
            return None
        return step

    def _new_step(self, key: StepKey, start_seconds: int, *, lost: int = 0) -> _Step | None:
        if key not in self._steps and len(self._steps) >= MAX_STEPS:
            self._expire()
            if len(self._steps) >= MAX_STEPS:
                self._rejected[LIMIT] += 1
                return None
        # What was lost before this process heard of the step is not its loss.
        step = _Step(start_seconds=start_seconds, heard_at=self._clock(), lost=lost)
        self._steps[key] = step
        return step

    def _add(self, step: _Step, sample: Sample) -> None:
        place = (sample.series, sample.task)
        before = step.samples.get(place)
        if before is None and len(step.samples) >= MAX_SERIES_PER_STEP:
            self._rejected[LIMIT] += 1
            return
        measured, wrong = measure(sample)
        self._rejected[VALUE] += wrong
        is_same_second = before is not None and before.time_seconds == sample.time_seconds
        for (quantity, where), value in measured.items():
            # Slurm samples all tasks again when one ends; it then reports 0 for a load over no time.
            if is_same_second and quantity == BUSY_CORES:
                continue
            if sample.task in step.ended_tasks and quantity in _OF_A_MOMENT | _SIZES:
                continue
            # A sum over living processes: it falls when one of them ends, which a counter must not.
            is_counter = quantity == MAJOR_FAULTS
            known = step.measured.get((quantity, where), value)
            step.measured[quantity, where] = max(known, value) if is_counter else value
        step.samples[place] = sample
        # A sample that could not be sent in time is sent later, beside a newer one.
        step.last_sample_seconds = max(step.last_sample_seconds or 0, sample.time_seconds)

    def _expire(self) -> None:
        """Forget steps that are silent, ended ones when none of their events can arrive, and sizes of ended tasks."""
        now = self._clock()
        keep_seconds = max(self._timeout_seconds, self._grace_seconds)
        for key, step in list(self._steps.items()):
            is_over = step.ended_at is not None and now - step.ended_at >= keep_seconds
            is_silent = step.ended_at is None and now - step.heard_at >= self._timeout_seconds
            if is_over or is_silent:
                del self._steps[key]
            for task, ended_at in step.ended_tasks.items():
                if now - ended_at >= self._grace_seconds:
                    step.drop(_SIZES, task)
                    step.samples.pop((ProfileSeries.TASKS, task), None)


def _freeze(key: StepKey, step: _Step) -> ProfiledStep:
    return ProfiledStep(
        key=key,
        has_ended=step.ended_at is not None,
        last_sample_seconds=step.last_sample_seconds,
        measured=dict(step.measured),
        samples=dict(step.samples),
    )
