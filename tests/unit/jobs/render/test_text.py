# SPDX-License-Identifier: Apache-2.0
"""Check the report for terminals: every block, every width, every state."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmscope.core.tres import Gres
from slurmscope.jobs.render.text import render_text
from slurmscope.jobs.render.verdict import is_fine
from slurmscope.jobs.report import JobReport, OptionChange, RequestedSize, Resubmission
from slurmscope.jobs.rule import Severity, Subject
from slurmscope.jobs.summary import (
    Coverage,
    CpuSummary,
    FilesystemSummary,
    GpuSummary,
    IoSummary,
    JobSummary,
    MemorySummary,
    UsedShare,
)
from tests.fakes.reports import (
    GIB,
    HOSTILE_NAME,
    make_finding,
    make_gpu_report,
    make_record,
    make_report,
    make_unmeasured_report,
)

_COLOR = re.compile(r"\x1b\[[0-9;]*m")


def _columns(line: str) -> int:
    """Count columns by the width property alone, which is never less than what terminals take."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line)


def _line(text: str, start: str) -> str:
    return next(line.strip() for line in text.splitlines() if line.strip().startswith(start))


def test_busy_cores_of_an_unknown_number_are_not_of_none() -> None:
    made = make_report()
    summary = replace(made.summary, record=replace(made.record, cpus=None))

    text = render_text(replace(made, summary=summary))

    assert _line(text, "CPU  ").endswith("50 %]  2 cores busy")


def test_the_whole_report_of_a_measured_job_is_there() -> None:
    text = render_text(make_report(), url="https://portal.example.org/jobs/4711")

    assert "Job 4711: relax" == text.splitlines()[1]
    assert _line(text, "CPU  ").endswith("50 %]  2 of 4 cores busy")
    assert _line(text, "Memory      [").endswith("10 %]  819 MiB of 8 GiB")
    assert _line(text, "Time        [").endswith("8.3 %]  2 h of 1 d")
    assert "Waited          10 min" == _line(text, "Waited")
    assert "Submitted       2026-09-21 14:03:20 UTC" == _line(text, "Submitted  ")
    assert "Read              4.66 GiB in 50,000 calls" == _line(text, "Read")
    # The row of the only node would repeat all of that.
    assert "Nodes ---" not in text
    assert "- GPU use was not measured: the job had none." == _line(text, "- GPU")
    assert "Charts and more: https://portal.example.org/jobs/4711" == text.splitlines()[-1].strip()


def test_suspended_time_is_said_where_there_was_any() -> None:
    text = render_text(make_report(make_record(suspended_seconds=4 * 3600)))

    assert "Suspended       4 h, not part of the run time" == _line(text, "Suspended")
    assert "Suspended" not in render_text(make_report())
    assert "Suspended" not in render_text(make_report(make_record(start_seconds=None, suspended_seconds=60)))


def test_a_bar_is_as_long_as_its_share() -> None:
    text = render_text(make_report())

    assert 18 == _line(text, "CPU  ").count("|")  # half of 36
    assert 3 == _line(text, "Time        [").count("|")  # a twelfth of 36


def test_memory_is_said_three_ways_with_the_reason() -> None:
    text = render_text(make_report())

    assert "Needed (anonymous and shared)  819 MiB" == _line(text, "Needed")
    assert "Charged by the kernel          2 GiB" == _line(text, "Charged")
    assert "Slurm's MaxRSS                 512 MiB" == _line(text, "Slurm's MaxRSS")
    assert "The values differ because" in text


def test_cause_is_said_once_with_other_findings_below() -> None:
    made = make_report(make_record(state="TIMEOUT"), findings=(make_finding("cpu_idle"), make_finding("timed_out")))
    text = render_text(made)

    places = [text.index(words) for words in ("What went wrong", "Title of timed_out", "Findings", "Title of cpu_idle")]
    assert sorted(places) == places
    assert [1, 1] == [text.count("Title of timed_out"), text.count("Title of cpu_idle")]
    assert "Slurm ended the job at its time limit" not in text


def test_findings_come_worst_first_with_the_suggestion_on_its_own_line() -> None:
    report = make_report(
        findings=(
            make_finding("a", Subject.TIME, Severity.INFO),
            make_finding("b", Subject.CPU, Severity.WARNING),
            make_finding("c", Subject.MEMORY, Severity.CRITICAL),
        )
    )
    text = render_text(report)

    assert text.index("CRITICAL: Title of c") < text.index("WARNING: Title of b") < text.index("INFO: Title of a")
    assert "\n        #SBATCH --cpus-per-task=2\n" in text


def test_short_job_without_findings_is_not_called_fine() -> None:
    report = make_report(findings=())
    short = replace(report, summary=replace(report.summary, run_seconds=60.0))

    text = " ".join(render_text(short).split())

    assert "Too short to judge: the job ran for 1 min, and most rules need 5 min." in text
    assert "It used: CPU 50 %, memory 10 %." in text
    assert not is_fine(short)
    assert is_fine(replace(report, summary=replace(report.summary, run_seconds=300.0)))


def test_record_that_accounting_has_in_part_claims_nothing() -> None:
    record = make_record(name="", partition="", cpus=0, node_count=0, nodes=(), state="RUNNING", end_seconds=None)
    lines = [line.split() for line in render_text(make_report(record)).splitlines()]

    assert ["Job", str(record.job_id)] in lines
    assert {("Cores", "unknown"), ("Nodes", "unknown")} <= {tuple(line) for line in lines}


def test_job_that_should_request_something_else_has_nothing_to_find_but_something_to_change() -> None:
    change = OptionChange(option="time", submitted="02:00:00", suggested="03:00:00", reason="This run took 2 h.")
    size = RequestedSize(nodes=1, cpus=4, gpus=0, memory_bytes=None, limit_seconds=None)
    made = Resubmission(changes=(change,), other_runs=0, submitted=size, suggested=size)
    report = make_report(findings=(), resubmission=made)

    assert "No findings, but the next run should request something else: see its header." in render_text(report)
    assert not is_fine(report)
    assert is_fine(replace(report, resubmission=replace(made, changes=())))


def test_no_findings_is_said() -> None:
    assert "No findings: the measurements show nothing to change." in render_text(make_report(findings=()))


def test_what_was_not_measured_is_never_a_zero() -> None:
    report = make_unmeasured_report(make_record(gres=(Gres(name="gpu", count=1),)))
    text = render_text(replace(report, summary=replace(report.summary, run_seconds=600.0)))

    for label in ("CPU  ", "Memory      n", "GPU  ", "GPU memory"):
        assert _line(text, label).endswith("not measured")
    assert "No findings, but too little was measured to be sure." in text
    assert "They differ" not in text
    assert "Nodes ---" not in text
    assert "0 %" not in text


def test_idle_gpus_are_counted() -> None:
    text = render_text(make_gpu_report())

    assert _line(text, "GPU         [").endswith("1.0 %]")
    assert "mean of 2 GPUs, 2 never used" in text
    assert "GPU memory  [                                 0 %]  0 B of 282 GiB at its peak" == _line(text, "GPU memory")
    assert "GPUs            2 h200" == _line(text, "GPUs")


def test_busy_gpus_are_not_called_idle() -> None:
    report = make_gpu_report()
    devices = tuple(replace(device, mean_utilization=0.9) for device in report.summary.gpu.devices)
    gpu = replace(report.summary.gpu, mean_utilization=0.9, held_idle=0, devices=devices)
    text = render_text(replace(report, summary=replace(report.summary, gpu=gpu)))

    assert _line(text, "GPU         [").endswith("90 %]  mean of 2 GPUs")


def test_gauge_of_gpus_names_the_least_used() -> None:
    report = make_gpu_report()
    gpu = replace(report.summary.gpu, mean_utilization=0.37, held_idle=0)
    text = render_text(replace(report, summary=replace(report.summary, gpu=gpu)), width=120)

    assert _line(text, "GPU         [").endswith("37 %]  mean of 2 GPUs, the least used 0 %")


def test_the_memory_of_one_task_of_several_is_not_called_that_of_the_job() -> None:
    report = make_report()
    memory = MemorySummary(
        requested_bytes=8 * GIB, slurm_peak_bytes=GIB, slurm_peak_is_whole=False, charged_peak_bytes=6 * GIB,
        coverage=Coverage(nodes=1, nodes_measured=1, run_ratio=1.0),
    )  # fmt: skip
    text = render_text(replace(report, summary=replace(report.summary, memory=memory)))

    assert _line(text, "Memory      [").endswith("75 %]  6 GiB of 8 GiB")
    assert _line(text, "Slurm's MaxRSS").endswith("1 GiB (its largest task or step alone)")


def test_what_is_all_known_has_no_list_of_what_is_not() -> None:
    assert "Not known" not in render_text(make_report(missing=()))


def test_a_number_that_stands_on_little_says_so() -> None:
    few = Coverage(nodes=4, nodes_measured=3, run_ratio=1.0)
    short = Coverage(nodes=4, nodes_measured=4, run_ratio=0.5)
    report = make_report()
    cpu = CpuSummary(time=UsedShare(requested=4.0, used=2.0, coverage=few), mean_cores=2.0)
    memory = MemorySummary(requested_bytes=8 * GIB, working_peak_bytes=4 * GIB, coverage=short)
    text = render_text(replace(report, summary=replace(report.summary, cpu=cpu, memory=memory)), width=120)

    assert "2 of 4 cores busy (measured on 3 of 4 nodes)" in text
    assert "4 GiB of 8 GiB (measured for 50 % of the run)" in text


def test_numbers_of_accounting_alone_are_shown() -> None:
    report = make_unmeasured_report(make_record(time_limit_seconds=None))
    summary = replace(
        report.summary,
        cpu=CpuSummary(time=UsedShare(requested=120.0, used=60.0)),
        memory=MemorySummary(slurm_peak_bytes=GIB),
        time=UsedShare(used=30.0),
        gpu=GpuSummary(requested=1),
    )
    text = render_text(replace(report, summary=summary))
    unstarted = render_text(replace(report, summary=replace(summary, time=UsedShare(requested=60.0))))

    assert _line(text, "CPU  ").endswith("50 %]  1 min of 2 min")
    assert "Memory      1 GiB" == _line(text, "Memory      1")
    assert "Time        30 s, no limit" == _line(text, "Time   ")
    assert "Time limit      none" == _line(text, "Time limit")
    assert "Time        not measured" == _line(unstarted, "Time   ")


def test_state_says_how_it_ended() -> None:
    record = make_record(state="FAILED", exit_code=2, exit_signal=9, reason="NonZeroExitCode", restarts=1)
    text = render_text(make_report(record))

    assert "State           FAILED (exit code 2, signal 9, NonZeroExitCode)" == _line(text, "State")
    assert "Restarts        1; the numbers are of one run" == _line(text, "Restarts")


def test_number_that_is_no_signal_is_not_called_one() -> None:
    text = render_text(make_report(make_record(state="OUT_OF_MEMORY", exit_code=0, exit_signal=125)))

    assert "State           OUT_OF_MEMORY" == _line(text, "State")


def test_job_that_failed_without_findings_is_not_called_fine() -> None:
    report = make_report(make_record(state="FAILED", exit_code=1), findings=())

    assert "what the job used does not explain why it failed" in render_text(report)


def test_named_cause_is_not_called_unexplained() -> None:
    text = render_text(make_report(make_record(state="FAILED", exit_code=0, exit_signal=11), findings=()))

    assert "SIGSEGV" in text
    assert "does not explain" not in text
    assert "No findings about what the job used." in text


def test_part_of_a_heterogeneous_job_says_that_there_are_others() -> None:
    text = " ".join(render_text(make_report(make_record(het_job_id=4711, het_offset=0))).split())

    assert "Part of heterogeneous job 4711; other parts, such as 4711+1, have reports of their own" in text
    assert "such as 4711+0" in " ".join(render_text(make_report(make_record(het_job_id=4711, het_offset=1))).split())


def test_files_in_tmpfs_are_named_in_the_memory_of_a_job() -> None:
    report = make_report()
    memory = replace(report.summary.memory, shared_peak_bytes=float(1 << 30))
    text = render_text(replace(report, summary=replace(report.summary, memory=memory)))

    assert "Of it shared, or in tmpfs      1 GiB" == _line(text, "Of it shared")
    assert "tmpfs" not in render_text(report)
    assert "needs to change" not in render_text(report)


def test_a_waiting_job_has_not_started_and_a_running_one_still_runs() -> None:
    waiting = make_record(state="PENDING", start_seconds=None, end_seconds=None, nodes=(), memory_bytes=None)
    text = render_text(make_unmeasured_report(waiting))

    assert "Started         not yet" == _line(text, "Started")
    assert "Memory          unknown" == _line(text, "Memory        ")
    assert "Waited" not in text
    running = make_record(state="RUNNING", end_seconds=None)
    assert "Run time        2 h, still running" == _line(render_text(make_report(running)), "Run time")


def test_pending_job_has_its_reason_and_no_measurements() -> None:
    record = make_record(12, state="PENDING", start_seconds=None, end_seconds=None, reason="Licenses")
    text = render_text(make_unmeasured_report(record))

    assert "Reason          Not enough licenses are free (Licenses)." == _line(text, "Reason")
    assert "What to do      Wait until other jobs return licenses, or request fewer." == _line(text, "What to do")
    assert "squeue --start --jobs=12" in text
    assert "not measured" not in text


@pytest.mark.parametrize("reason", ["", "None"])
def test_pending_job_whose_reason_accounting_lacks_says_so(reason: str) -> None:
    record = make_record(12, state="PENDING", start_seconds=None, end_seconds=None, reason=reason)
    text = render_text(make_unmeasured_report(record))

    assert "Reason          not in Slurm's accounting yet" == _line(text, "Reason")
    assert "What to do" not in text


def test_a_job_that_did_not_run_has_no_numbers() -> None:
    state, started = "CANCELLED", "never"
    record = make_record(state=state, start_seconds=None, end_seconds=None, time_limit_seconds=3600)
    summary = JobSummary(record=record, run_seconds=0.0, time=UsedShare(requested=3600, used=0.0))
    text = render_text(JobReport(summary=summary, made_seconds=record.submit_seconds))

    assert f"Started         {started}" == _line(text, "Started")
    assert "not run" in _line(text, "Time   ")
    assert "No findings: the job has not run." in text
    assert "Run time" not in text
    assert " 0 %" not in text


def test_many_nodes_become_three_rows() -> None:
    report = make_report()
    node = report.summary.nodes[0]
    nodes = tuple(replace(node, node=f"n{index}", mean_cores=index / 10) for index in range(41))
    text = render_text(replace(report, summary=replace(report.summary, nodes=nodes)))

    assert ["0", "%"] == _line(text, "lowest").split()[1:3]
    assert ["50", "%", "2"] == _line(text, "median").split()[1:4]
    assert ["100", "%", "4"] == _line(text, "highest").split()[1:4]
    assert "41 nodes; each value is taken over all nodes" in text


def test_many_node_names_are_not_all_written() -> None:
    record = make_record(nodes=tuple(f"n{index}" for index in range(1000)), node_count=1000)

    assert "Nodes           1,000 (n0, n1, n2, n3, …)" == _line(render_text(make_report(record)), "Nodes")


def test_use_beyond_the_request_fills_the_bar_and_no_more() -> None:
    report = make_report()
    time = UsedShare(requested=10.0, used=25.0)
    text = render_text(replace(report, summary=replace(report.summary, time=time)))

    assert re.search(r"Time        \[\|{30} 250 %\]", text)


def test_metadata_operations_are_shown_where_they_are_counted() -> None:
    report = make_report()
    io = replace(report.summary.io, metadata_operations=12345.0, uses_scratch=True)
    text = render_text(replace(report, summary=replace(report.summary, io=io)))

    assert _line(text, "Metadata operations").endswith("12,345")
    assert _line(text, "Scratch").endswith(" used")


def test_use_of_each_file_system_is_one_line() -> None:
    report = make_report()
    use = (
        FilesystemSummary(
            name="work",
            read_bytes=2e9,
            write_bytes=0.0,
            metadata_operations=1.0,
            peak_read_bytes=3e6,
            peak_write_bytes=0.0,
            peak_metadata_operations=1234.4,
        ),
        FilesystemSummary(name="ho\x1b[31mme", metadata_operations=5e6),
    )
    text = render_text(replace(report, summary=replace(report.summary, io=IoSummary(filesystems=use))))

    words = " ".join(text.split())
    assert "On work 1.86 GiB read (peak 2.86 MiB/s), 0 B written, 1 metadata operation (peak 1,234/s)" in words
    assert _line(text, "On ho").endswith("5,000,000 metadata operations")
    assert "\x1b" not in text


def test_hostile_names_cannot_move_the_cursor_or_turn_the_line_around() -> None:
    record = make_record(name=HOSTILE_NAME, user="\x07bell", work_dir="/tmp/\x9b2J", nodes=("n\u2066",))
    text = render_text(make_report(record, missing=(HOSTILE_NAME,), findings=()))

    assert not [char for char in text if not char.isprintable() and char != "\n"]
    assert "\\u001b[31m\\u202eabc" in text


def test_colour_is_put_around_what_it_says_and_only_when_wanted() -> None:
    report = make_report(make_record(name=HOSTILE_NAME))
    plain, colored = render_text(report), render_text(report, use_color=True)

    assert plain == _COLOR.sub("", colored)
    assert "\x1b" not in plain
    assert "\x1b[1;31mCRITICAL: Title of cpu_idle\x1b[0m" in colored
    assert colored.count("\x1b[0m") * 2 == colored.count("\x1b")


@pytest.mark.parametrize("width", [40, 80, 120])
@settings(max_examples=20, deadline=None)
@given(name=st.text(max_size=200), other=st.text(max_size=60))
def test_no_line_is_wider_than_the_terminal(width: int, name: str, other: str) -> None:
    record = make_record(name=name, user=other, work_dir=other + name, nodes=(other,))
    finding = replace(make_finding(), title=name, explanation=other, suggestion=name)
    report = make_report(record, findings=(finding,), missing=(name,))
    node = replace(report.summary.nodes[0], node=name)
    report = replace(report, summary=replace(report.summary, nodes=(node,)))

    text = render_text(report, width=width, url="https://portal.example.org/" + "x" * 90)

    assert [] == [line for line in text.split("\n") if _shown_columns(line) > width]


def _shown_columns(line: str) -> int:
    return _columns("".join(char for char in line if unicodedata.category(char) not in {"Mn", "Me"}))


def test_a_terminal_of_no_width_gets_forty_columns() -> None:
    assert render_text(make_report(), width=40) == render_text(make_report(), width=0)


def test_federated_job_is_shown_with_its_local_id() -> None:
    made = make_report(make_record((3 << 26) + 216))
    assert "local job ID 216, submitted to cluster 3 of the federation" in " ".join(render_text(made).split())
    assert "Federated" not in render_text(make_report())
