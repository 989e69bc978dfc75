# SPDX-License-Identifier: Apache-2.0
"""Check that a simulated history looks like a real one, and that each kind of workload is detected by its rule."""

import math
import re
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from slurmscope.core.tres import Gres
from slurmscope.jobs.findings import RULES, judge
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.rule import Finding
from slurmscope.jobs.summarize import summarize
from slurmscope.reports.make import measure
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape
from slurmscope.simulator.history.accounting import SimulatedAccounting, record_of
from slurmscope.simulator.history.history import History, PastJob
from slurmscope.simulator.history.requests import ENDINGS, GPU_KINDS, SHARES, draw_request
from slurmscope.simulator.history.workload_kinds import WorkloadKind, make_workload
from slurmscope.simulator.history.workload_series import SimulatedSeries
from slurmscope.simulator.history.workloads import ProgramKind
from tests.fakes.reports import START, make_record

NOW = 1_790_000_000
CLUSTER = simulate(Shape(), now=NOW)
PAST = History(CLUSTER, jobs=400).make()

EXPECTED: dict[WorkloadKind, set[str]] = {
    WorkloadKind.GOOD: {""},
    WorkloadKind.GPU_GOOD: {""},
    WorkloadKind.FAILED: {""},
    WorkloadKind.CANCELLED: {""},
    # A single busy core is a serial program; of several, the others were not needed.
    WorkloadKind.IDLE: {"serial_code(cpu_idle, core_imbalance)", "cpu_idle(core_imbalance)"},
    WorkloadKind.SERIAL: {"serial_code(cpu_idle, core_imbalance)"},
    # All cores are busy at times: fewer would not do.
    WorkloadKind.BURSTY: {"cpu_uneven_over_time(cpu_idle)"},
    # A quarter of the cores at half of the load leaves about 80 % busy.
    WorkloadKind.CORE_IMBALANCE: {"core_imbalance", "core_imbalance(cpu_idle)"},
    # The first node works as it should: cores and memory of the others are idle.
    WorkloadKind.NODE_IMBALANCE: {"node_imbalance(memory_over_requested, cpu_idle)"},
    WorkloadKind.SPREAD: {"too_many_nodes"},
    WorkloadKind.LEAKING: {"memory_growing"},
    # That memory grew is a sentence of the finding.
    WorkloadKind.OUT_OF_MEMORY: {"oom_kill"},
    WorkloadKind.NEAR_LIMIT: {"memory_near_limit"},
    WorkloadKind.MEMORY_OVER_REQUESTED: {"memory_over_requested"},
    WorkloadKind.TIME_OVER_REQUESTED: {"time_over_requested"},
    WorkloadKind.TIMED_OUT: {"timed_out"},
    # With one core, the load does not vary.
    WorkloadKind.STOPPED_EARLY: {"stopped_early(cpu_idle)", "stopped_early(cpu_idle, cpu_uneven_over_time)"},
    WorkloadKind.TOO_SHORT: {"too_short"},
    WorkloadKind.SMALL_FILES: {"small_files"},
    WorkloadKind.TINY_REQUESTS: {"tiny_requests(kernel_time)"},
    WorkloadKind.SCRATCH_UNUSED: {"scratch_unused"},
    WorkloadKind.MANY_THREADS: {"too_many_threads"},
    WorkloadKind.GPU_IDLE: {"gpu_idle"},
    # One of four GPUs, or none at all, gives a low mean; one of two does not.
    WorkloadKind.GPU_HELD: {"gpu_held_without_process", "gpu_held_without_process(gpu_low)"},
    WorkloadKind.GPU_LOW: {"gpu_low"},
    WorkloadKind.NODE_FAILED: {"node_failed"},
}
"""The findings that jobs of a kind may have, with their consequences in parentheses: reviewed by hand."""
OF_PROGRAMS: dict[ProgramKind, set[str]] = {
    ProgramKind.TRAINING: {""},
    ProgramKind.FP32: {"gpu_tensor_unused"},
    ProgramKind.MEMORY_BOUND: {"gpu_memory_bound"},
    ProgramKind.LAUNCH_BOUND: {"gpu_launch_bound"},
    ProgramKind.COPIES: {"gpu_only_copies"},
    ProgramKind.STARVED: {"gpu_starved", "gpu_starved(core_imbalance)"},
    ProgramKind.SOME_IDLE: {"gpu_some_idle", "gpu_some_idle(gpu_low)"},
    ProgramKind.UNUSED_MEMORY: {"gpu_unused_memory"},
    ProgramKind.STUCK: {"gpu_stuck"},
    ProgramKind.THROTTLED: {"gpu_throttled"},
    ProgramKind.BAD_POINTER: {"gpu_fault"},
    ProgramKind.LOST: {"gpu_fault"},
}
"""The findings of jobs whose program does this with their GPUs."""
NOT_MEASURED = {
    "metadata_storm", "gpu_busy_without_work", "network_fallback", "process_held", "straggler", "node_oversubscribed",
    "part_stopped", "cpu_queued", "memory_thrashing", "lost_since_checkpoint",
}  # fmt: skip
"""No agent counts requests to a file system yet. Nor do simulated jobs hang, swap, wait for a core or write
checkpoints."""


def job_of(kind: WorkloadKind, seed: int, program: ProgramKind = ProgramKind.TRAINING, gpus: int = 0) -> PastJob:
    """Make an ended job of one kind as the history does."""
    random = Random(f"test {seed}")
    requested = draw_request(random, kind)
    requested = replace(requested, gpus=gpus or requested.gpus)
    state, exit_code, exit_signal = ENDINGS.get(kind, ("COMPLETED", 0, 0))
    record = make_record(
        4711 + seed,
        state=state,
        exit_code=exit_code,
        exit_signal=exit_signal,
        nodes=tuple(f"n{number}" for number in range(requested.nodes)),
        node_count=requested.nodes,
        cpus=requested.nodes * requested.cpus,
        memory_bytes=requested.nodes * requested.memory_bytes,
        gres=(Gres(name="gpu", count=requested.gpus),) if requested.gpus else (),
        end_seconds=START + requested.run_seconds,
        time_limit_seconds=requested.limit_seconds,
        cpu_seconds=None,
        steps=(),
    )
    workload = make_workload(record, kind, length_seconds=requested.run_seconds, program=program)
    return PastJob(record, kind, workload)


def findings_of(job: PastJob) -> str:
    """Check a job by its workload, and write the rules as in ``EXPECTED``."""
    answers = measure(
        SimulatedSeries({job.record.job_id: job.workload}.get), [job.record], now_seconds=NOW, until=math.inf
    )
    summary = summarize(job.record, answers.of(job.record.job_id), now_seconds=NOW)
    sized = replace(summary, node_cpus=16.0, node_memory_bytes=float(32 << 30))
    return " ".join(describe(finding) for finding in judge(sized))


def describe(finding: Finding) -> str:
    consequences = ", ".join(other.rule for other in finding.consequences)
    return f"{finding.rule}({consequences})" if consequences else finding.rule


@pytest.mark.parametrize("kind", WorkloadKind)
def test_each_kind_of_workload_has_its_one_finding(kind: WorkloadKind) -> None:
    found = {findings_of(job_of(kind, seed)) for seed in range(6)}
    # The time limit is drawn independently of the workload.
    other = "" if kind is WorkloadKind.TIME_OVER_REQUESTED else "time_over_requested"
    assert {text.removesuffix(other).rstrip() for text in found} <= EXPECTED[kind]


@pytest.mark.parametrize("program", ProgramKind)
@pytest.mark.parametrize("gpus", [2, 4])
def test_each_program_of_gpus_has_its_one_finding(program: ProgramKind, gpus: int) -> None:
    found = {findings_of(job_of(WorkloadKind.GPU_GOOD, seed, program, gpus)) for seed in range(6)}
    assert {text.removesuffix("time_over_requested").rstrip() for text in found} <= OF_PROGRAMS[program]


def test_every_rule_has_a_workload_that_it_finds() -> None:
    named = {
        rule
        for texts in (*EXPECTED.values(), *OF_PROGRAMS.values())
        for text in texts
        for rule in re.findall(r"\w+", text)
    }
    assert {rule.id for rule in RULES} == named | NOT_MEASURED


def test_history_has_the_jobs_that_were_wanted() -> None:
    assert 400 == len(PAST)
    assert 400 == len({job.record.job_id for job in PAST})
    assert not {job.record.job_id for job in PAST} & {job.id for job in CLUSTER.jobs}


def test_the_same_seed_gives_the_same_history() -> None:
    again = History(CLUSTER, jobs=30).make()
    assert History(CLUSTER, jobs=30).make() == again
    assert History(CLUSTER, jobs=30, seed=2).make() != again


def test_jobs_of_the_past_fit_into_their_time() -> None:
    for job in PAST:
        record = job.record
        assert record.start_seconds is not None
        assert record.end_seconds is not None
        assert NOW - 28 * 86_400 <= record.submit_seconds < record.start_seconds < record.end_seconds <= NOW
        assert record.end_seconds - record.start_seconds <= (record.time_limit_seconds or 0)


def test_jobs_of_the_past_fit_into_their_partition() -> None:
    partitions = {partition.name: partition for partition in CLUSTER.partitions}
    for job in PAST:
        partition = partitions[job.record.partition]
        assert set(job.record.nodes) <= set(partition.node_names)
        assert job.record.node_count == len(set(job.record.nodes))
        assert bool(job.record.gpus) == (partition.name == "gpu")


def test_most_jobs_of_the_past_are_fair() -> None:
    kinds = Counter(job.kind for job in PAST)
    fair = sum(
        kinds[kind]
        for kind in (
            WorkloadKind.GOOD,
            WorkloadKind.GPU_GOOD,
            WorkloadKind.TIME_OVER_REQUESTED,
            WorkloadKind.FAILED,
            WorkloadKind.CANCELLED,
        )
    )
    assert 0.6 <= fair / len(PAST) <= 0.9
    assert SHARES.keys() == set(WorkloadKind)


def test_accounting_has_seen_what_the_job_used() -> None:
    for job in PAST:
        record = job.record
        assert record.cpu_seconds is not None
        assert record.cpu_seconds <= (record.cpus or 0) * ((record.end_seconds or 0) - (record.start_seconds or 0))
        (step,) = record.steps
        assert step.max_rss_bytes is not None
        assert 0 < step.max_rss_bytes <= (record.memory_bytes or 0)


def test_there_are_arrays_and_heterogeneous_jobs() -> None:
    shown = [job.record.shown_id for job in History(CLUSTER, jobs=1500).make()]
    assert any("_" in text for text in shown)
    assert any("+" in text for text in shown)


def test_a_cluster_without_room_has_no_history() -> None:
    no_room = replace(CLUSTER, partitions=())
    assert () == History(no_room, jobs=5).make()


def test_running_jobs_are_those_of_the_queue() -> None:
    accounting = SimulatedAccounting(CLUSTER, PAST)
    running = {record.job_id: record for record in accounting.read_current() if record.is_running}
    queue = {job.id: job for job in CLUSTER.jobs if job.state == "RUNNING"}
    assert queue.keys() == running.keys() == {workload.job_id for workload in accounting.running_workloads}
    for job_id, job in queue.items():
        record = running[job_id]
        assert (job.user.name, job.node_names, job.start_time, job.cpus, job.gpus) == (
            record.user, record.nodes, record.start_seconds, record.cpus, record.gpus,
        )  # fmt: skip


def test_waiting_jobs_have_no_life() -> None:
    accounting = SimulatedAccounting(CLUSTER)
    waiting = [record for record in accounting.read_current() if not record.is_running]
    assert waiting
    assert all(accounting.find_workload(record.job_id) is None and record.start_seconds is None for record in waiting)


def test_a_job_with_gpus_leads_a_life_with_gpus() -> None:
    accounting = SimulatedAccounting(CLUSTER)
    for record in accounting.read_current():
        workload = accounting.find_workload(record.job_id)
        assert workload is None or record.gpus == sum(len(node.gpus) for node in workload.nodes)
    assert GPU_KINDS == {kind for kind in WorkloadKind if kind.value.startswith("gpu")}


def test_running_jobs_hold_different_gpus_of_a_node() -> None:
    held = [
        (node.name, gpu.number)
        for workload in SimulatedAccounting(CLUSTER).running_workloads
        for node in workload.nodes
        for gpu in node.gpus
    ]
    nodes = [name for name, _ in held]

    assert len(held) == len(set(held)) > len(set(nodes)), "two jobs hold GPUs of one node"
    assert {number for _, number in held} <= {0, 1, 2, 3}


def ended(job_id: int, end_seconds: int, **changed: object) -> PastJob:
    record = make_record(job_id, end_seconds=end_seconds, **changed)
    return PastJob(record, WorkloadKind.GOOD, make_workload(record, WorkloadKind.GOOD, length_seconds=60))


def ids(records: tuple[JobRecord, ...]) -> list[int]:
    return [record.job_id for record in records]


def test_ended_jobs_are_found_by_their_end() -> None:
    accounting = SimulatedAccounting(
        replace(CLUSTER, jobs=()), [ended(1, START + 30), ended(2, START + 10), ended(3, START + 20)]
    )
    assert [3, 1] == ids(tuple(accounting.read_ended(START + 20, START + 30)))
    assert [] == ids(tuple(accounting.read_ended(START + 31, START + 90)))


def test_the_number_of_an_array_stands_for_all_its_tasks() -> None:
    tasks = [ended(number, START + 60, array_job_id=7, array_task_id=number) for number in (7, 8, 9)]
    accounting = SimulatedAccounting(replace(CLUSTER, jobs=()), [*tasks, ended(20, START + 60)])
    assert [7, 8, 9] == ids(accounting.read_jobs([7]))
    assert [8] == ids(accounting.read_jobs([8]))
    assert [8, 20] == ids(accounting.read_jobs([8, 20, 8, 99]))


def test_a_waiting_array_is_one_record() -> None:
    job = next(job for job in CLUSTER.jobs if job.array_id is not None and job.state == "PENDING")
    record = record_of(CLUSTER, job)
    assert (job.array_id, None) == (record.array_job_id, record.array_task_id)
