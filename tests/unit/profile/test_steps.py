# SPDX-License-Identifier: Apache-2.0
"""Events become the numbers of steps, and nothing is left of a step that has ended."""

from __future__ import annotations

from slurmscope.profile import steps as profile_steps
from slurmscope.profile.events import (
    EventKind,
    ProfiledStep,
    ProfileEvent,
    ProfileSeries,
    Sample,
    SampledField,
    StepKey,
)
from slurmscope.profile.steps import ProfileSteps

KEY = StepKey(12, "0", "n1")
GRACE_SECONDS, TIMEOUT_SECONDS = 60.0, 600.0


class Steps(ProfileSteps):
    """Steps with a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__(grace_seconds=GRACE_SECONDS, timeout_seconds=TIMEOUT_SECONDS, clock=lambda: self.now)
        self.number = 0

    def send(
        self,
        kind: EventKind,
        sample: Sample | None = None,
        *,
        key: StepKey = KEY,
        start: int = 1,
        lost: int = 0,
        task: str = "",
    ) -> None:
        """Handle the next event of a step."""
        self.number += 1
        event = ProfileEvent(
            kind=kind,
            key=key,
            uid=1,
            start_seconds=start,
            number=self.number,
            lost=lost,
            sample=sample,
            task=task,
        )
        self.handle(event)

    def sample(self, time: int, *, start: int = 1, lost: int = 0, **fields: tuple[float, float]) -> None:
        """Handle a sample of task 1."""
        self.send(EventKind.SAMPLE, task_sample(time, **fields), start=start, lost=lost)

    def only(self) -> ProfiledStep:
        """Return the only step."""
        (step,) = self.snapshot().steps
        return step


def task_sample(time: int, task: str = "1", /, **fields: tuple[float, float]) -> Sample:
    """Return a sample of a task."""
    known = {name: SampledField(*both) for name, both in fields.items()}
    return Sample(series=ProfileSeries.TASKS, task=task, time_seconds=time, fields=known)


def test_counters_are_the_sums_that_the_plugin_sends() -> None:
    steps = Steps()
    steps.sample(10, CPUTime=(1.0, 1.0))
    steps.sample(14, CPUTime=(2.0, 9.0), lost=2)  # two samples were lost, no CPU time was

    assert {("task_cpu_seconds", "1"): 9.0} == steps.only().measured
    assert 14 == steps.only().last_sample_seconds
    assert 2 == steps.snapshot().lost


def test_second_sample_of_the_same_second_keeps_the_load() -> None:
    """Slurm samples again when a task ends, and divides by no time."""
    steps = Steps()
    steps.sample(10, CPUTime=(2.0, 2.0), CPUUtilization=(100.0, 100.0), RSS=(1.0, 1.0))
    steps.sample(10, CPUTime=(0.5, 2.5), CPUUtilization=(0.0, 100.0), RSS=(2.0, 3.0))

    expected = {("task_cpu_seconds", "1"): 2.5, ("task_busy_cores", "1"): 1.0, ("task_resident_bytes", "1"): 2048.0}
    assert expected == steps.only().measured


def test_task_that_ended_keeps_no_core_busy() -> None:
    """Its totals stay, its memory for the grace period, as that of an ended step; the other task goes on."""
    steps = Steps()
    busy = {"CPUTime": (2.0, 2.0), "CPUUtilization": (100.0, 100.0), "CPUFrequency": (2e3, 2e3), "RSS": (1.0, 1.0)}
    for task in "1", "2":
        steps.send(EventKind.SAMPLE, task_sample(10, task, **busy))
    steps.send(EventKind.TASK_END, task="1")
    # Sent again, since it was lost before.
    steps.send(EventKind.SAMPLE, task_sample(10, "1", **(busy | {"CPUTime": (2.0, 4.0)})))

    ended = {("task_cpu_seconds", "1"): 4.0}
    other = {
        ("task_cpu_seconds", "2"): 2.0,
        ("task_busy_cores", "2"): 1.0,
        ("task_cpu_frequency_hertz", "2"): 2e9,
        ("task_resident_bytes", "2"): 1024.0,
    }
    assert {**ended, ("task_resident_bytes", "1"): 1024.0, **other} == steps.only().measured
    steps.now += GRACE_SECONDS
    steps.send(EventKind.SAMPLE, task_sample(70, "2", **busy))
    assert {**ended, **other} == steps.only().measured
    assert [(ProfileSeries.TASKS, "2")] == list(steps.only().samples)


def test_step_that_ended_keeps_no_core_busy() -> None:
    """The end of a task may be lost, and Slurm 25.05 does not report that of the extern step."""
    steps = Steps()
    steps.sample(10, CPUTime=(2.0, 2.0), CPUUtilization=(100.0, 100.0), RSS=(1.0, 1.0))
    steps.send(EventKind.STEP_END)

    assert {("task_cpu_seconds", "1"): 2.0, ("task_resident_bytes", "1"): 1024.0} == steps.only().measured


def test_page_faults_of_ended_processes_do_not_make_a_counter_fall() -> None:
    steps = Steps()
    steps.sample(10, Pages=(7.0, 7.0))
    steps.sample(12, Pages=(3.0, 10.0))

    assert {("task_major_faults", "1"): 7.0} == steps.only().measured


def test_repeated_event_is_dropped_and_counted() -> None:
    steps = Steps()
    steps.sample(10, CPUTime=(1.0, 1.0))
    steps.number -= 1
    steps.sample(10, CPUTime=(1.0, 5.0))

    assert {("task_cpu_seconds", "1"): 1.0} == steps.only().measured
    assert 1 == steps.snapshot().rejected["repeated"]


def test_impossible_field_costs_only_itself() -> None:
    steps = Steps()
    steps.sample(10, CPUTime=(float("inf"), 1.0), RSS=(1.0, 1.0))

    assert {("task_resident_bytes", "1"): 1024.0} == steps.only().measured
    assert 1 == steps.snapshot().rejected["value"]


def test_ended_step_is_served_for_the_grace_period_only() -> None:
    steps = Steps()
    steps.sample(10, CPUTime=(1.0, 1.0))
    steps.send(EventKind.STEP_END)
    steps.now += GRACE_SECONDS - 1
    assert steps.only().has_ended
    steps.now += 1

    assert () == steps.snapshot().steps


def test_late_sample_does_not_revive_an_ended_step() -> None:
    """Energy is sampled by a thread of its own, which may be late."""
    steps = Steps()
    steps.send(EventKind.STEP_END)
    steps.now += GRACE_SECONDS
    steps.sample(10, CPUTime=(1.0, 1.0))

    assert ((), 1) == (steps.snapshot().steps, steps.snapshot().rejected["late"])


def test_step_whose_end_was_lost_times_out() -> None:
    steps = Steps()
    steps.sample(10, CPUTime=(1.0, 1.0))
    steps.now += TIMEOUT_SECONDS - 1
    assert not steps.only().has_ended
    steps.now += 1

    assert () == steps.snapshot().steps


def test_silent_step_returns_with_its_totals() -> None:
    """The agent was restarted, or the sampling interval is longer than the timeout."""
    steps = Steps()
    steps.sample(10, CPUTime=(1.0, 1.0))
    steps.now += TIMEOUT_SECONDS
    assert () == steps.snapshot().steps
    steps.sample(900, CPUTime=(1.0, 40.0), lost=3)

    assert {("task_cpu_seconds", "1"): 40.0} == steps.only().measured


def test_requeued_job_starts_again() -> None:
    """It has the same job and step; events of the first run may still arrive."""
    steps = Steps()
    steps.sample(10, CPUTime=(1.0, 50.0), RSS=(1.0, 1.0))
    steps.send(EventKind.STEP_END)
    steps.number = 0
    steps.sample(20, CPUTime=(1.0, 1.0), start=2)
    steps.sample(11, CPUTime=(1.0, 51.0), start=1)

    assert {("task_cpu_seconds", "1"): 1.0} == steps.only().measured
    assert (False, 1) == (steps.only().has_ended, steps.snapshot().rejected["late"])


def test_sample_that_is_sent_late_moves_no_time_backwards() -> None:
    """A sample that did not fit into the kernel's queue is sent again beside a newer one."""
    steps = Steps()
    steps.send(EventKind.SAMPLE, task_sample(12, "0", CPUTime=(1.0, 5.0)))
    steps.send(EventKind.SAMPLE, task_sample(10, "1", CPUTime=(1.0, 4.0)))

    assert (12, 4.0) == (steps.only().last_sample_seconds, steps.only().measured["task_cpu_seconds", "1"])


def test_steps_and_tasks_are_apart() -> None:
    steps = Steps()
    steps.send(EventKind.SAMPLE, task_sample(1, "0", RSS=(1.0, 1.0)))
    steps.send(EventKind.SAMPLE, task_sample(1, "1", RSS=(2.0, 2.0)))
    steps.send(EventKind.SAMPLE, task_sample(1, "0", RSS=(4.0, 4.0)), key=StepKey(12, "1", "n1"))

    measured = [dict(step.measured) for step in steps.snapshot().steps]
    assert [
        {("task_resident_bytes", "0"): 1024.0, ("task_resident_bytes", "1"): 2048.0},
        {("task_resident_bytes", "0"): 4096.0},
    ] == measured


def test_number_of_steps_is_limited_until_old_ones_are_gone() -> None:
    steps = Steps()
    for job_id in range(profile_steps.MAX_STEPS + 1):
        steps.send(EventKind.STEP_START, key=StepKey(job_id, "0", "n1"))
    assert profile_steps.MAX_STEPS == len(steps.snapshot().steps)
    assert 1 == steps.snapshot().rejected["limit"]
    steps.now += TIMEOUT_SECONDS
    steps.send(EventKind.STEP_START)

    assert KEY == steps.only().key


def test_number_of_tasks_is_limited() -> None:
    steps = Steps()
    for task in range(profile_steps.MAX_SERIES_PER_STEP + 1):
        steps.send(EventKind.SAMPLE, task_sample(1, str(task), RSS=(1.0, 1.0)))

    assert profile_steps.MAX_SERIES_PER_STEP == len(steps.only().samples)
    assert 1 == steps.snapshot().rejected["limit"]


def test_events_are_counted_by_kind() -> None:
    steps = Steps()
    steps.send(EventKind.STEP_START)
    steps.send(EventKind.TASK_END)
    steps.reject("sender")

    expected = {"step_start": 1, "dataset": 0, "sample": 0, "task_end": 1, "step_end": 0}
    assert (expected, 1) == (steps.snapshot().events, steps.snapshot().rejected["sender"])


def difference(steps: Steps, time: int, task: str = "1", /, *, key: StepKey = KEY, **values: float) -> None:
    """Handle a sample of a task whose fields are not added up."""
    steps.handle_difference(key, task_sample(time, task, **{name: (value, value) for name, value in values.items()}))


def test_differences_are_added_up() -> None:
    steps = Steps()
    difference(steps, 10, CPUTime=1.5, RSS=8.0)
    difference(steps, 12, CPUTime=2.0, RSS=4.0)
    difference(steps, 12, CPUTime=0.5, RSS=2.0)  # again, because another task has ended
    difference(steps, 12, "0", CPUTime=7.0)

    expected = {
        ("task_cpu_seconds", "1"): 4.0,
        ("task_resident_bytes", "1"): 2048.0,
        ("task_cpu_seconds", "0"): 7.0,
    }
    assert (expected, 4) == (steps.only().measured, steps.snapshot().events["sample"])


def test_impossible_difference_is_not_added() -> None:
    steps = Steps()
    for value in (1.5, float("inf"), float("nan"), -1.0, 1e300, 2.0):
        difference(steps, 10, CPUTime=value)

    assert ({("task_cpu_seconds", "1"): 3.5}, 4) == (steps.only().measured, steps.snapshot().rejected["value"])


def test_step_without_a_reported_end_ends_with_its_job() -> None:
    steps = Steps()
    difference(steps, 10, CPUTime=1.0)
    steps.end_missing({13})  # the agent has not found the job yet
    assert not steps.only().has_ended
    steps.end_missing({12, 13})
    assert not steps.only().has_ended
    steps.end_missing({13})

    assert steps.only().has_ended
    steps.now += GRACE_SECONDS
    assert () == steps.snapshot().steps


def test_step_that_first_writes_when_it_ends_ends_with_its_job() -> None:
    """As the batch step does, which is sampled rarely; meanwhile its job may be gone."""
    steps = Steps()
    steps.end_missing({12})
    steps.end_missing(())
    difference(steps, 10, CPUTime=1.0)
    difference(steps, 10, key=StepKey(13, "0", "n1"), CPUTime=1.0)
    steps.end_missing(())

    assert {12: True, 13: False} == {step.key.job_id: step.has_ended for step in steps.snapshot().steps}


def test_last_write_may_arrive_after_the_job_was_missed() -> None:
    steps = Steps()
    difference(steps, 10, CPUTime=1.0)
    steps.end_missing({12})
    steps.end_missing(())
    steps.now += 1
    difference(steps, 11, CPUTime=1.0)
    assert (False, 2.0) == (steps.only().has_ended, steps.only().measured["task_cpu_seconds", "1"])
    steps.end_missing(())

    assert steps.only().has_ended


def test_requeued_job_without_a_reported_start_starts_again() -> None:
    steps = Steps()
    difference(steps, 10, CPUTime=50.0)
    steps.end_missing({12})
    steps.end_missing(())
    steps.now += GRACE_SECONDS
    difference(steps, 130, CPUTime=1.0)

    assert {("task_cpu_seconds", "1"): 1.0} == steps.only().measured


def test_step_whose_reported_end_was_lost_ends_with_its_job() -> None:
    """Its last samples may arrive after the job was missed, and the end after them."""
    steps = Steps()
    steps.sample(10, CPUTime=(1.0, 1.0))
    steps.end_missing({12})
    steps.end_missing(())
    assert steps.only().has_ended
    steps.sample(12, CPUTime=(1.0, 2.0))
    assert (False, 2.0) == (steps.only().has_ended, steps.only().measured["task_cpu_seconds", "1"])
    steps.end_missing(())
    steps.send(EventKind.STEP_END)
    steps.sample(13, CPUTime=(1.0, 3.0))

    assert (True, 1) == (steps.only().has_ended, steps.snapshot().rejected["late"])


def test_number_of_steps_is_limited_for_differences_too() -> None:
    steps = Steps()
    for job_id in range(profile_steps.MAX_STEPS + 1):
        difference(steps, 10, key=StepKey(job_id, "0", "n1"), CPUTime=1.0)

    assert (profile_steps.MAX_STEPS, 1) == (len(steps.snapshot().steps), steps.snapshot().rejected["limit"])
