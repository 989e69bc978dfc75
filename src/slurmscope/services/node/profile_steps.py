# SPDX-License-Identifier: Apache-2.0
"""Keep the current numbers of every profiled step, until the step ends or is no longer heard of."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from slurmscope.analysis.profile_units import BUSY_CORES, MAJOR_FAULTS, add_up, measure
from slurmscope.model.profile import EventKind, Profile, ProfiledStep, ProfileEvent, ProfileSeries, Sample, StepKey

MAX_STEPS = 4096
MAX_SERIES_PER_STEP = 4096

# Why an event, or a field of a sample, was not used.
LATE, LIMIT, REPEATED, VALUE = "late", "limit", "repeated", "value"
# The start of steps whose sender neither says when they started nor when they end.
NO_START = 0


@dataclass(slots=True, kw_only=True)
class _Step:
    """Hold one run of a step."""

    start_seconds: int
    heard_at: float
    ended_at: float | None = None
    number: int = 0
    lost: int = 0
    last_sample_seconds: int | None = None
    measured: dict[tuple[str, str], float] = field(default_factory=dict)
    samples: dict[tuple[ProfileSeries, str], Sample] = field(default_factory=dict)


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
        """Take one event."""
        with self._lock:
            self._events[event.kind.value] += 1
            step = self._step_of(event)
            if step is None:
                return
            step.heard_at = self._clock()
            step.number = event.number
            self._lost += max(0, event.lost - step.lost)
            step.lost = max(step.lost, event.lost)
            if event.sample is not None:
                self._add(step, event.sample)
            if event.kind is EventKind.STEP_END:
                step.ended_at = step.heard_at

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
                self._add(step, add_up(sample, step.samples.get((sample.series, sample.task))))

    def end_missing(self, running: Collection[int]) -> None:
        """End the steps without a reported end whose jobs ran on this node and are not among the running ones."""
        with self._lock:
            now = self._clock()
            recent = {job: at for job, at in self._running_at.items() if now - at < self._timeout_seconds}
            self._running_at = recent | dict.fromkeys(running, now)
            for key, step in self._steps.items():
                is_gone = key.job_id in recent and key.job_id not in running
                if is_gone and step.start_seconds == NO_START and step.ended_at is None:
                    step.ended_at = now

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
        if event.start_seconds < step.start_seconds or step.ended_at is not None:
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
            # A sum over living processes: it falls when one of them ends, which a counter must not.
            is_counter = quantity == MAJOR_FAULTS
            known = step.measured.get((quantity, where), value)
            step.measured[quantity, where] = max(known, value) if is_counter else value
        step.samples[place] = sample
        # A sample that could not be sent in time is sent later, beside a newer one.
        step.last_sample_seconds = max(step.last_sample_seconds or 0, sample.time_seconds)

    def _expire(self) -> None:
        """Forget steps that are silent, and ended ones when none of their events can arrive any more."""
        now = self._clock()
        keep_seconds = max(self._timeout_seconds, self._grace_seconds)
        for key, step in list(self._steps.items()):
            is_over = step.ended_at is not None and now - step.ended_at >= keep_seconds
            is_silent = step.ended_at is None and now - step.heard_at >= self._timeout_seconds
            if is_over or is_silent:
                del self._steps[key]


def _freeze(key: StepKey, step: _Step) -> ProfiledStep:
    return ProfiledStep(
        key=key,
        has_ended=step.ended_at is not None,
        last_sample_seconds=step.last_sample_seconds,
        measured=dict(step.measured),
        samples=dict(step.samples),
    )
