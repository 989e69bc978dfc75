# SPDX-License-Identifier: Apache-2.0
"""The summary of a report fits a terminal of 24 lines, verdict first, whatever the job is called."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmscope.jobs.pending.blockers import Blocker, PendingExplanation
from slurmscope.jobs.pending.smaller_request import QueuePosition
from slurmscope.jobs.render.brief import MAX_LINES, render_brief
from slurmscope.jobs.render.text import measure
from slurmscope.jobs.report import Chart, ChartLine, JobReport, OptionChange, RequestedSize, Resubmission
from slurmscope.jobs.rule import Severity, Subject
from slurmscope.jobs.summary import GpuWork
from tests.fakes.reports import (
    HOSTILE_NAME,
    START,
    make_finding,
    make_gpu_report,
    make_record,
    make_report,
    make_unmeasured_report,
)

_SIZE = RequestedSize(nodes=1, cpus=4, gpus=0, memory_bytes=None, limit_seconds=None)


def _header(*options: str) -> Resubmission:
    changes = tuple(OptionChange(option=name, submitted="8", suggested="2", reason="") for name in options)
    return Resubmission(changes=changes, other_runs=0, submitted=_SIZE, suggested=_SIZE)


def _chart(name: str, *lines: tuple[float | None, ...], first: int = 0) -> Chart:
    return Chart(
        name=name,
        title=name,
        unit="cores",
        subject=Subject.CPU,
        times=tuple(float(first + index) for index in range(len(lines[0]))),
        lines=tuple(ChartLine(label=f"n{number}", values=values) for number, values in enumerate(lines)),
    )


def _busiest_report() -> JobReport:
    """Return a failed GPU job with everything that a summary may have."""
    made = make_gpu_report()
    record = replace(made.record, name="x" * 300, state="FAILED", exit_code=1)
    work = GpuWork(sm_ratio=0.4, tensor_ratio=0.0, energy_joules=7.2e6)
    summary = replace(made.summary, record=record, gpu=replace(made.summary.gpu, work=work))
    findings = tuple(
        replace(make_finding(f"f{number}", Subject.CPU, Severity.WARNING), explanation="many words " * 60)
        for number in range(9)
    )
    header = _header("nodes", "ntasks", "cpus-per-task", "mem", "time", "gpus", "partition")
    return replace(made, summary=summary, findings=findings, resubmission=header, missing=("a" * 200, "b"))


def test_cause_is_said_once_with_the_output_below() -> None:
    made = make_report(make_record(state="TIMEOUT"), findings=(make_finding("cpu_idle"), make_finding("timed_out")))
    lines = render_brief(made).splitlines()

    assert "CRITICAL: Title of timed_out" in lines
    assert not any("Slurm ended the job at its time limit" in line for line in lines)
    assert lines.index("CRITICAL: Title of timed_out") < next(n for n, line in enumerate(lines) if "Output: " in line)


def test_verdict_comes_first_then_the_lines_to_copy_then_the_use() -> None:
    made = replace(make_report(), resubmission=_header("cpus-per-task"))
    lines = render_brief(made, url="https://portal.example.org/jobs/4711").splitlines()

    assert re.fullmatch(r"Job 4711: relax +COMPLETED", lines[0])
    assert "ada, physics; batch; 1 node (n1), 4 cores, 8 GiB" == lines[1]
    assert "Ran 2 h of 1 d, ended 2026-09-21 16:13:20 UTC; waited 10 min" == lines[2]
    assert lines.index("CRITICAL: Title of cpu_idle") < lines.index("#SBATCH --cpus-per-task=2")
    assert "For the next run (submitted: --cpus-per-task=8):" in lines
    (cpu,) = (line for line in lines if line.startswith("CPU "))
    assert lines.index("#SBATCH --cpus-per-task=2") < lines.index(cpu)
    assert cpu.endswith("2 of 4 cores busy")
    assert "50 %]" in cpu
    assert "Charts and more: https://portal.example.org/jobs/4711" == lines[-1]


@pytest.mark.parametrize("url", ["", "https://portal.example.org/" + "x" * 300])
@pytest.mark.parametrize("report", [make_report(), _busiest_report(), make_unmeasured_report(make_record())])
def test_summary_fits_24_lines_of_80_columns(report: JobReport, url: str) -> None:
    lines = render_brief(report, url=url).splitlines()

    assert len(lines) <= 24 == MAX_LINES
    assert max(map(measure, lines)) <= 80


@given(
    name=st.text(max_size=60) | st.just(HOSTILE_NAME),
    width=st.integers(40, 200),
    findings=st.integers(0, 12),
    options=st.lists(st.text("abc-", min_size=1, max_size=90), max_size=9, unique=True),
    text=st.text(max_size=900),
)
@settings(deadline=None, max_examples=60)
def test_no_name_and_no_width_breaks_the_summary(
    name: str, width: int, findings: int, options: list[str], text: str
) -> None:
    made = _busiest_report()
    record = replace(made.record, name=name, user=name, partition=name)
    found = tuple(replace(make_finding(), title=text, explanation=text) for _ in range(findings))
    summary = replace(made.summary, record=record)
    report = replace(made, summary=summary, findings=found, resubmission=_header(*options) if options else None)
    shown = render_brief(report, width=width)

    assert all(measure(line) <= width for line in shown.splitlines())
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", shown)
    assert len(shown.splitlines()) <= 24 or width < 72


def test_curves_are_means_of_the_nodes_and_gaps_are_blanks() -> None:
    curve = _chart("cpu", (0.0, 2.0, None, 8.0), (0.0, 2.0, None, 8.0))
    (cpu,) = (
        line for line in render_brief(replace(make_report(), charts=(curve,))).splitlines() if line.startswith("CPU ")
    )

    assert "▁▃ █" in cpu


def test_curves_of_other_times_are_not_mixed() -> None:
    charts = (_chart("read", (1.0, 8.0)), _chart("write", (8.0, 1.0), first=5))
    (files,) = (
        line for line in render_brief(replace(make_report(), charts=charts)).splitlines() if line.startswith("Files")
    )

    assert "▂█" in files


def test_work_of_gpus_is_shown_where_it_is_counted() -> None:
    assert "SM 40 %, tensor cores 0 %" in render_brief(_busiest_report())
    assert "GPU work" not in render_brief(make_gpu_report())


def test_pending_job_has_its_blocker_and_position_and_no_measurements() -> None:
    record = make_record(state="PENDING", start_seconds=None, end_seconds=None, reason="Priority")
    known = PendingExplanation(
        reason="Priority",
        meaning="License matlab: 2 requested, 0 of 56 free.",
        action="Wait, or scontrol update JobId=4711.",
        start_seconds=START,
        positions=(QueuePosition(partition="batch", position=3, jobs=41, cores_ahead=80, gpus_ahead=0),),
        blockers=(
            Blocker(title="License matlab", text="2 requested, 0 of 56 free", is_met=False),
            Blocker(title="Reservation maint", text="from a to b, active now"),
            Blocker(title="License other", text="1 requested, 5 of 5 free", is_met=True),
        ),
    )
    text = " ".join(render_brief(make_report(record), known=known).split())

    assert "Reason License matlab: 2 requested, 0 of 56 free (Priority)." in text
    assert "Blocked by" not in text
    assert "Also needs Reservation maint: from a to b, active now." in text
    assert "Position 3 of 41 in partition batch, behind jobs for 80 cores" in text
    assert "Expected start 2026-09-21 14:13:20 UTC" in text
    assert "License other" not in text
    assert "not measured" not in text
    assert "Findings" not in text


def test_colors_are_only_ours() -> None:
    plain, colored = (render_brief(_busiest_report(), use_color=color) for color in (False, True))

    assert "\x1b" not in plain
    assert plain == re.sub(r"\x1b\[[0-9;]*m", "", colored)


def test_advice_is_shown_where_there_is_room() -> None:
    lines = render_brief(make_report()).splitlines()
    assert lines.index("    Only 2 of 4 cores were busy on average.") + 1 == lines.index(
        "    Request as many cores as the program uses."
    )
    assert "Request as many cores" not in render_brief(_busiest_report())


def test_line_without_a_bar_and_a_curve_begins_after_its_label() -> None:
    assert "GPU work    SM 40 %, tensor cores 0 %" in render_brief(_busiest_report()).splitlines()
