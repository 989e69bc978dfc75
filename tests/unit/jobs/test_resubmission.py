# SPDX-License-Identifier: Apache-2.0
"""The header for the next run follows from findings and other runs; expected figures are worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurmscope.jobs.failure import explain_failure
from slurmscope.jobs.findings import judge
from slurmscope.jobs.header_options import parse_suggestion
from slurmscope.jobs.record import StepRecord
from slurmscope.jobs.report import JobReport, OtherRun, Resubmission
from slurmscope.jobs.resubmission import past_bytes, suggest_resubmission
from slurmscope.jobs.summary import NOT_COVERED, NodeSummary
from tests.fakes.job_summaries import GIB, HOUR, make_summary
from tests.fakes.reports import make_finding
from tests.fakes.resubmission import RUN, SIZE, found, header, several, submitted, suggest


def test_good_job_is_not_changed() -> None:
    assert Resubmission(changes=(), other_runs=0, submitted=SIZE, suggested=SIZE) == suggest(make_summary())


@pytest.mark.parametrize(
    "record",
    [{"state": "RUNNING", "end_seconds": None}, {"state": "CANCELLED", "start_seconds": None}, {"cpus": 0}],
)
def test_job_that_has_not_run_to_an_end_is_not_changed(record: dict[str, Any]) -> None:
    assert suggest(make_summary(record=record), lines=("#SBATCH --time=01:00:00",)) is None


def test_all_findings_are_merged_into_one_header() -> None:
    # 1 of 4 cores, 1 GiB x 1.2 up to 1.25 GiB, 2 h x 1.5.
    summary = make_summary(
        record=submitted("-c4 --mem=8G -t 1-00:00:00", time_limit_seconds=86400),
        busy=0.25,
        memory={"working_peak_bytes": GIB},
    )
    made = suggest(summary)
    assert made is not None
    assert ("#SBATCH --cpus-per-task=1", "#SBATCH --mem=1280M", "#SBATCH --time=03:00:00") == made.lines
    assert (
        "-#SBATCH --cpus-per-task=4",
        "-#SBATCH --mem=8G",
        "-#SBATCH --time=1-00:00:00",
        "+#SBATCH --cpus-per-task=1",
        "+#SBATCH --mem=1280M",
        "+#SBATCH --time=03:00:00",
    ) == made.diff
    assert ["Only one core worked", "Much of the requested memory was not needed"] == [
        change.reason for change in made.changes[:2]
    ]
    assert (1, 1.25 * GIB, 3 * HOUR) == (
        made.suggested.cpus,
        made.suggested.memory_bytes,
        made.suggested.limit_seconds,
    )
    # Two hours of 3 cores and 6.75 GiB.
    assert 6 * HOUR == made.freed.core_seconds
    assert 6.75 * GIB * 2 * HOUR == made.freed.memory_byte_seconds
    assert made.freed.gpu_seconds is None
    assert "submitted with --cpus-per-task, --mem, --time on the command line" in made.note


def test_options_of_the_script_are_shown_as_allocated() -> None:
    steps = (StepRecord(name="0", state="COMPLETED", tasks=1),)
    record = {"submit_line": "sbatch x.sh", "time_limit_seconds": 86400, "steps": steps}
    summary = make_summary(record=record, busy=0.25)
    made = suggest(summary)
    assert made is not None
    # 6 GiB x 1.2 = 7.2, up to 8 GiB, which would otherwise shrink with the cores.
    assert ["4", "", "1-00:00:00"] == [change.submitted for change in made.changes]
    assert ["1", "8G", "03:00:00"] == [change.suggested for change in made.changes]
    assert "+#SBATCH --mem=8G" in made.diff
    assert "-#SBATCH --mem=8G" not in made.diff
    assert "If the script sets --mem-per-cpu" in made.note


def test_oom_killed_job_gets_twice_as_much_memory() -> None:
    made = suggest(make_summary(record={"state": "OUT_OF_MEMORY"}))
    assert made is not None
    assert ("#SBATCH --mem=16G",) == made.lines
    assert made.freed.memory_byte_seconds is None


def test_oom_killed_job_gets_what_completed_runs_needed() -> None:
    # 14 GiB x 1.2 = 16.8, up to 17.
    made = suggest(make_summary(record={"state": "OUT_OF_MEMORY"}), replace(RUN, peak_bytes=14 * GIB))
    assert made is not None
    assert ("#SBATCH --mem=17G",) == made.lines
    assert "By 1 other run of this job, the next one may need 14 GiB." == made.changes[0].reason


def test_earlier_oom_kill_of_a_larger_request_counts() -> None:
    killed = replace(RUN, state="OUT_OF_MEMORY", requested_bytes=12 * GIB, peak_bytes=11 * GIB)
    # 12 GiB x 2.
    assert ("#SBATCH --mem=24G",) == header(make_summary(record={"state": "OUT_OF_MEMORY"}), killed)


def test_oom_kill_without_a_known_request_is_not_evidence() -> None:
    killed = replace(RUN, state="OUT_OF_MEMORY", requested_bytes=None)
    assert () == header(make_summary(), killed)


def test_unknown_memory_gives_no_memory() -> None:
    record = {"state": "OUT_OF_MEMORY"}
    assert () == header(make_summary(record=record, memory={"requested_bytes": None}), *several(9))


def test_timed_out_job_gets_more_time() -> None:
    # 3 h x 1.5.
    assert ("#SBATCH --time=04:30:00",) == header(make_summary(record={"state": "TIMEOUT"}, run_seconds=3 * HOUR))


def test_timed_out_job_gets_the_time_of_completed_runs() -> None:
    # 5 h x 1.5.
    summary = make_summary(record={"state": "TIMEOUT"}, run_seconds=3 * HOUR)
    assert ("#SBATCH --time=07:30:00",) == header(summary, replace(RUN, run_seconds=5 * HOUR))


def test_run_that_timed_out_earlier_needed_more_than_its_limit() -> None:
    summary = make_summary(record={"time_limit_seconds": 86400})
    assert ("#SBATCH --time=03:00:00",) == header(summary)
    # 8 h x 1.5.
    assert ("#SBATCH --time=12:00:00",) == header(summary, replace(RUN, state="TIMEOUT", limit_seconds=8 * HOUR))


def test_completed_run_with_time_to_spare_gets_no_more_whatever_others_took() -> None:
    summary = make_summary(run_seconds=2.5 * HOUR)
    assert () == header(summary, replace(RUN, run_seconds=2.5 * HOUR))
    assert () == header(summary, replace(RUN, state="TIMEOUT"))
    assert () == header(summary, replace(RUN, run_seconds=9 * HOUR))


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY"])
def test_job_that_did_not_end_by_its_limit_gets_no_more_time(state: str) -> None:
    summary = make_summary(record={"state": state}, run_seconds=2.9 * HOUR)
    assert "--time" not in "".join(header(summary, replace(RUN, run_seconds=9 * HOUR)))


def test_memory_that_was_enough_is_not_raised_by_other_runs() -> None:
    # 8 GiB x 1.2 = 9.6 GiB would be suggested, but this run needed 6 of 8.
    assert () == header(make_summary(), *several(9, peak_bytes=8 * GIB))
    # With all of it, it was too little: 7.5 GiB x 1.2 = 9 GiB.
    assert ("#SBATCH --mem=9G",) == header(make_summary(memory={"working_peak_bytes": 7.5 * GIB}))


def test_header_of_an_oom_killed_job_has_at_least_the_extrapolated_need() -> None:
    # 19 GiB x 1.2 = 22.8, up to 23 GiB; 5 GiB are below half as much again as it had.
    record = {"state": "OUT_OF_MEMORY"}
    assert ("#SBATCH --mem=23G",) == header(make_summary(record=record, memory={"expected_bytes": 19 * GIB}))
    assert ("#SBATCH --mem=12G",) == header(make_summary(record=record, memory={"expected_bytes": 5 * GIB}))


def test_memory_does_not_exceed_that_of_a_node() -> None:
    record = {"state": "OUT_OF_MEMORY"}
    summary = make_summary(record=record, memory={"expected_bytes": 30 * GIB}, node_memory_bytes=31.5 * GIB)
    assert (f"#SBATCH --mem={63 * 512}M",) == header(summary, replace(RUN, peak_bytes=60 * GIB))
    whole = make_summary(record=record, node_memory_bytes=8 * GIB)
    assert () == header(whole)
    explanation = next(finding.explanation for finding in judge(whole) if finding.rule == "oom_kill")
    assert "A node has 8 GiB: use nodes with more memory" in explanation
    assert [""] == [finding.suggestion for finding in judge(whole) if finding.rule == "oom_kill"]


def test_need_above_the_memory_of_a_node_gets_no_header_that_would_be_killed_again() -> None:
    memory = {"expected_bytes": 32 * GIB}
    summary = make_summary(record={"state": "OUT_OF_MEMORY"}, memory=memory, node_memory_bytes=31.5 * GIB)

    assert () == header(summary)
    (finding,) = (found for found in judge(summary) if found.rule == "oom_kill")
    assert "it would have needed 32 GiB per node" in finding.explanation
    assert "A node has 31.5 GiB: use nodes with more memory" in finding.explanation


@pytest.mark.parametrize(("state", "lines"), [("OUT_OF_MEMORY", ["#SBATCH --mem-per-cpu=3840M"]), ("CANCELLED", [])])
def test_killed_job_gets_more_memory_although_its_cores_were_idle(state: str, lines: list[str]) -> None:
    # 12 GiB x 1.2, up to 15 GiB. With a line for fewer cores, that for memory per core would be for too many.
    record = submitted("--mem-per-cpu=2G", state=state)
    memory = {"expected_bytes": 12 * GIB, "oom_kills": 1}
    summary = make_summary(record=record, busy=0.25, memory=memory)

    assert lines == [finding.suggestion for finding in judge(summary) if "--mem" in finding.suggestion]
    assert "#SBATCH --mem-per-cpu=3840M" in header(summary)


def test_nothing_is_said_about_a_need_that_was_not_measured() -> None:
    record = {"state": "OUT_OF_MEMORY", "memory_bytes": GIB // 4, "steps": ()}
    nothing = {"requested_bytes": GIB / 4, "working_peak_bytes": None, "is_bounded": False, "coverage": NOT_COVERED}
    made = suggest(make_summary(record=record, memory=nothing, nodes=(), node_memory_bytes=0.3 * GIB))

    assert made is not None
    assert ["OOM-killed: the job ran out of memory"] == [change.reason for change in made.changes]


def test_fewer_cores_do_not_raise_memory_that_was_enough() -> None:
    # The smallest suggested amount is 512 MiB; the job had 256 MiB and needed 100.
    record = submitted("--ntasks=4 --mem-per-cpu=64M")
    memory = {"requested_bytes": GIB / 4, "working_peak_bytes": GIB / 10, "is_bounded": False}
    made = suggest(make_summary(record=record, busy=0.25, memory=memory, cpu={"peak_cores": 1.0}))

    assert made is not None
    assert ("#SBATCH --ntasks=1", "#SBATCH --mem-per-cpu=256M") == made.lines


def test_memory_that_is_kept_with_fewer_cores_is_not_rounded_up() -> None:
    record = submitted("--ntasks=1 --cpus-per-task=2 --mem-per-cpu=1000M", cpus=2, requested_cpus=2)
    memory = {"requested_bytes": 2000 * GIB / 1024, "working_peak_bytes": GIB / 10, "is_bounded": False}
    made = suggest(make_summary(record=record, busy=0.5, memory=memory, cpu={"peak_cores": 1.0}))

    assert made is not None
    assert ("#SBATCH --cpus-per-task=1", "#SBATCH --mem-per-cpu=2000M") == made.lines


def test_step_with_a_limit_of_its_own_does_not_raise_that_of_the_job() -> None:
    nodes = (NodeSummary(node="n1", cpus=4.0, working_peak_bytes=2 * GIB, limit_bytes=8 * GIB),)
    summary = make_summary(
        record={"state": "OUT_OF_MEMORY"}, memory={"oom_kills": 1, "charged_peak_bytes": 6 * GIB}, nodes=nodes
    )
    found_kill = judge(summary)[0]
    assert () == header(summary)
    assert "a step exceeded its own memory limit. It had 8 GiB per node. The job as a whole used at most 6 GiB" in (
        found_kill.explanation
    )
    assert "--mem of its srun" in found_kill.advice
    # The report begins with the same advice.
    failure = explain_failure(JobReport(summary=summary, made_seconds=0))
    assert failure is not None
    assert found_kill.advice == failure.advice
    # At the limit of the job itself.
    nodes = (replace(nodes[0], working_peak_bytes=7.9 * GIB),)
    assert ("#SBATCH --mem=16G",) == header(replace(summary, nodes=nodes))


@pytest.mark.parametrize(("state", "expected"), [("COMPLETED", ("#SBATCH --mem=1280M",)), ("CANCELLED", ())])
def test_memory_gets_smaller_only_after_a_run_that_reached_its_end(state: str, expected: tuple[str, ...]) -> None:
    # 1 GiB x 1.2, up to 1.25 GiB.
    summary = make_summary(record={"state": state}, memory={"working_peak_bytes": GIB})
    assert expected == header(summary)
    # Five complete runs have shown what the end needs.
    assert ("#SBATCH --mem=1280M",) == header(summary, *several(5, peak_bytes=GIB))


def test_timed_out_job_keeps_the_memory_that_it_may_need_later() -> None:
    summary = make_summary(record={"state": "TIMEOUT"}, run_seconds=3 * HOUR, memory={"working_peak_bytes": GIB})
    assert ("#SBATCH --time=04:30:00",) == header(summary)
    finding = next(finding for finding in judge(summary) if finding.rule == "memory_over_requested")
    assert ("", True) == (finding.suggestion, "did not reach its end" in finding.advice)


def step(request: str, tasks: int = 1) -> tuple[StepRecord, ...]:
    return (StepRecord(name="0", state="COMPLETED", tasks=tasks, request=request),)


@pytest.mark.parametrize(
    ("request_of_step", "tasks", "expected"),
    [
        # 1 GiB x 1.2, up to 1.25 GiB; a step that requests more would not start.
        ("--mem=1G", 1, "1280M"),
        ("--mem=3G", 1, "3G"),
        ("--mem=3000", 1, "3000M"),
        ("--mem-per-cpu=500M --cpus-per-task=2", 3, "3000M"),
        ("--mem-per-cpu=500M", 3, "1500M"),
        ("--mem=none", 1, "1280M"),
    ],
)
def test_memory_is_enough_for_each_step(request_of_step: str, tasks: int, expected: str) -> None:
    record = {"steps": step(request_of_step, tasks), "submit_line": "sbatch x"}
    assert (f"#SBATCH --mem={expected}",) == header(make_summary(record=record, memory={"working_peak_bytes": GIB}))


def test_step_that_requests_as_much_as_the_job_keeps_its_memory() -> None:
    summary = make_summary(memory={"working_peak_bytes": GIB})
    assert () == header(replace(summary, record=replace(summary.record, steps=step("--mem=8G"))))
    # The options of a job that srun submitted are those of its step.
    record = replace(summary.record, steps=step("--mem=8G"), submit_line="srun --mem=8G ./solve")
    assert ("#SBATCH --mem=1280M",) == header(replace(summary, record=record))


def test_task_of_an_array_gets_less_only_if_other_tasks_are_known() -> None:
    record = {"array_job_id": 4700, "array_task_id": 1, "time_limit_seconds": 86400}
    summary = make_summary(record=record, memory={"working_peak_bytes": GIB})
    assert () == header(summary)
    # 2 GiB x 1.2 = 2.4, up to 2.5 GiB.
    assert ("#SBATCH --mem=2560M", "#SBATCH --time=03:00:00") == header(summary, replace(RUN, peak_bytes=2 * GIB))


def test_task_of_an_array_gets_fewer_cores_only_if_other_tasks_are_known() -> None:
    record = submitted("--cpus-per-task=4", array_job_id=4700, array_task_id=1)
    summary = make_summary(record=record, busy=0.25, cpu={"peak_cores": 1.0})
    assert () == header(summary)
    assert "#SBATCH --cpus-per-task=1" in header(summary, replace(RUN, mean_cores=1.0))


def test_job_that_hung_gets_no_more_time() -> None:
    summary = make_summary(record={"state": "TIMEOUT"}, run_seconds=3 * HOUR, cpu={"idle_tail_seconds": 2 * HOUR})
    assert "--time" not in "".join(header(summary, *several(9)))


def test_only_the_time_limit_needs_no_note() -> None:
    made = suggest(make_summary(record={"submit_line": "sbatch x.sh", "time_limit_seconds": 86400}))
    assert made is not None
    assert ("", "1-00:00:00") == (made.note, made.changes[0].submitted)


@pytest.mark.parametrize(
    ("least", "expected"),
    # 2 h x 1.5; Slurm rejects a limit below --time-min, and takes one that is equal.
    [
        ("60", "03:00:00"),
        ("05:00:00", "05:00:00"),
        # slurmctld 22.05 takes this as 301 minutes, and rejects a limit of 300.
        ("05:00:30", "05:01:00"),
        ("none", "03:00:00"),
    ],
)
def test_time_limit_is_not_below_the_smallest_one_that_the_job_accepts(least: str, expected: str) -> None:
    record = submitted(f"--time=1-0 --time-min={least}", time_limit_seconds=86400)
    assert (f"#SBATCH --time={expected}",) == header(make_summary(record=record))


@pytest.mark.parametrize("state", ["TIMEOUT", "COMPLETED"])
def test_limit_that_slurm_shortened_is_no_reason_for_another_one(state: str) -> None:
    # slurmctld 22.05 started a job with --time=60 --time-min=30 with a limit of 30 minutes.
    record = submitted("--time=180 --time-min=30", state=state, time_limit_seconds=1800)
    summary = make_summary(record=record, run_seconds=1795.0)
    found = [(each.suggestion, each.advice) for each in judge(summary) if each.rule == "timed_out"]

    assert () == header(summary, *several(8, state="TIMEOUT", limit_seconds=1800.0))
    assert (state == "TIMEOUT") == bool(found)
    assert all(not line and "raise --time-min" in advice for line, advice in found)


def test_finding_and_header_name_the_same_time_limit() -> None:
    # Slurm ended it a while after its limit of 2 h; the shortest limit that another one accepts is 20 h.
    late = make_summary(record={"state": "TIMEOUT", "time_limit_seconds": 7200}, run_seconds=7225)
    assert ("#SBATCH --time=03:30:00",) == header(late)
    assert "#SBATCH --time=03:30:00" == judge(late)[0].suggestion
    short = make_summary(record=submitted("--time-min=20:00:00", time_limit_seconds=48 * 3600))
    assert ("#SBATCH --time=20:00:00",) == header(short)
    assert "#SBATCH --time=20:00:00" == judge(short)[0].suggestion


def test_job_without_a_time_limit_gets_none() -> None:
    assert () == header(make_summary(record={"time_limit_seconds": None}), *several(9))


def test_completed_run_close_to_its_limit_gets_more_time() -> None:
    made = suggest(make_summary(run_seconds=2.9 * HOUR))
    assert made is not None
    # 2.9 h x 1.5 = 4.35, up to 4.5 h.
    assert ("#SBATCH --time=04:30:00",) == made.lines
    assert "This run took 2 h 54 min." == made.changes[0].reason


def test_other_run_keeps_a_request_from_getting_too_small() -> None:
    summary = make_summary(memory={"working_peak_bytes": GIB})
    assert ("#SBATCH --mem=1280M",) == header(summary)
    # 4 GiB x 1.2 = 4.8, up to 5 GiB.
    assert ("#SBATCH --mem=5G",) == header(summary, replace(RUN, peak_bytes=4 * GIB))
    # 6 GiB x 1.2 = 7.2: no difference that matters.
    assert () == header(summary, RUN)


def test_unused_memory_that_follows_from_another_finding_is_not_requested() -> None:
    unused = replace(make_finding("memory_over_requested"), suggestion="")
    finding = replace(found("#SBATCH --cpus-per-task=1"), consequences=(unused,))
    summary = make_summary(busy=0.25, memory={"working_peak_bytes": GIB})
    made = suggest_resubmission(JobReport(summary=summary, made_seconds=0, findings=(finding,)))
    assert made is not None
    assert ("#SBATCH --cpus-per-task=1", "#SBATCH --mem=1280M") == made.lines
    assert "This run needed 1 GiB." == made.changes[1].reason


def test_larger_need_of_a_failed_run_counts() -> None:
    summary = make_summary(memory={"working_peak_bytes": GIB})
    assert ("#SBATCH --mem=5G",) == header(summary, replace(RUN, state="FAILED", peak_bytes=4 * GIB))


def test_failed_job_gets_less_only_by_completed_runs() -> None:
    summary = make_summary(record={"state": "FAILED"}, memory={"working_peak_bytes": GIB})
    assert () == header(summary)
    assert () == header(summary, *several(4, peak_bytes=2 * GIB))
    assert () == header(summary, *several(9, state="FAILED", peak_bytes=2 * GIB))
    # 2 GiB x 1.2, up to 2.5 GiB.
    assert ("#SBATCH --mem=2560M",) == header(summary, *several(5, peak_bytes=2 * GIB))


def test_failed_job_gets_no_fewer_cores() -> None:
    assert () == header(make_summary(record={"state": "FAILED"}, busy=0.25))


def test_memory_that_only_slurm_sampled_gives_no_less() -> None:
    memory = {"working_peak_bytes": None, "slurm_peak_bytes": GIB}
    assert () == header(make_summary(memory=memory), *several(9, peak_bytes=GIB))


def test_one_in_twenty_runs_may_be_an_outlier_but_must_fit() -> None:
    summary = make_summary(memory={"working_peak_bytes": GIB})
    usual = several(39, peak_bytes=2 * GIB)
    # The 95th percentile is 2 GiB x 1.2 = 2.5 GiB; the largest is 3 GiB x 1.05, up to 3.25 GiB.
    assert ("#SBATCH --mem=3328M",) == header(summary, *usual, replace(RUN, peak_bytes=3 * GIB))


def test_growth_from_run_to_run_is_extrapolated() -> None:
    # 1.0, 1.2, ... 2.8 GiB; the eleventh needs 3.0 GiB, x 1.2 = 3.6, up to 3.75 GiB.
    runs = [replace(RUN, start_seconds=number, peak_bytes=(1 + number / 5) * GIB) for number in range(10)]
    assert ("#SBATCH --mem=3840M",) == header(make_summary(memory={"working_peak_bytes": GIB}), *reversed(runs))


def test_fewer_runs_are_not_extrapolated() -> None:
    # 1.0 to 2.2 GiB: 2.2 x 1.2 = 2.64, up to 2.75 GiB.
    runs = [replace(RUN, start_seconds=number, peak_bytes=(1 + number / 5) * GIB) for number in range(7)]
    assert ("#SBATCH --mem=2816M",) == header(make_summary(memory={"working_peak_bytes": GIB}), *runs)


def test_second_finding_about_the_same_option_is_dropped() -> None:
    lines = ("#SBATCH --cpus-per-task=1", "#SBATCH --cpus-per-task=2")
    assert lines[:1] == header(make_summary(busy=0.25), lines=lines)


def test_largest_need_of_any_node_counts() -> None:
    nodes = tuple(NodeSummary(node=f"n{at}", working_peak_bytes=peak) for at, peak in enumerate((GIB, 3 * GIB)))
    summary = make_summary(
        record={"node_count": 2, "cpus": 8},
        memory={"requested_bytes": 16 * GIB, "working_peak_bytes": 4 * GIB},
        nodes=nodes,
    )
    # 3 GiB x 1.2 = 3.6, up to 3.75 GiB on each of two nodes.
    made = suggest(summary)
    assert made is not None
    assert (("#SBATCH --mem=3840M",), 7.5 * GIB) == (made.lines, made.suggested.memory_bytes)


def test_memory_of_whole_nodes_is_not_lowered() -> None:
    summary = make_summary(record=submitted("--exclusive --mem=8G"), memory={"working_peak_bytes": GIB})
    assert () == header(summary)


def test_same_amount_is_no_change() -> None:
    summary = make_summary(record=submitted("--mem=12G", state="OUT_OF_MEMORY"))
    assert () == header(summary, lines=("#SBATCH --mem=12G",))


def test_lines_of_a_finding_are_parsed() -> None:
    assert {"mem": "1G", "exclusive": ""} == parse_suggestion("#SBATCH --mem=1G\n#SBATCH --exclusive")
    assert {} == parse_suggestion("")


@pytest.mark.parametrize(
    "line",
    ["--nodes=0", "--nodes=1-2", "--nodes=", "--ntasks=many", "--cpus-per-task=-1", "--ntasks-per-node=" + 400 * "9",
     "--mem=half", "--mem-per-cpu=", "--mem-per-gpu=x", "--time=UNLIMITED", "--time=1_0"],
)  # fmt: skip
def test_line_of_a_site_that_cannot_be_computed_with_is_not_in_the_header(line: str) -> None:
    summary = make_summary(record=submitted("-N4 --mem=2G", node_count=4, cpus=16))
    others = ("#SBATCH --mem=1G", f"#SBATCH {line}")

    assert header(summary, lines=others[:1]) == header(summary, lines=others)


@pytest.mark.parametrize(("peak", "expected"), [(9 * GIB, ()), (9.1 * GIB, ("#SBATCH --mem=15G",))])
def test_memory_of_which_a_tenth_was_left_was_enough(peak: float, expected: tuple[str, ...]) -> None:
    # Other runs needed 12 GiB: 14.4, up to 15 GiB.
    memory = {"requested_bytes": 10 * GIB, "working_peak_bytes": peak}
    summary = make_summary(record=submitted("--mem=10G"), memory=memory)

    assert expected == header(summary, *several(8, peak_bytes=12 * GIB))


def test_memory_that_comes_with_the_cores_shrinks_with_them() -> None:
    # Two of four cores come with 4 of 8 GiB, and 3 GiB x 1.2 were needed.
    memory = {"working_peak_bytes": 3 * GIB}
    made = suggest(make_summary(record=submitted("-c4"), busy=0.5, cpu={"peak_cores": 2.0}, memory=memory))

    assert made is not None
    assert ("#SBATCH --cpus-per-task=2",) == made.lines
    assert (2, 4 * GIB) == (made.suggested.cpus, made.suggested.memory_bytes)


def test_deviation_from_steady_growth_is_added_to_the_next_need() -> None:
    # 1.0, 1.2, ... 2.4 GiB, of which the first and the last two are 0.3 GiB off, so that the line stays the same: the
    # ninth needs 2.6 + 0.3 GiB, x 1.2 = 3.48, up to 3.5 GiB.
    needs = (1.3, 0.9, 1.4, 1.6, 1.8, 2.0, 1.9, 2.7)
    runs = [replace(RUN, start_seconds=number, peak_bytes=need * GIB) for number, need in enumerate(needs)]

    assert ("#SBATCH --mem=3584M",) == header(make_summary(memory={"working_peak_bytes": GIB}), *runs)


def test_memory_of_fewer_nodes_is_that_of_all_of_them() -> None:
    # 10 GiB on each of 6 nodes are 30 GiB on each of 2.
    record = submitted("-N6 --ntasks-per-node=4 --mem=10G", node_count=6, cpus=24)
    made = suggest(make_summary(record=record, memory={"requested_bytes": 60 * GIB, "working_peak_bytes": 40 * GIB}))

    assert made is not None
    assert (2, 24, 60 * GIB) == (made.suggested.nodes, made.suggested.cpus, made.suggested.memory_bytes)


def test_runs_that_need_all_memory_of_each_node_keep_it() -> None:
    # 6 GiB x 1.2 = 7.2, up to 8 GiB, which each of two nodes has.
    nodes = tuple(NodeSummary(node=name, working_peak_bytes=6 * GIB) for name in ("n1", "n2"))
    memory = {"requested_bytes": 16 * GIB, "working_peak_bytes": 12 * GIB}

    record = {"node_count": 2, "cpus": 8, "submit_line": "sbatch x.sh"}

    assert () == header(make_summary(record=record, memory=memory, nodes=nodes), *several(5))


def grown(first: float, more: float) -> list[OtherRun]:
    """Make eight runs, each of which needed so much more than the one before."""
    return [replace(RUN, start_seconds=number, peak_bytes=(first + more * number) * GIB) for number in range(8)]


@pytest.mark.parametrize(
    ("first", "more", "expected"),
    [
        # 8 x 0.125 are a tenth of the mean of 10 GiB: the ninth needs 9.5625 + 8 x 0.125.
        (9.5625, 0.125, 10.5625),
        # 8 x 0.0625 are half of that: noise, and the largest is 9.78125 + 7 x 0.0625.
        (9.78125, 0.0625, 10.21875),
    ],
)
def test_runs_grow_from_a_tenth_of_their_mean_on(first: float, more: float, expected: float) -> None:
    past = past_bytes(grown(first, more))

    assert past is not None
    assert expected * GIB == past.expected


def test_run_within_nine_tenths_of_its_limit_is_not_short() -> None:
    # 2.7 of 3 h; another run timed out at 3 h.
    assert () == header(make_summary(run_seconds=2.7 * HOUR), replace(RUN, state="TIMEOUT"))


def test_time_of_other_runs_is_longer_on_fewer_cores() -> None:
    # Four busy cores on two take twice as long: 3 h x 2 x 1.5 = 9 h.
    summary = make_summary(record={"time_limit_seconds": 86400})
    line = "#SBATCH --cpus-per-task=2"
    assert (line, "#SBATCH --time=09:00:00") == header(
        summary, *several(5, run_seconds=3 * HOUR, mean_cores=2.0), lines=(line,)
    )
    # Usually 1 h, once 3 h x 2 x 1.05 = 6.3, up to 6.5 h; this run alone 2 h x 2 x 1.5 = 6 h.
    usual = several(39, run_seconds=HOUR, mean_cores=2.0)
    longest = replace(RUN, run_seconds=3 * HOUR, mean_cores=2.0)
    assert (line, "#SBATCH --time=06:30:00") == header(summary, *usual, longest, lines=(line,))


@pytest.mark.parametrize(("peak", "expected"), [(7.9, ()), (8.0, ("#SBATCH --mem=10G",))])
def test_other_run_that_needed_all_memory_is_evidence_for_more(peak: float, expected: tuple[str, ...]) -> None:
    # The finding about the OOM kill may be switched off; 8 GiB x 1.2 = 9.6, up to 10 GiB.
    report = JobReport(summary=make_summary(record={"state": "OUT_OF_MEMORY"}), made_seconds=0)
    made = suggest_resubmission(report, [replace(RUN, peak_bytes=peak * GIB)])

    assert made is not None
    assert expected == made.lines


def test_step_that_requests_more_is_no_evidence_for_more() -> None:
    summary = make_summary(record={"state": "OUT_OF_MEMORY", "steps": step("--mem=10G")})

    assert () == header(summary, lines=("#SBATCH --mem=8G",))


def test_memory_with_fewer_cores_is_not_suggested_without_them() -> None:
    # The other run kept all cores busy.
    summary = make_summary(memory={"working_peak_bytes": GIB})

    assert () == header(summary, replace(RUN, peak_bytes=None), lines=("#SBATCH --cpus-per-task=1 --mem=2G",))
