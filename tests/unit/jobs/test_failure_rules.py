# SPDX-License-Identifier: Apache-2.0
"""What went wrong is read from accounting and measurements; expected values are worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.jobs.failure import Failure, explain_failure
from slurmscope.jobs.findings import judge
from slurmscope.jobs.processes import ProcessSummary, ProfileSummary, TaskProfile, TraceSummary
from slurmscope.jobs.record import StepRecord
from slurmscope.jobs.report import JobReport
from tests.fakes.job_summaries import GIB, make_summary
from tests.fakes.reports import START

HOUR = 3600.0


def step(name: str, state: str = "COMPLETED", **changed: object) -> StepRecord:
    made = StepRecord(name=name, state=state, end_seconds=START + 100, exit_code=0, exit_signal=0)
    return replace(made, **changed)  # type: ignore[arg-type]


def report_on(state: str, *steps: StepRecord, **record: object) -> JobReport:
    return JobReport(summary=make_summary(record={"state": state, "steps": steps, **record}), made_seconds=START + 8000)


def explain(state: str, *steps: StepRecord, **record: object) -> Failure:
    failure = explain_failure(report_on(state, *steps, **record))
    assert failure is not None
    return failure


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "REQUEUED"])
def test_job_that_has_not_ended_has_not_failed(state: str) -> None:
    assert explain_failure(report_on(state, step("0", "FAILED", exit_code=1))) is None


def test_good_job_has_no_failure() -> None:
    assert explain_failure(report_on("COMPLETED", step("batch"), step("extern"), step("0"))) is None


def test_step_that_failed_first_is_the_cause() -> None:
    failure = explain(
        "FAILED",
        step("batch", "FAILED", exit_code=11, end_seconds=START + 300),
        step("extern", "FAILED", exit_code=1, end_seconds=START + 1),
        step("0", end_seconds=START + 50),
        step("1", "FAILED", exit_signal=11, exit_code=0, end_seconds=START + 200, node_list="n2"),
        step("2", "CANCELLED", exit_signal=9, exit_code=0, end_seconds=START + 150, node_list="n1"),
        step("3", "FAILED", exit_code=1, end_seconds=START + 250),
        nodes=("n1", "n2"),
        node_count=2,
    )

    assert ("1", "n2", START + 200, 0, 11) == (
        failure.step, failure.nodes, failure.end_seconds, failure.exit_code, failure.exit_signal,
    )  # fmt: skip
    assert "Step 1 was killed by SIGSEGV, signal 11 (segmentation fault)." == failure.explanation
    assert "/home/ada/relax/slurm-4711.out" == failure.stdout
    assert failure.is_output_assumed


def test_crashed_step_is_cancelled_for_slurm() -> None:
    # As sacct 22.05 shows it; a step that is killed with it may end before it.
    killed_with_it = step("1", "CANCELLED", exit_signal=9, end_seconds=START + 50)
    crashed = step("0", "CANCELLED", exit_signal=7)
    script = step("batch", "FAILED", exit_code=7)

    assert "Step 0 was killed by SIGBUS" in explain("FAILED", script, killed_with_it, crashed).explanation
    assert "Step 1 was killed by SIGKILL" in explain("FAILED", script, killed_with_it).explanation
    assert "The batch script was killed by SIGTERM" in (
        explain("FAILED", step("batch", "CANCELLED", exit_signal=15)).explanation
    )
    # Ended with the job, or by the script.
    assert "The job was cancelled" in explain("CANCELLED", step("0", "CANCELLED", exit_signal=15)).explanation
    assert explain_failure(report_on("COMPLETED", killed_with_it, step("batch"))) is None


def test_script_that_failed_ran_on_the_first_node() -> None:
    failure = explain("FAILED", step("batch", "FAILED", exit_code=127), nodes=("n1", "n2"), exit_code=127)

    assert ("batch", "n1") == (failure.step, failure.nodes)
    assert "The batch script ended with exit code 127: command not found." == failure.explanation


def test_step_without_an_end_comes_after_those_with_one() -> None:
    failure = explain(
        "FAILED", step("0", "FAILED", end_seconds=None), step("1", "FAILED", exit_code=3), nodes=("n1", "n2")
    )

    assert ("1", "", "Step 1 ended with exit code 3.") == (failure.step, failure.nodes, failure.explanation)


@pytest.mark.parametrize(
    ("state", "record", "expected"),
    [
        ("FAILED", {"exit_code": 2}, "The job ended with exit code 2: a general error, often of a command line."),
        ("FAILED", {"exit_code": None, "exit_signal": None}, "The job failed."),
        ("TIMEOUT", {}, "Slurm ended the job at its time limit of 3 h."),
        ("TIMEOUT", {"time_limit_seconds": None}, "Slurm ended the job at its time limit."),
        ("CANCELLED", {}, "The job was cancelled after 2 h."),
        ("CANCELLED", {"start_seconds": None}, "The job was cancelled before it started."),
        ("CANCELLED", {"uid": 1001, "cancelled_by_uid": 1001}, "The job was cancelled by its owner after 2 h."),
        (
            "CANCELLED",
            {"uid": 1001, "cancelled_by_uid": 0},
            "The job was cancelled by an administrator or by Slurm after 2 h.",
        ),
        (
            "CANCELLED",
            {"uid": 1001, "cancelled_by_uid": 1002, "start_seconds": None},
            "The job was cancelled by an administrator or coordinator before it started.",
        ),
        ("CANCELLED", {"uid": None, "cancelled_by_uid": 1002}, "The job was cancelled after 2 h."),
        ("NODE_FAIL", {"failed_node": "n2"}, "Node n2 failed."),
        ("NODE_FAIL", {}, "A node of the job failed."),
        ("BOOT_FAIL", {}, "A node of the job failed to boot."),
        ("PREEMPTED", {}, "Slurm stopped the job in favour of one with higher priority."),
        ("DEADLINE", {}, "Slurm ended the job because it could not finish before its deadline."),
    ],
)
def test_state_is_explained(state: str, record: dict[str, object], expected: str) -> None:
    failure = explain(state, **record)

    assert (expected, "") == (failure.explanation, failure.step)
    # A job on a single node failed there.
    assert "n1" == failure.nodes


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ("--time=60", "Request more time"),
        ("--time=60 --time-min=30", "raise --time-min"),
        ("--time=30 --time-min=20", "Request more time"),  # it got what it requested
    ],
)
def test_limit_that_slurm_shortened_is_raised_by_its_minimum(options: str, advice: str) -> None:
    found = explain("TIMEOUT", submit_line=f"sbatch {options} x.sh", time_limit_seconds=1800).advice

    assert [advice] == [each for each in ("Request more time", "raise --time-min") if each in found]


def test_failed_step_of_a_completed_job_is_reported() -> None:
    failure = explain("COMPLETED", step("0", exit_code=1), step("batch"))

    assert "Step 0 ended with exit code 1: a general error. The job completed all the same" in failure.explanation


def test_step_that_failed_in_a_cancelled_job_is_the_cause() -> None:
    assert explain("CANCELLED", step("0", "FAILED", exit_code=0)).explanation == "Step 0 failed without an exit code."


def test_interactive_step_is_named() -> None:
    assert "The interactive step ended" in explain("FAILED", step("interactive", "FAILED", exit_code=1)).explanation


def killed(**changed: object) -> JobReport:
    made = report_on("OUT_OF_MEMORY", step("0", "OUT_OF_MEMORY", exit_signal=125, node_list="n1"))
    return replace(made, **changed)  # type: ignore[arg-type]


def test_oom_killed_job_names_its_step_and_its_largest_task() -> None:
    tasks = (
        TaskProfile(node="n1", step="0", task="0", peak_memory_bytes=2 * GIB),
        TaskProfile(node="n2", step="0", task="5", peak_memory_bytes=7 * GIB),
        TaskProfile(node="n2", step="0", task="6"),
    )
    report = killed()
    profiled = replace(report, summary=replace(report.summary, profile=ProfileSummary(tasks=tasks)))
    process = ProcessSummary(node="n1", step="0", rank="", pid="77", command="solver", peak_memory_bytes=5 * GIB)
    traced = replace(report, summary=replace(report.summary, traces=TraceSummary(processes=(process,))))

    for each, expected in (
        (report, ""),
        (profiled, "task 5 of step 0 on n2, with 7 GiB"),
        (traced, "solver (process 77 on n1), with 5 GiB"),
    ):
        failure = explain_failure(each)
        assert failure is not None
        assert failure.explanation.startswith("Step 0 was OOM-killed: the kernel killed a process at the memory limit.")
        assert ("n1", expected, None) == (failure.nodes, failure.largest_task, failure.needed_bytes)
        assert expected in failure.explanation


def test_failure_and_finding_name_the_same_need() -> None:
    report = killed()
    grew = replace(report, summary=make_summary(record={"state": "OUT_OF_MEMORY"}, memory={"expected_bytes": 19 * GIB}))
    failure = explain_failure(grew)

    assert failure is not None
    assert 19 * GIB == failure.needed_bytes
    sentence = "it would have needed 19 GiB per node by its time limit of 3 h"
    assert sentence in failure.explanation
    assert sentence in judge(grew.summary)[0].explanation


def test_job_that_hung_until_its_time_limit_is_not_told_to_request_more() -> None:
    summary = make_summary(record={"state": "TIMEOUT"}, cpu={"idle_tail_seconds": 3600.0})
    failure = explain_failure(JobReport(summary=summary, made_seconds=0))

    assert failure is not None
    assert failure.explanation.endswith("It had been idle for the last 1 h.")
    assert "more time does not help" in failure.advice
    suspended = make_summary(record={"state": "TIMEOUT", "suspended_seconds": 60}, cpu={"idle_tail_seconds": 3600.0})
    failure = explain_failure(JobReport(summary=suspended, made_seconds=0))
    assert failure is not None
    assert "Request more time" in failure.advice


def test_output_that_was_thrown_away_is_no_file_to_read() -> None:
    failure = explain("FAILED", step("batch", "FAILED", exit_code=1), stdout="/dev/null", stderr="/home/ada/err")
    assert ("", "/home/ada/err") == (failure.stdout, failure.stderr)


def test_of_two_failed_steps_the_one_that_ended_first_is_the_cause() -> None:
    failure = explain(
        "FAILED",
        step("0", "FAILED", exit_code=3, end_seconds=START + 200),
        step("1", "FAILED", exit_code=4, end_seconds=START + 100),
        step("2", "FAILED", exit_code=5, end_seconds=None),
    )

    assert ("1", 4) == (failure.step, failure.exit_code)


@pytest.mark.parametrize(
    ("idle_seconds", "suspended_seconds", "is_stuck"),
    [(720.0, 0, True), (719.0, 0, False), (720.0, 60, False), (None, 0, False)],
)
def test_job_that_was_idle_for_a_tenth_of_its_run_hung(
    idle_seconds: float | None, suspended_seconds: int, is_stuck: bool
) -> None:
    # It ran for two hours.
    record = {"state": "TIMEOUT", "suspended_seconds": suspended_seconds}
    summary = make_summary(record=record, cpu={"idle_tail_seconds": idle_seconds})
    failure = explain_failure(JobReport(summary=summary, made_seconds=START + 8000))

    assert failure is not None
    assert is_stuck == ("more time does not help" in failure.advice)
    assert is_stuck != failure.advice.startswith("Request more time")


@pytest.mark.parametrize(("signal", "expected"), [(None, ""), (0, ""), (1, "0"), (64, "0"), (65, "")])
def test_cancelled_step_of_a_failed_job_was_killed_by_a_signal(signal: int | None, expected: str) -> None:
    assert expected == explain("FAILED", step("0", "CANCELLED", exit_signal=signal)).step


def test_part_of_a_heterogeneous_step_comes_before_the_script() -> None:
    # Both ended in the same second.
    assert "0+1" == explain("FAILED", step("batch", "FAILED", exit_code=1), step("0+1", "FAILED", exit_code=1)).step


@pytest.mark.parametrize(("tail", "is_stuck"), [(None, False), (0.0, False), (4.0, True)])
def test_run_of_five_seconds_may_hang_as_well(tail: float | None, is_stuck: bool) -> None:
    summary = make_summary(record={"state": "TIMEOUT"}, run_seconds=5.0, cpu={"idle_tail_seconds": tail})
    failure = explain_failure(JobReport(summary=summary, made_seconds=START + 8000))

    assert failure is not None
    assert is_stuck == ("had been idle" in failure.explanation)
