# SPDX-License-Identifier: Apache-2.0
"""The header for the next run follows from findings and other runs; expected figures are worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurmscope.gres import Gres
from slurmscope.model.finding import Finding
from slurmscope.model.job_record import StepRecord
from slurmscope.model.report import JobReport
from slurmscope.model.resubmission import OtherRun, RequestedSize, Resubmission
from slurmscope.model.summary import GpuSummary, JobSummary, NodeSummary
from slurmscope.rules import judge
from slurmscope.rules.header_options import parse_suggestion
from slurmscope.rules.resubmission import suggest_resubmission
from tests.fakes.job_summaries import GIB, HOUR, covered, make_summary, with_nodes
from tests.fakes.reports import make_finding

RUN = OtherRun(
    state="COMPLETED",
    start_seconds=1,
    run_seconds=2 * HOUR,
    limit_seconds=3 * HOUR,
    requested_bytes=8 * GIB,
    peak_bytes=6 * GIB,
    mean_cores=4.0,
)
SIZE = RequestedSize(nodes=1, cpus=4, gpus=0, memory_bytes=8 * GIB, limit_seconds=3 * HOUR)


def suggest(summary: JobSummary, *runs: OtherRun, lines: tuple[str, ...] = ()) -> Resubmission | None:
    """Suggest a header by the rules, or by findings with these lines."""
    findings = tuple(found(line) for line in lines) if lines else judge(summary)
    return suggest_resubmission(JobReport(summary=summary, made_seconds=0, findings=findings), runs)


def found(line: str, **numbers: float) -> Finding:
    return replace(make_finding(), suggestion=line, numbers=numbers)


def header(summary: JobSummary, *runs: OtherRun, lines: tuple[str, ...] = ()) -> tuple[str, ...]:
    made = suggest(summary, *runs, lines=lines)
    return made.lines if made else ()


def several(count: int, **changed: Any) -> list[OtherRun]:
    return [replace(RUN, start_seconds=number, **changed) for number in range(count)]


def submitted(options: str, **record: Any) -> dict[str, Any]:
    return {"submit_line": f"sbatch {options} x.sh", **record}


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


def test_oom_killed_job_gets_half_as_much_memory_again() -> None:
    made = suggest(make_summary(record={"state": "OUT_OF_MEMORY"}))
    assert made is not None
    assert ("#SBATCH --mem=12G",) == made.lines
    assert made.freed.memory_byte_seconds is None


def test_oom_killed_job_gets_what_completed_runs_needed() -> None:
    # 14 GiB x 1.2 = 16.8, up to 17.
    made = suggest(make_summary(record={"state": "OUT_OF_MEMORY"}), replace(RUN, peak_bytes=14 * GIB))
    assert made is not None
    assert ("#SBATCH --mem=17G",) == made.lines
    assert "By 1 other runs of this job, the next one may need 14 GiB." == made.changes[0].reason


def test_earlier_oom_kill_of_a_larger_request_counts() -> None:
    killed = replace(RUN, state="OUT_OF_MEMORY", requested_bytes=12 * GIB, peak_bytes=11 * GIB)
    assert ("#SBATCH --mem=18G",) == header(make_summary(record={"state": "OUT_OF_MEMORY"}), killed)


def test_oom_kill_without_a_known_request_is_not_evidence() -> None:
    killed = replace(RUN, state="OUT_OF_MEMORY", requested_bytes=None)
    assert () == header(make_summary(), killed)


def test_unknown_memory_gives_no_memory() -> None:
    record = {"state": "OUT_OF_MEMORY"}
    assert () == header(make_summary(record=record, memory={"asked_bytes": None}), *several(9))


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


def test_completed_run_gets_more_time_where_others_reached_the_limit() -> None:
    summary = make_summary(run_seconds=2.5 * HOUR)
    assert () == header(summary, replace(RUN, run_seconds=2.5 * HOUR))
    # 3 h x 1.5.
    assert ("#SBATCH --time=04:30:00",) == header(summary, replace(RUN, state="TIMEOUT"))


def test_job_that_hung_gets_no_more_time() -> None:
    summary = make_summary(record={"state": "TIMEOUT"}, run_seconds=3 * HOUR, cpu={"idle_tail_seconds": 2 * HOUR})
    assert "--time" not in "".join(header(summary, *several(9)))


def test_only_the_time_limit_needs_no_note() -> None:
    made = suggest(make_summary(record={"submit_line": "sbatch x.sh", "time_limit_seconds": 86400}))
    assert made is not None
    assert ("", "1-00:00:00") == (made.note, made.changes[0].submitted)


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
    unused = replace(make_finding("memory_over_asked"), suggestion="")
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


def test_fewer_cores_need_more_time_where_they_get_busier() -> None:
    # 2.45 busy cores on 2 take 2.45 / 2 x 2.5 h = 3.06 h of 3 h; x 1.5 = 4.6, up to 5 h.
    summary = make_summary(busy=0.5, cpu={"peak_cores": 2.45}, run_seconds=2.5 * HOUR)
    assert ("#SBATCH --cpus-per-task=2", "#SBATCH --time=05:00:00") == header(summary)


def test_cores_that_another_run_used_are_kept() -> None:
    summary = make_summary(busy=0.25)
    assert ("#SBATCH --cpus-per-task=1",) == header(summary, replace(RUN, mean_cores=1.2))
    assert () == header(summary, replace(RUN, mean_cores=1.0), replace(RUN, mean_cores=3.0))


def test_memory_per_core_follows_the_cores() -> None:
    # 3 GiB x 1.2 = 3.6, up to 3.75 GiB for one core.
    summary = make_summary(record=submitted("-c4 --mem-per-cpu=2G"), busy=0.25, memory={"working_peak_bytes": 3 * GIB})
    assert ("#SBATCH --cpus-per-task=1", "#SBATCH --mem-per-cpu=3840M") == header(summary)
    # Another run needed 5 GiB: 6 GiB.
    runs = (replace(RUN, peak_bytes=5 * GIB, mean_cores=1.0),)
    assert ("#SBATCH --cpus-per-task=1", "#SBATCH --mem-per-cpu=6G") == header(summary, *runs)


def test_memory_that_the_site_gives_by_core_is_kept_with_fewer_cores() -> None:
    # 4.5 GiB x 1.2 = 5.4, up to 6 GiB.
    summary = make_summary(
        record={"submit_line": "sbatch -c4 x.sh"}, busy=0.25, memory={"working_peak_bytes": 4.5 * GIB}
    )
    made = suggest(summary)
    assert made is not None
    assert ("#SBATCH --cpus-per-task=1", "#SBATCH --mem=6G") == made.lines
    assert "Fewer cores alone would also mean less memory." == made.changes[1].reason


def test_kept_cores_keep_their_memory() -> None:
    summary = make_summary(record={"submit_line": "sbatch -c4 x.sh"}, busy=0.25, memory={"working_peak_bytes": 6 * GIB})
    assert () == header(summary, RUN)


def test_memory_per_gpu_stays_per_gpu() -> None:
    gpus = {"gres": (Gres(name="gpu", count=2),)}
    summary = make_summary(record=submitted("--gpus=2 --mem-per-gpu=4G", **gpus), memory={"working_peak_bytes": GIB})
    # 1.25 GiB for two GPUs.
    assert ("#SBATCH --mem-per-gpu=640M",) == header(summary)
    without = make_summary(record=submitted("--mem-per-gpu=4G"), memory={"working_peak_bytes": GIB})
    assert () == header(without)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--gpus=2", "#SBATCH --gpus=1"),
        ("-G2", "#SBATCH --gpus=1"),
        ("--gpus-per-node=2", "#SBATCH --gpus-per-node=1"),
        ("--gres=gpu:2", "#SBATCH --gres=gpu:1"),
        ("", "#SBATCH --gpus=1"),
        ("--gpus-per-task=1", None),
    ],
)
def test_fewer_gpus_are_requested_by_the_same_option(options: str, expected: str | None) -> None:
    summary = make_summary(
        record=submitted(f"--mem=8G {options}", gres=(Gres(name="gpu", count=2),)),
        gpu=GpuSummary(asked=2, mean_utilization=0.4, held_idle=1, coverage=covered()),
    )
    assert ((expected,) if expected else ()) == header(summary)


def test_fewer_gpus_are_worth_their_hours() -> None:
    gpus = {"gres": (Gres(name="gpu", count=2),)}
    gpu = GpuSummary(asked=2, mean_utilization=0.4, held_idle=1, coverage=covered())
    made = suggest(make_summary(record=submitted("--mem=8G", **gpus), gpu=gpu))
    assert made is not None
    assert 2 * HOUR == made.freed.gpu_seconds
    assert "2" == made.changes[0].submitted
    assert () == header(make_summary(record=submitted("", **gpus), gpu=gpu), replace(RUN, mean_gpus=1.8))


def test_memory_per_gpu_is_raised_with_fewer_gpus() -> None:
    summary = make_summary(
        record=submitted("--gpus=2 --mem-per-gpu=4G", gres=(Gres(name="gpu", count=2),)),
        gpu=GpuSummary(asked=2, mean_utilization=0.4, held_idle=1, coverage=covered()),
    )
    # One GPU comes with 4 GiB, and the job needed 6 GiB: 7.2, up to 8 GiB.
    assert ("#SBATCH --gpus=1", "#SBATCH --mem-per-gpu=8G") == header(summary)


def test_idle_nodes_are_left_out_with_their_cores() -> None:
    summary = with_nodes(4.0, 0.0, busy=0.5, memory={"asked_bytes": None})
    made = suggest(summary, lines=("#SBATCH --nodes=1",))
    assert made is not None
    assert ("#SBATCH --nodes=1",) == made.lines
    assert (1, 4) == (made.suggested.nodes, made.suggested.cpus)
    assert () == header(summary, replace(RUN, mean_cores=8.0), lines=("#SBATCH --nodes=1",))


def test_idle_nodes_of_a_number_of_tasks_are_kept() -> None:
    summary = with_nodes(4.0, 0.0)
    record = replace(summary.record, submit_line="sbatch --nodes=2 --ntasks=8 x.sh")
    assert () == header(replace(summary, record=record), lines=("#SBATCH --nodes=1",))


def test_tasks_that_fit_on_fewer_nodes_keep_cores_and_memory() -> None:
    summary = with_nodes(4.0, 4.0, memory={"asked_bytes": 16 * GIB, "working_peak_bytes": 2 * GIB})
    record = replace(summary.record, submit_line="sbatch --nodes=2 --ntasks-per-node=4 --mem=8G x.sh")
    line = "#SBATCH --nodes=1 --ntasks-per-node=8 --mem=16G"
    finding = found(line, enough_nodes=1.0)
    report = JobReport(summary=replace(summary, record=record), made_seconds=0, findings=(finding,))
    made = suggest_resubmission(report, several(9, mean_cores=8.0, peak_bytes=GIB))
    assert made is not None
    assert ("#SBATCH --nodes=1", "#SBATCH --ntasks-per-node=8", "#SBATCH --mem=16G") == made.lines
    assert (8, 16 * GIB) == (made.suggested.cpus, made.suggested.memory_bytes)
    assert made.freed.core_seconds is None


def test_tasks_on_fewer_nodes_without_a_memory_option_keep_their_memory() -> None:
    summary = with_nodes(4.0, 4.0, memory={"asked_bytes": 16 * GIB})
    finding = found("#SBATCH --nodes=1", enough_nodes=1.0)
    report = JobReport(summary=summary, made_seconds=0, findings=(finding,))
    made = suggest_resubmission(report)
    assert made is not None
    assert 16 * GIB == made.suggested.memory_bytes


def test_memory_of_idle_nodes_is_freed() -> None:
    made = suggest(with_nodes(4.0, 0.0, memory={"asked_bytes": 16 * GIB}), lines=("#SBATCH --nodes=1",))
    assert made is not None
    assert 8 * GIB * 2 * HOUR == made.freed.memory_byte_seconds


def test_second_finding_about_the_same_option_is_dropped() -> None:
    lines = ("#SBATCH --cpus-per-task=1", "#SBATCH --cpus-per-task=2")
    assert lines[:1] == header(make_summary(busy=0.25), lines=lines)


def test_largest_need_of_any_node_counts() -> None:
    nodes = tuple(NodeSummary(node=f"n{at}", working_peak_bytes=peak) for at, peak in enumerate((GIB, 3 * GIB)))
    summary = make_summary(
        record={"node_count": 2, "cpus": 8},
        memory={"asked_bytes": 16 * GIB, "working_peak_bytes": 4 * GIB},
        nodes=nodes,
    )
    # 3 GiB x 1.2 = 3.6, up to 3.75 GiB.
    assert ("#SBATCH --mem=3840M",) == header(summary)


def test_memory_of_whole_nodes_is_not_lowered() -> None:
    summary = make_summary(record=submitted("--exclusive --mem=8G"), memory={"working_peak_bytes": GIB})
    assert () == header(summary)


def test_same_amount_is_no_change() -> None:
    summary = make_summary(record=submitted("--mem=12G", state="OUT_OF_MEMORY"))
    assert () == header(summary, lines=("#SBATCH --mem=12G",))


def test_lines_of_a_finding_are_parsed() -> None:
    assert {"mem": "1G", "exclusive": ""} == parse_suggestion("#SBATCH --mem=1G\n#SBATCH --exclusive")
    assert {} == parse_suggestion("")
