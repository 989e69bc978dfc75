# SPDX-License-Identifier: Apache-2.0
"""Check the summary of Slurm's own samples against examples that are worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping

from slurmscope.jobs.process_samples import MAX_STEPS, MAX_TASKS
from slurmscope.jobs.processes import ProfileComparison, ProfileSummary, StepProfile, TaskProfile
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.series import Measured
from slurmscope.jobs.summarize import summarize
from tests.fakes.measured import curve, measure_nodes
from tests.fakes.reports import START, make_record

NOW = START + 10_000.0
GIB = float(1 << 30)
ON_TWO_NODES = make_record(nodes=("n1", "n2"), node_count=2, cpus=8)

Values = Mapping[tuple[str, ...], float]


def profile_of(measured: Measured, record: JobRecord = ON_TWO_NODES) -> ProfileSummary:
    return summarize(record, measured, now_seconds=NOW).profile


def sampled(**totals: Values) -> Measured:
    """Return samples by the names of their queries, without the prefix."""
    return Measured(totals={f"profiled_{name}": values for name, values in totals.items()})


def test_job_without_samples_has_none() -> None:
    assert ProfileSummary() == profile_of(measure_nodes({"n1": 2.0, "n2": 2.0}))


def test_tasks_and_steps_have_their_numbers() -> None:
    found = profile_of(
        sampled(
            cpu={("n1", "0", "0"): 10.0, ("n2", "0", "1"): 5.0},
            memory={("n1", "0", "0"): GIB, ("n2", "0", "1"): 2 * GIB},
            read={("n1", "0", "0"): 7.0},
            write={("n1", "0", "0"): 0.0, ("n2", "0", "1"): 4.0},
            gpu={("n1", "0", "0"): 0.5, ("n2", "0", "1"): 1.0},
            gpu_memory={("n1", "0", "0"): 3.0, ("n2", "0", "1"): 4.0},
            power={("n1", "0", "node"): 300.0, ("n2", "0", "node"): 200.0, ("n2", "0", "GPU0"): 90.0},
            lustre_read={("n1", "0"): 1.0, ("n2", "0"): 2.0},
            lustre_write={("n1", "0"): 3.0},
            received={("n1", "0"): 4.0},
            sent={("n1", "0"): 5.0, ("n1", "1"): 6.0},
        )
    )
    step = StepProfile(
        step="0", tasks=2, nodes=("n1", "n2"), cpu_seconds=15.0, peak_task_memory_bytes=2 * GIB, read_bytes=7.0,
        write_bytes=4.0, mean_gpus=1.5, peak_gpu_memory_bytes=7.0, mean_power_watts={"node": 500.0, "GPU0": 90.0},
        lustre_read_bytes=3.0, lustre_write_bytes=3.0, received_bytes=4.0, sent_bytes=5.0,
    )  # fmt: skip
    tasks = (
        TaskProfile(
            node="n1", step="0", task="0", cpu_seconds=10.0, peak_memory_bytes=GIB, read_bytes=7.0, write_bytes=0.0,
            mean_gpus=0.5, peak_gpu_memory_bytes=3.0,
        ),
        TaskProfile(
            node="n2", step="0", task="1", cpu_seconds=5.0, peak_memory_bytes=2 * GIB, write_bytes=4.0, mean_gpus=1.0,
            peak_gpu_memory_bytes=4.0,
        ),
    )  # fmt: skip

    assert (step, StepProfile(step="1", sent_bytes=6.0)) == found.steps
    assert (tasks, 0, 0) == (found.tasks, found.other_steps, found.other_tasks)


def test_steps_are_in_the_order_of_their_numbers_after_those_with_names() -> None:
    names = ("10", "9", "2+1", "2", "extern", "batch", "9" * 5000)
    found = profile_of(sampled(cpu={("n1", name, "0"): 1.0 for name in names}))

    assert ["9" * 5000, "batch", "extern", "2", "2+1", "9", "10"] == [step.step for step in found.steps]


def test_steps_are_bounded_and_others_counted() -> None:
    found = profile_of(sampled(cpu={("n1", str(step), "0"): float(step) for step in range(500)}))

    assert [str(500 - MAX_STEPS + place) for place in range(MAX_STEPS)] == [step.step for step in found.steps]
    assert (500 - MAX_STEPS, 0) == (found.other_steps, found.other_tasks)


def test_tasks_are_bounded_and_the_step_has_all_of_them() -> None:
    found = profile_of(sampled(cpu={("n1", "0", str(task)): float(task) for task in range(100)}))

    assert [str(100 - MAX_TASKS + place) for place in range(MAX_TASKS)] == [task.task for task in found.tasks]
    assert (100 - MAX_TASKS, 100, 4950.0) == (found.other_tasks, found.steps[0].tasks, found.steps[0].cpu_seconds)


def test_sample_of_no_node_of_the_job_is_left_out() -> None:
    assert ProfileSummary() == profile_of(sampled(cpu={("n9", "0", "0"): 5.0}))


def test_samples_are_compared_with_the_agents_on_the_nodes_that_have_both() -> None:
    """The agents measured 2 and 1 cores for 7,200 s, with 1.1 GB of memory on each node."""
    agents = measure_nodes({"n1": 2.0, "n2": 1.0}, memory_bytes=1e9)
    samples = sampled(
        cpu={("n1", "0", "0"): 9_000.0, ("n1", "1", "0"): 5_000.0},
        read={("n1", "0", "0"): 3.0, ("n2", "0", "1"): 4.0},
        write={("n1", "0", "0"): 1.0},
    )
    totals: dict[str, Values] = {
        **agents.totals,
        **samples.totals,
        "read": {("n1",): 5.0, ("n2",): 6.0},
        "write": {("n2",): 6.0},
    }
    curves = {**agents.curves, "profiled_memory_node": (curve(("n1",), 5e8), curve(("n2",), 6e8))}
    found = profile_of(Measured(curves=curves, totals=totals)).comparisons

    assert (
        ProfileComparison(quantity="cpu_seconds", sampled=14_000.0, measured=14_400.0),
        ProfileComparison(quantity="memory_bytes", sampled=1.1e9, measured=2.2e9),
        ProfileComparison(quantity="read_bytes", sampled=7.0, measured=11.0),
    ) == found


def test_step_without_cpu_time_is_the_first_to_be_left_out() -> None:
    # Half a second of CPU time is more than none, whatever the step sent or which sensors it has.
    busy: Values = {("n1", str(step), "0"): 0.5 for step in range(2, MAX_STEPS + 2)}
    quiet = sampled(cpu=busy, sent={("n1", "0"): 9.0}, power={("n1", "1", "node"): 300.0})
    found = profile_of(quiet)

    assert [str(step) for step in range(2, MAX_STEPS + 2)] == [step.step for step in found.steps]
    assert 2 == found.other_steps
    without = profile_of(sampled(cpu=busy, memory={("n1", "0", "0"): GIB}))
    assert "0" not in {step.step for step in without.steps}
