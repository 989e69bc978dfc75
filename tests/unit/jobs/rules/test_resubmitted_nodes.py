# SPDX-License-Identifier: Apache-2.0
"""The header for the next run requests fewer cores, GPUs and nodes with the memory they need."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.core.tres import Gres
from slurmscope.jobs.record import StepRecord
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.resubmission import suggest_resubmission
from slurmscope.jobs.summary import GpuSummary
from tests.fakes.job_summaries import GIB, HOUR, all_findings, covered, make_summary, with_nodes
from tests.fakes.resubmission import RUN, found, header, several, submitted, suggest


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
        ("--gres=gpu:2,tmpfs:100G", "#SBATCH --gres=gpu:1,tmpfs:100G"),
        ("--gres=tmpfs:100G,gpu:h200:2", "#SBATCH --gres=tmpfs:100G,gpu:h200:1"),
        # The script may request them by another option.
        ("", None),
        ("--gpus-per-task=1", None),
    ],
)
def test_fewer_gpus_are_requested_by_the_same_option(options: str, expected: str | None) -> None:
    summary = make_summary(
        record=submitted(f"--mem=8G {options}", gres=(Gres(name="gpu", count=2),)),
        gpu=GpuSummary(requested=2, mean_utilization=0.4, held_idle=1, coverage=covered()),
    )
    assert ((expected,) if expected else ()) == header(summary)


@pytest.mark.parametrize(
    ("request_of_step", "expected"),
    [
        ("", 1),
        ("--gpus=1", 1),
        ("--gpus=2", 2),
        ("--gres=gpu:h200:2,tmpfs:1G", 2),
        ("--gpus-per-node=2", 2),
        # Two tasks with one each.
        ("--gpus-per-task=1", 2),
        ("--gres=none", 1),
    ],
)
def test_gpus_that_a_step_requests_itself_are_kept(request_of_step: str, expected: int) -> None:
    step = StepRecord(name="0", state="COMPLETED", tasks=2, request=request_of_step)
    summary = make_summary(
        record=submitted("--mem=8G --gpus=2", gres=(Gres(name="gpu", count=2),), steps=(step,)),
        gpu=GpuSummary(requested=2, mean_utilization=0.4, held_idle=1, coverage=covered()),
    )
    made = suggest(summary)
    assert made is not None
    assert expected == made.suggested.gpus


def test_fewer_gpus_are_worth_their_hours() -> None:
    gpus = {"gres": (Gres(name="gpu", count=2),)}
    gpu = GpuSummary(requested=2, mean_utilization=0.4, held_idle=1, coverage=covered())
    made = suggest(make_summary(record=submitted("--gpus=2 --mem=8G", **gpus), gpu=gpu))
    assert made is not None
    assert 2 * HOUR == made.freed.gpu_seconds
    assert "2" == made.changes[0].submitted
    assert () == header(make_summary(record=submitted("", **gpus), gpu=gpu), replace(RUN, mean_gpus=1.8))


@pytest.mark.parametrize(("idle", "nodes", "line"), [(1, 1, "#SBATCH --gpus=1"), (2, 1, ""), (1, 2, "")])
def test_job_that_used_no_gpu_is_not_told_to_request_none(idle: int, nodes: int, line: str) -> None:
    # Its partition may have no nodes without GPUs; GPUs of two nodes are requested for both.
    summary = make_summary(
        record=submitted("--gpus=2 --mem=8G", gres=(Gres(name="gpu", count=2),), node_count=nodes),
        gpu=GpuSummary(requested=2, mean_utilization=0.4, held_idle=idle, coverage=covered()),
    )
    rule = "gpu_held_without_process"
    assert [line] == [each.suggestion for each in all_findings(summary) if each.rule == rule]


def test_memory_per_gpu_is_raised_with_fewer_gpus() -> None:
    summary = make_summary(
        record=submitted("--gpus=2 --mem-per-gpu=4G", gres=(Gres(name="gpu", count=2),)),
        gpu=GpuSummary(requested=2, mean_utilization=0.4, held_idle=1, coverage=covered()),
    )
    # One GPU comes with 4 GiB, and the job needed 6 GiB: 7.2, up to 8 GiB.
    assert ("#SBATCH --gpus=1", "#SBATCH --mem-per-gpu=8G") == header(summary)


def test_idle_nodes_are_left_out_with_their_cores() -> None:
    summary = with_nodes(4.0, 0.0, busy=0.5, memory={"requested_bytes": None})
    made = suggest(summary, lines=("#SBATCH --nodes=1",))
    assert made is not None
    assert ("#SBATCH --nodes=1",) == made.lines
    assert (1, 4) == (made.suggested.nodes, made.suggested.cpus)
    assert () == header(summary, replace(RUN, mean_cores=8.0), lines=("#SBATCH --nodes=1",))


@pytest.mark.parametrize(
    ("request_of_step", "expected"),
    [("", "#SBATCH --nodes=1"), ("--nodes=2", ""), ("--nodes=1-2", "#SBATCH --nodes=1")],
)
def test_nodes_that_a_step_requests_itself_are_kept(request_of_step: str, expected: str) -> None:
    step = StepRecord(name="0", state="COMPLETED", tasks=2, nodes=2, request=request_of_step)
    packed = expected and f"{expected} --mem=8G"
    for summary, rule, line in (
        (with_nodes(4.0, 0.0, busy=0.5), "node_imbalance", expected),
        (with_nodes(1.0, 1.0), "too_many_nodes", packed),
    ):
        record = replace(summary.record, steps=(step,), submit_line="sbatch --nodes=2 -n8 x.sh")
        small = replace(summary, record=record, node_cpus=8.0, node_memory_bytes=64 * GIB)
        assert [line] == [finding.suggestion for finding in all_findings(small) if finding.rule == rule]


@pytest.mark.parametrize(
    ("options", "request_of_step", "expected"),
    [
        ("--ntasks-per-node=4", "", "#SBATCH --nodes=1"),
        ("--ntasks-per-node=4", "--cpus-per-task=1", "#SBATCH --nodes=1"),
        ("--ntasks-per-node=4", "--ntasks=8", ""),
        ("--ntasks-per-node=4 --ntasks=8", "", ""),
        ("--ntasks=8", "", ""),
    ],
)
def test_tasks_by_node_become_fewer_with_the_nodes(options: str, request_of_step: str, expected: str) -> None:
    step = StepRecord(name="0", state="COMPLETED", tasks=8, nodes=2, request=request_of_step)
    summary = with_nodes(4.0, 0.0, busy=0.5)
    summary = replace(summary, record=replace(summary.record, steps=(step,), submit_line=f"sbatch -N2 {options} x.sh"))
    assert [expected] == [each.suggestion for each in all_findings(summary) if each.rule == "node_imbalance"]


def test_tasks_of_a_step_whose_line_is_unknown_may_be_fixed() -> None:
    # Its script is known, and has srun --ntasks=8: on fewer nodes the step could not start.
    step = StepRecord(name="0", state="COMPLETED", tasks=8, nodes=2)
    summary = with_nodes(4.0, 0.0, busy=0.5)
    options = "--nodes=2 --ntasks-per-node=4"
    record = replace(summary.record, steps=(step,), submit_line="", script_options=options)
    findings = all_findings(replace(summary, record=record))
    assert [""] == [each.suggestion for each in findings if each.rule == "node_imbalance"]


@pytest.mark.parametrize(("tasks", "expected"), [(4, "#SBATCH --nodes=1"), (5, "")])
def test_tasks_of_a_step_keep_a_core_each_on_fewer_nodes(tasks: int, expected: str) -> None:
    # One of two nodes with four cores each was idle.
    step = StepRecord(name="0", state="COMPLETED", tasks=tasks, nodes=2)
    summary = with_nodes(4.0, 0.0, busy=0.5)
    summary = replace(summary, record=replace(summary.record, steps=(step,), submit_line="sbatch -N2 x.sh"))
    assert [expected] == [each.suggestion for each in all_findings(summary) if each.rule == "node_imbalance"]


@pytest.mark.parametrize(
    ("nodes", "cpus", "options", "node_cpus", "enough", "line"),
    [
        # Three tasks of 6 cores fit on 22; seven cannot be divided evenly by three nodes.
        (7, 42, "-N7 --ntasks-per-node=1 -c6", 22.0, 3.0, ""),
        (6, 36, "-N6 --ntasks-per-node=1 -c6", 22.0, 2.0, "#SBATCH --nodes=2 --ntasks-per-node=3"),
        (7, 42, "-N7 -n7 -c6", 22.0, 3.0, "#SBATCH --nodes=3"),
        # One node has 18 cores: a task of 9 fits twice, one of 10 once.
        (4, 36, "-N4 -n4 -c9", 18.0, 2.0, "#SBATCH --nodes=2"),
        (4, 40, "-N4 -n4 -c10", 18.0, None, ""),
        # 15 tasks: on two nodes there would be 16.
        (5, 15, "-N5 --ntasks-per-node=3", 8.0, 2.0, ""),
        # Slurm would start one task on one node, instead of four.
        (4, 16, "-N4 -c4", 16.0, 1.0, ""),
        (4, 16, "-N4 -c4 -n0", 16.0, 1.0, ""),
        (4, 16, "-N4 -c4 -n9999999999", 16.0, 1.0, ""),
        # A task is as large as its node.
        (4, 64, "-N4 -n4 -c16", 15.0, None, ""),
    ],
)
def test_fewer_nodes_have_room_for_all_tasks(
    nodes: int, cpus: int, options: str, node_cpus: float, enough: float | None, line: str
) -> None:
    record = {"node_count": nodes, "cpus": cpus, **submitted(options)}
    summary = make_summary(record=record, memory={"requested_bytes": None}, node_cpus=node_cpus)
    found = [each for each in all_findings(summary) if each.rule == "too_many_nodes"]
    assert ([] if enough is None else [(enough, line)]) == [
        (each.numbers["enough_nodes"], each.suggestion) for each in found
    ]


def test_memory_of_all_nodes_is_requested_on_fewer() -> None:
    def line(options: str) -> list[str]:
        record = {"node_count": 4, "cpus": 4, **submitted(options)}
        found = all_findings(make_summary(record=record, memory={"requested_bytes": 8 * GIB}))
        return [each.suggestion for each in found if each.rule == "too_many_nodes"]

    # Each of the four had 2 GiB, be it by the default of the site for a node.
    assert ["#SBATCH --nodes=1 --mem=8G"] == line("-N4 -n4")
    assert ["#SBATCH --nodes=1"] == line("-N4 -n4 --mem-per-cpu=2G")


def test_idle_nodes_of_a_number_of_tasks_are_kept() -> None:
    summary = with_nodes(4.0, 0.0)
    record = replace(summary.record, submit_line="sbatch --nodes=2 --ntasks=8 x.sh")
    assert () == header(replace(summary, record=record), lines=("#SBATCH --nodes=1",))


def test_tasks_that_fit_on_fewer_nodes_keep_cores_and_memory() -> None:
    summary = with_nodes(4.0, 4.0, memory={"requested_bytes": 16 * GIB, "working_peak_bytes": 2 * GIB})
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
    summary = with_nodes(4.0, 4.0, memory={"requested_bytes": 16 * GIB})
    finding = found("#SBATCH --nodes=1", enough_nodes=1.0)
    report = JobReport(summary=summary, made_seconds=0, findings=(finding,))
    made = suggest_resubmission(report)
    assert made is not None
    assert 16 * GIB == made.suggested.memory_bytes


def test_memory_of_idle_nodes_is_freed() -> None:
    made = suggest(with_nodes(4.0, 0.0, memory={"requested_bytes": 16 * GIB}), lines=("#SBATCH --nodes=1",))
    assert made is not None
    assert 8 * GIB * 2 * HOUR == made.freed.memory_byte_seconds
