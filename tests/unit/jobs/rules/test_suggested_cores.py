# SPDX-License-Identifier: Apache-2.0
"""Lines request cores and memory together where one follows from the other; figures are worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurmscope.core.tres import Gres
from slurmscope.jobs.findings import judge
from slurmscope.jobs.record import StepRecord
from slurmscope.jobs.rule import Finding
from slurmscope.jobs.summary import HeldGpu, JobSummary, NodeSummary
from tests.fakes.job_summaries import GIB, all_findings, covered, make_summary, with_cores, with_gpus

PER_CORE = "sbatch -c16 --mem-per-cpu=4G x"
WITHOUT_STEPS = (StepRecord(name="batch", state="COMPLETED", tasks=1), StepRecord(name="extern", state="COMPLETED"))
ONE_STEP = (*WITHOUT_STEPS, StepRecord(name="0", state="COMPLETED", tasks=1))


def busy(cores: float, submit_line: str, *, peak_bytes: float | None = 40 * GIB, **record: Any) -> JobSummary:
    """Make a job that kept so many of its 16 cores busy, and had 64 GiB."""
    return make_summary(
        record={"cpus": 16, "submit_line": submit_line} | record,
        busy=cores / 16,
        memory={"requested_bytes": 64 * GIB, "working_peak_bytes": peak_bytes},
        node_memory_bytes=256 * GIB,
    )


def step_of(tasks: int) -> tuple[StepRecord, ...]:
    return (StepRecord(name="0", state="COMPLETED", tasks=tasks),)


def found(summary: JobSummary, rule: str) -> Finding:
    return next(finding for finding in all_findings(summary) if finding.rule == rule)


@pytest.mark.parametrize(
    ("rule", "summary", "expected"),
    [
        # 40 GiB x 1.2 = 48 GiB: one core has them all, four have 12 GiB each.
        ("serial_code", busy(1, PER_CORE), "#SBATCH --cpus-per-task=1 --mem-per-cpu=48G"),
        ("cpu_idle", busy(4, PER_CORE), "#SBATCH --cpus-per-task=4 --mem-per-cpu=12G"),
        # The site gives 4 GiB for each core: with four there were 16 GiB, which is too little for 48 and enough for 12.
        ("cpu_idle", busy(4, "sbatch -c16 x"), "#SBATCH --cpus-per-task=4 --mem=48G"),
        ("cpu_idle", busy(4, "sbatch -c16 x", peak_bytes=10 * GIB), "#SBATCH --cpus-per-task=4"),
        # 13 GiB x 1.2 = 15.6, up to 16 GiB: just what four cores have.
        ("cpu_idle", busy(4, "sbatch -c16 x", peak_bytes=13 * GIB), "#SBATCH --cpus-per-task=4"),
        # 10 GiB x 1.2 = 12 GiB, 3 GiB for each of four.
        ("cpu_idle", busy(4, PER_CORE, peak_bytes=10 * GIB), "#SBATCH --cpus-per-task=4 --mem-per-cpu=3G"),
        # Memory per node does not go with the cores.
        ("serial_code", busy(1, "sbatch -c16 --mem=64G x"), "#SBATCH --cpus-per-task=1"),
        # What is not known, and what a job may still need, is kept.
        ("serial_code", busy(1, "sbatch -c16 x", peak_bytes=None), "#SBATCH --cpus-per-task=1 --mem=64G"),
        # 60 GiB x 1.2 = 72 GiB.
        ("serial_code", busy(1, "sbatch -c16 x", peak_bytes=60 * GIB, state="RUNNING"),
         "#SBATCH --cpus-per-task=1 --mem=72G"),
    ],
)  # fmt: skip
def test_job_keeps_its_memory_with_fewer_cores(rule: str, summary: JobSummary, expected: str) -> None:
    assert expected == found(summary, rule).suggestion


def test_cores_that_runnable_threads_waited_for_are_kept() -> None:
    # 16 threads on 4 of 16 cores: something other than their number keeps them from the other cores.
    crowded = replace(busy(4, "sbatch -c16 x"), mean_running_threads=16.0)
    assert ("", True) == (found(crowded, "cpu_idle").suggestion, "--cpu-bind" in found(crowded, "cpu_idle").advice)
    # 7.6 wanted a core on average.
    assert (
        "#SBATCH --cpus-per-task=8 --mem=48G"
        == found(replace(crowded, mean_running_threads=7.6), "cpu_idle").suggestion
    )


def test_step_that_requests_more_cores_itself_keeps_those_of_the_job() -> None:
    def idle(request: str) -> Finding:
        step = StepRecord(name="0", state="COMPLETED", tasks=1, request=request)
        return found(busy(4, "sbatch -c16 x", steps=(*WITHOUT_STEPS, step)), "cpu_idle")

    assert "#SBATCH --cpus-per-task=4 --mem=48G" == idle("--cpus-per-task=4").suggestion
    assert ("", True) == (idle("-c5").suggestion, "4 cores in all" in idle("-c5").explanation)


def test_memory_that_was_not_requested_is_not_reported() -> None:
    summary = make_summary(busy=0.25, memory={"requested_bytes": None}, record={"submit_line": "sbatch -c4 x"})

    assert "#SBATCH --cpus-per-task=1" == found(summary, "serial_code").suggestion


@pytest.mark.parametrize("submit_line", [PER_CORE, "sbatch --mem-per-cpu=4G x"])
def test_line_for_memory_per_core_is_not_given_beside_fewer_cores(submit_line: str) -> None:
    # 10 GiB x 1.2 = 12 GiB are 768 MiB for each of 16 cores: with 4 cores that were 3 GiB.
    assert "" == found(busy(4, submit_line, peak_bytes=10 * GIB), "memory_over_requested").suggestion
    assert (
        "#SBATCH --mem-per-cpu=768M"
        == found(busy(16, PER_CORE, peak_bytes=10 * GIB), "memory_over_requested").suggestion
    )


@pytest.mark.parametrize(
    ("submit_line", "steps", "expected"),
    [
        # mpirun starts its tasks without steps.
        ("sbatch --ntasks=16 --mem=64G x", WITHOUT_STEPS, "#SBATCH --ntasks=8"),
        ("sbatch -n 16 --mem=64G x", ONE_STEP, "#SBATCH --ntasks=8"),
        ("sbatch --ntasks-per-node=16 --mem=64G x", WITHOUT_STEPS, "#SBATCH --ntasks-per-node=8"),
        ("sbatch -n1 -c16 --mem=64G x", WITHOUT_STEPS, "#SBATCH --cpus-per-task=8"),
        # 4 tasks of 4 cores: neither alone makes 8.
        ("sbatch -n4 -c4 --mem=64G x", WITHOUT_STEPS, ""),
        ("sbatch -c16 --mem=64G x", (StepRecord(name="0", state="COMPLETED", tasks=4),), ""),
        ("sbatch --exclusive -c16 --mem=64G x", WITHOUT_STEPS, ""),
        # The script may hold --ntasks=16; a step of one task says that it does not.
        ("sbatch --mem=64G x", WITHOUT_STEPS, ""),
        ("sbatch --mem=64G x", ONE_STEP, "#SBATCH --cpus-per-task=8"),
        # srun would fail: a step needs its tasks.
        ("sbatch -n16 --mem=64G x", (StepRecord(name="0", state="COMPLETED", tasks=8),), "#SBATCH --ntasks=8"),
        ("sbatch -n16 --mem=64G x", (StepRecord(name="0", state="COMPLETED", tasks=10),), "#SBATCH --ntasks=10"),
    ],
)
def test_option_that_makes_up_all_cores_is_lowered(
    submit_line: str, steps: tuple[StepRecord, ...], expected: str
) -> None:
    finding = found(busy(8, submit_line, steps=steps), "cpu_idle")

    assert expected == finding.suggestion
    assert (expected == "") == finding.explanation.endswith(" 8 cores in all would have been enough.")


def test_concurrent_steps_of_one_task_do_not_mean_one_task() -> None:
    summary = make_summary(
        record={"submit_line": "sbatch --mem=8G x", "steps": ONE_STEP}, busy=0.5, memory={"slurm_peak_is_whole": False}
    )

    assert "" == found(summary, "cpu_idle").suggestion


def test_memory_is_in_the_sentence_where_the_cores_option_is_unknown() -> None:
    # 40 GiB x 1.2 = 48 GiB.
    assert found(busy(1, "sbatch x", steps=WITHOUT_STEPS), "serial_code").explanation.endswith(
        " 1 core in all with 48 GiB of memory would have been enough."
    )


def test_what_was_already_requested_is_not_suggested() -> None:
    # 3 of 16 cores were busy, up to 8 at once. Slurm gave 16 for 8 that were asked for.
    changed = {"cpus": 16, "requested_cpus": 8, "submit_line": "sbatch -c8 --mem=8G x"}
    at_8 = found(make_summary(record=changed, busy=3 / 16, cpu={"peak_cores": 8.0}), "cpu_idle")
    at_5 = found(make_summary(record=changed, busy=3 / 16, cpu={"peak_cores": 5.0}), "cpu_idle")

    assert ("", "#SBATCH --cpus-per-task=5") == (at_8.suggestion, at_5.suggestion)
    assert "Only 3 of 16 cores were busy on average: 19 % of the allocated CPU time." == at_8.explanation


def on_nodes(
    *parts: tuple[float, float | None], requested_bytes: float, record: dict[str, Any] | None = None, **memory: Any
) -> JobSummary:
    """Make a job that needed so many bytes with so many cores on each of its nodes."""
    nodes = tuple(NodeSummary(node=f"n{i}", working_peak_bytes=peak, cpus=c) for i, (peak, c) in enumerate(parts))
    cpus = round(sum(cores or 0.0 for _, cores in parts))
    told = {"working_peak_bytes": sum(peak for peak, _ in parts), "requested_bytes": requested_bytes} | memory
    changed = {"node_count": len(parts), "cpus": cpus, "submit_line": "sbatch --mem-per-cpu=20G x"} | (record or {})
    return make_summary(record=changed, memory=told, nodes=nodes, coverage=covered(len(parts)))


@pytest.mark.parametrize(
    ("summary", "expected"),
    [
        # 10 GiB x 1.2 = 12 GiB on the node that gave one core.
        (on_nodes((10 * GIB, 7.0), (10 * GIB, 1.0), requested_bytes=160 * GIB), "#SBATCH --mem-per-cpu=12G"),
        # 10 x 1.2 = 12 GiB on 4 cores are 3; 2 x 1.2 = 2.4, up to 2.5 GiB on 2 cores are 1.25.
        (on_nodes((10 * GIB, 4.0), (2 * GIB, 2.0), requested_bytes=120 * GIB), "#SBATCH --mem-per-cpu=3G"),
        # 12 GiB for each of 8 cores are 96 GiB: no less than was asked for.
        (on_nodes((10 * GIB, 7.0), (10 * GIB, 1.0), requested_bytes=96 * GIB), ""),
        (on_nodes((10 * GIB, 7.0), (10 * GIB, None), requested_bytes=160 * GIB), ""),
        # Slurm saw 15 GiB in one task, on either node: 18 GiB for 2 cores.
        (on_nodes((10 * GIB, 4.0), (2 * GIB, 2.0), requested_bytes=120 * GIB, slurm_peak_bytes=15 * GIB),
         "#SBATCH --mem-per-cpu=9G"),
        (on_nodes((10 * GIB, 4.0), (2 * GIB, 2.0), requested_bytes=120 * GIB, slurm_peak_bytes=9 * GIB),
         "#SBATCH --mem-per-cpu=3G"),
        (on_nodes((10 * GIB, 4.0), (2 * GIB, 4.0), requested_bytes=160 * GIB, slurm_peak_bytes=15 * GIB,
                  record={"submit_line": "sbatch --mem=80G x"}), "#SBATCH --mem=18G"),
    ],
)  # fmt: skip
def test_less_memory_is_enough_for_the_neediest_node(summary: JobSummary, expected: str) -> None:
    assert expected == found(summary, "memory_over_requested").suggestion


def test_more_memory_is_suggested_per_core_where_the_job_requested_it_so() -> None:
    killed = busy(16, PER_CORE, state="OUT_OF_MEMORY")
    near = on_nodes((20 * GIB, 1.0), requested_bytes=20 * GIB)
    unknown = on_nodes((20 * GIB, None), requested_bytes=20 * GIB)

    # 64 GiB x 2 = 128 GiB for 16 cores; 20 GiB x 1.2 = 24 GiB for one.
    assert "#SBATCH --mem-per-cpu=8G" == found(killed, "oom_kill").suggestion
    assert "#SBATCH --mem-per-cpu=24G" == found(near, "memory_near_limit").suggestion
    assert "" == found(unknown, "memory_near_limit").suggestion


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("-G 4", "#SBATCH --gpus=3"),
        ("--gpus=a100:4", "#SBATCH --gpus=a100:3"),
        ("--gres=gpu:4", "#SBATCH --gres=gpu:3"),
        ("--gres=tmpfs:44G,gres/gpu:a100:4", "#SBATCH --gres=tmpfs:44G,gres/gpu:a100:3"),
        ("--gres=gpu:4,tmpfs:100G", "#SBATCH --gres=gpu:3,tmpfs:100G"),
        ("--gpus-per-node=4 --gres=tmpfs:1G", "#SBATCH --gpus-per-node=3"),
        # Of which model one should be left out is unknown.
        ("--gpus=a100:2,h100:2", ""),
        ("--gres=gpu:a100:2,gpu:h100:2", ""),
        ("--gres=gpu:4 --gpus=4", ""),
        ("--gpus=4 --ntasks-per-gpu=1", ""),
        ("--gres=gpumem:4", ""),
        # The script may request them by any option.
        ("", ""),
    ],
)
def test_fewer_gpus_are_requested_as_the_job_did(options: str, expected: str) -> None:
    record = {"gres": (Gres(name="gpu", count=4),), "submit_line": f"sbatch --mem=8G {options} x.sh"}
    summary = make_summary(record=record, gpu=with_gpus(4, held_idle=1).gpu)

    assert expected == found(summary, "gpu_held_without_process").suggestion


def test_more_time_is_suggested_to_a_job_that_was_suspended_before_its_limit() -> None:
    changed = {"state": "TIMEOUT", "suspended_seconds": 3600}

    # 3 h x 1.5.
    assert (
        "#SBATCH --time=04:30:00"
        == found(make_summary(record=changed, cpu={"idle_tail_seconds": 3600.0}), "timed_out").suggestion
    )


@pytest.mark.parametrize("submit_line", ["sbatch --mem=64G x", "sbatch -n16 --mem=64G x"])
def test_line_does_not_request_fewer_tasks_than_a_step_had(submit_line: str) -> None:
    steps = (StepRecord(name="0", state="COMPLETED", tasks=16),)
    assert "" == found(busy(8, submit_line, steps=steps), "cpu_idle").suggestion


def test_tasks_of_a_step_that_had_nothing_to_do_are_not_left_out() -> None:
    steps = (StepRecord(name="0", state="COMPLETED", tasks=4),)
    summary = make_summary(busy=0.25, record={"steps": steps, "submit_line": "sbatch -n4 --mem=8G x"})
    serial = found(summary, "serial_code")

    assert "1 of 4 cores were busy on average, although a step had 4 tasks" in serial.explanation
    assert ("", True) == (serial.suggestion, "built with MPI" in serial.advice)
    # Half of the cores would do for the work, but not for the step.
    idle = found(replace(summary, cpu=make_summary(busy=0.5).cpu), "cpu_idle")
    assert ("", True) == (idle.suggestion, "built with MPI" in idle.advice)


def test_threads_bound_to_one_core_are_no_serial_program() -> None:
    pinned = found(replace(busy(1, "sbatch -c16 --mem=64G x"), mean_running_threads=8.0), "serial_code")

    assert "8 threads were runnable on average, but only 1 of 16 cores were busy" in pinned.explanation
    assert ("", True) == (pinned.suggestion, "OMP_PROC_BIND" in pinned.advice)
    single = found(replace(busy(1, "sbatch -c16 --mem=64G x"), mean_running_threads=1.0), "serial_code")
    assert "#SBATCH --cpus-per-task=1" == single.suggestion


@pytest.mark.parametrize(("threads", "tasks"), [(8.0, 1), (1.0, 4)])
def test_idle_cores_follow_from_threads_on_one_core_and_from_idle_tasks(threads: float, tasks: int) -> None:
    # The second core did next to nothing: of two cores left, it would still be behind.
    summary = replace(
        with_cores(7200.0, 9.0, 0.0, 0.0, busy=0.25, record={"steps": step_of(tasks)}), mean_running_threads=threads
    )
    (serial,) = judge(summary)
    assert ("serial_code", {"cpu_idle", "core_imbalance"}) == (serial.rule, {each.rule for each in serial.consequences})


def test_gpus_that_were_not_requested_do_not_silence_rules_about_cores() -> None:
    gpus = (Gres(name="gpu", count=4),)
    exclusive = make_summary(
        busy=0.25, record={"gres": gpus, "requested_gpus": 0, "submit_line": "sbatch --exclusive x"}
    )

    assert "serial_code" in {finding.rule for finding in all_findings(exclusive)}
    for requested in (None, 4):
        record = replace(exclusive.record, requested_gpus=requested)
        assert "serial_code" not in {finding.rule for finding in all_findings(replace(exclusive, record=record))}


def test_cores_of_a_job_that_did_nothing_did_no_work() -> None:
    idle = make_summary(busy=0.01, cpu={"cores_used": 1})
    assert "did nearly all of the work" not in found(idle, "cpu_idle").explanation
    some = make_summary(busy=0.5, cpu={"cores_used": 2})
    assert "2 cores did nearly all of the work" in found(some, "cpu_idle").explanation


def test_memory_per_gpu_stays_memory_per_gpu() -> None:
    # 1 GiB x 1.2 = 1.25 GiB for two GPUs: Slurm rejects --mem beside --mem-per-gpu.
    record = {"submit_line": "sbatch --gpus=2 --mem-per-gpu=4G x", "gres": (Gres(name="gpu", count=2),)}
    summary = make_summary(record=record, memory={"working_peak_bytes": GIB})
    assert "#SBATCH --mem-per-gpu=640M" == found(summary, "memory_over_requested").suggestion
    killed = make_summary(record=record | {"state": "OUT_OF_MEMORY"})
    assert "#SBATCH --mem-per-gpu=8G" == found(killed, "oom_kill").suggestion


def test_smallest_amount_does_not_raise_a_smaller_request() -> None:
    # 300 MiB for 4 cores; 50 MiB were needed, and one core would get 75.
    memory = {"requested_bytes": 300.0 * (1 << 20), "working_peak_bytes": 50.0 * (1 << 20)}
    summary = make_summary(busy=0.25, memory=memory, record={"submit_line": "sbatch -c4 x"})
    assert "#SBATCH --cpus-per-task=1 --mem=300M" == found(summary, "serial_code").suggestion


@pytest.mark.parametrize(("threads", "expected"), [(8.0, False), (8.1, True)])
def test_threads_are_bound_to_few_cores_where_more_than_two_wanted_each(threads: float, expected: bool) -> None:
    # 16 tasks need their 16 cores, of which 4 were busy.
    steps = (StepRecord(name="0", state="COMPLETED", tasks=16),)
    summary = replace(busy(4, "sbatch -n16 --mem=64G x", steps=steps), mean_running_threads=threads)

    assert expected == ("--cpu-bind" in found(summary, "cpu_idle").advice)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("-n8 --ntasks-per-node=8", "#SBATCH --ntasks=2 --ntasks-per-node=2"),
        ("-n8", "#SBATCH --ntasks=2"),
        # slurmctld 22.05 allocates 8 cores to -c2 --mincpus=8.
        ("-n8 --mincpus=8", ""),
    ],
)
def test_line_for_fewer_cores_leaves_no_option_that_requests_them_again(options: str, expected: str) -> None:
    # slurmctld 22.05 allocates 8 cores to --ntasks=2 --ntasks-per-node=8.
    summary = make_summary(record={"submit_line": f"sbatch --mem=8G {options} x.sh", "cpus": 8}, busy=0.25)

    assert expected == found(summary, "cpu_idle").suggestion


@pytest.mark.parametrize(("options", "has_line"), [("", True), ("-w n[1-4]", False), ("--nodefile=nodes", False)])
def test_fewer_nodes_than_a_job_lists_are_not_suggested(options: str, has_line: bool) -> None:
    # sbatch 22.05: "invalid number of nodes (-N 2-1)".
    record = {"node_count": 4, "cpus": 8, "submit_line": f"sbatch -N4 --ntasks-per-node=2 --mem=1G {options} x.sh"}
    summary = make_summary(record=record, memory={"requested_bytes": 4 * GIB, "working_peak_bytes": 3 * GIB})

    assert has_line == bool(found(summary, "too_many_nodes").suggestion)


@pytest.mark.parametrize(("held", "expected"), [(60.0, "#SBATCH --gpus=1"), (140.0, "")])
def test_gpu_whose_memory_is_needed_is_not_left_out(held: float, expected: str) -> None:
    used = (HeldGpu(node="n1", gpu="0", mean_utilization=0.7), HeldGpu(node="n1", gpu="1", mean_utilization=0.0))
    memory = {"peak_memory_bytes": held * GIB, "memory_size_bytes": 160 * GIB}
    gpu = with_gpus(2, devices=used, mean_utilization=0.35, **memory).gpu
    record = {"gres": (Gres(name="gpu", count=2),), "submit_line": "sbatch --gpus=2 --mem=8G x.sh"}

    assert expected == found(make_summary(record=record, gpu=gpu), "gpu_some_idle").suggestion
